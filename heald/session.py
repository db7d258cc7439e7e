"""One session: compile a source for a machine, predict its cycles, run it on the RTL, and compare.

A source is a model (a path, bytes or `onnx.ModelProto`), a problem of `heald.problems`, or a tile program.
Whatever it is, `compile` gives a `Model`, and a model gives predictions and runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cosim.backends import BACKENDS, simulator
from cosim.job import Simulator
from cosim.session.network import CompiledModel, compile_model, draw_inputs, predict_model
from cosim.session.operators import Prediction
from cosim.session.tile_program import prepare
from cosim.settings import MemorySettings
from heald import bundle
from heald.hardware import Machine
from heald.hardware import machine as machine_of
from heald.model_run import run_model, run_on_device
from heald.progress import Progress, shown
from heald.run import Run, run_program
from heald.sources import GraphSource, read_source
from hw.config import MachineConfig
from hw.errors import InputError, whole_number
from sw.graph.network import Network
from sw.ir.expression import Const
from sw.ir.program import Program

#: Shape and type of an array.
Typed = tuple[tuple[int | str, ...], np.dtype[Any]]


def memories(
    config: MachineConfig,
    latency: Mapping[str, int] | None = None,
    bandwidth: Mapping[str, int] | None = None,
    stall: int | None = None,
) -> MemorySettings:
    """The memories behind the ports; raises `InputError` for unknown ports and numbers out of range."""
    for name, given in (("latency", latency), ("bandwidth", bandwidth)):
        if given is not None and not isinstance(given, Mapping):
            raise InputError(f"{name} must be numbers by port, not {given!r}")
        for port, number in (given or {}).items():
            whole_number(f"{name} of {port}", number, 1)
    if stall is not None:
        whole_number("stall", stall)
    ports = dict(latency or {}), dict(bandwidth or {})
    return MemorySettings.of(config, latency=ports[0], bandwidth=ports[1], stall_seed=stall)


@dataclass(frozen=True)
class _Simulation:
    """What a run was asked for; inputs that are None are drawn from the seed."""

    inputs: dict[str, np.ndarray] | None
    settings: MemorySettings
    build: Callable[[], Simulator]
    sim: str
    seed: int
    progress: Progress


class Model(ABC):
    """A source that was compiled for a machine."""

    machine: Machine

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is called in results."""

    @property
    @abstractmethod
    def inputs(self) -> dict[str, Typed]:
        """Shape and NumPy type of everything that a run takes, by name."""

    @property
    @abstractmethod
    def outputs(self) -> dict[str, Typed]:
        """Shape and NumPy type of everything that a run gives, by name."""

    def predict(
        self,
        inputs: Any = None,
        *,
        seed: int = 0,
        stall: int | None = None,
        bandwidth: Mapping[str, int] | None = None,
        latency: Mapping[str, int] | None = None,
    ) -> Prediction:
        """Cycles by the cycle model alone, with arguments as for `run`.

        Inputs matter only where a program's addresses depend on them; of a tile program parameters do.
        """
        whole_number("seed", seed, 0)
        settings = memories(self.machine.config, latency, bandwidth, stall)
        return self._predicted(self._named(inputs), settings, seed)

    def run(
        self,
        inputs: Any = None,
        *,
        on: str = "verilator",
        seed: int = 0,
        stall: int | None = None,
        bandwidth: Mapping[str, int] | None = None,
        latency: Mapping[str, int] | None = None,
        waves: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Run:
        """Run on the RTL and compare results, cycles, warps and configurations.

        `inputs` is one array, a tuple in the order of `self.inputs`, or a dictionary; without them they are
        random, drawn from `seed`. `on` is a simulator (`verilator`, `cpp`, `amaranth`) or the address of a
        board (`uart:PORT@BAUD`, `mmio:...`), on which only results are compared. `bandwidth` (bytes per
        cycle) and `latency` (cycles) are by port, `stall` is the seed of a pattern of stalls. `waves` is a
        file for waves, .vcd or .fst. A difference never raises, it is in the result; `InputError` is raised
        for inputs that do not fit and tools that are missing.
        """
        whole_number("seed", seed, 0)
        given = self._named(inputs)
        settings = memories(self.machine.config, latency, bandwidth, stall)
        with shown(progress) as say:
            if on not in BACKENDS:
                return self._on_device(given, str(on), seed, say)
            name = str(waves) if waves is not None else None

            def build() -> Simulator:
                return simulator(self.machine.config, on, name)

            run = self._simulated(_Simulation(given, settings, build, on, seed, say))
        return replace(run, waves=Path(waves) if waves is not None else None)

    @abstractmethod
    def save(self, directory: str | Path) -> None:
        """Write the directory that `heald compile -o` writes; `load` reads it. Raises `InputError`."""

    @abstractmethod
    def _predicted(
        self, inputs: dict[str, np.ndarray] | None, settings: MemorySettings, seed: int
    ) -> Prediction: ...

    @abstractmethod
    def _simulated(self, asked: _Simulation) -> Run: ...

    def _on_device(
        self, inputs: dict[str, np.ndarray] | None, address: str, seed: int, progress: Progress
    ) -> Run:
        raise InputError(f"on must be one of {', '.join(BACKENDS)}, not {address!r}")

    def _named(self, inputs: Any) -> dict[str, np.ndarray] | None:
        """Inputs by name, in the types of the model where that loses nothing."""
        if inputs is None:
            return None
        if not isinstance(inputs, Mapping):
            given = inputs if isinstance(inputs, tuple) else (inputs,)
            names = list(self.inputs)
            if len(given) != len(names):
                raise InputError(f"inputs must be {len(names)} arrays ({', '.join(names)}), not {len(given)}")
            inputs = dict(zip(names, given, strict=True))
        return {name: _typed(name, value, self.inputs.get(name)) for name, value in inputs.items()}


def _typed(name: str, value: Any, wanted: Typed | None) -> np.ndarray:
    """An array; Python numbers and lists take the type that is wanted where their values fit it."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"input {name!r} must be an array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"input {name!r} must hold numbers, not {array.dtype}")
    if wanted is None or array.dtype == wanted[1] or isinstance(value, np.ndarray | np.generic):
        return array
    made = array.astype(wanted[1])
    if not np.array_equal(made, array):
        raise InputError(f"input {name!r} must be {wanted[1]}; its values do not fit")
    return made


@dataclass(frozen=True)
class GraphModel(Model):
    """A graph of operators as programs of the machine and steps of the host."""

    machine: Machine
    source: GraphSource
    compiled: CompiledModel

    @property
    def title(self) -> str:
        """That of the source."""
        return self.source.title

    @property
    def inputs(self) -> dict[str, Typed]:
        """Shape and NumPy type of the inputs."""
        return _types(self.compiled.network, self.compiled.network.inputs)

    @property
    def outputs(self) -> dict[str, Typed]:
        """Shape and NumPy type of the outputs."""
        return _types(self.compiled.network, self.compiled.network.outputs)

    def _predicted(
        self, inputs: dict[str, np.ndarray] | None, settings: MemorySettings, seed: int
    ) -> Prediction:
        given = draw_inputs(self.compiled.network, seed, inputs)
        return predict_model(self.compiled, given, settings)

    def save(self, directory: str | Path) -> None:
        """Programs, bitstreams, memory map and constants as files."""
        bundle.write(bundle.files(self.compiled, self.source), Path(directory))

    def _simulated(self, asked: _Simulation) -> Run:
        given = draw_inputs(self.compiled.network, asked.seed, asked.inputs)
        what = (self.compiled, given, asked.settings, asked.build)
        return run_model(*what, title=self.title, sim=asked.sim, progress=asked.progress)

    def _on_device(
        self, inputs: dict[str, np.ndarray] | None, address: str, seed: int, progress: Progress
    ) -> Run:
        if not address.startswith(("uart:", "mmio:")):
            return super()._on_device(inputs, address, seed, progress)
        given = draw_inputs(self.compiled.network, seed, inputs)
        return run_on_device(self.compiled, given, address, title=self.title, progress=progress)


def _types(network: Network, names: tuple[str, ...]) -> dict[str, Typed]:
    return {n: (network.tensors[n].shape, np.dtype(network.tensors[n].element)) for n in names}


@dataclass(frozen=True)
class ProgramModel(Model):
    """A tile program; it is bound to the values of its parameters when it runs."""

    machine: Machine
    program: Program

    @property
    def title(self) -> str:
        """The name of the program."""
        return self.program.name

    @property
    def inputs(self) -> dict[str, Typed]:
        """Parameters, which are numbers, and buffers in memory."""
        found: dict[str, Typed] = {p.name: ((), np.dtype(np.int32)) for p in self.program.parameters}
        return found | self.outputs

    @property
    def outputs(self) -> dict[str, Typed]:
        """Buffers in memory; a size that a parameter decides is its text."""
        return {
            b.name: (
                tuple(s.value if isinstance(s, Const) else str(s) for s in b.shape),
                np.dtype(b.element),
            )
            for b in self.program.buffers
            if b.space == "memory"
        }

    def _predicted(
        self, inputs: dict[str, np.ndarray] | None, settings: MemorySettings, seed: int
    ) -> Prediction:
        made = prepare(self.program, self.machine.config, settings, inputs, seed=seed)
        return Prediction(settings.behind(self.machine.config), (), (made.prediction,))

    def save(self, directory: str | Path) -> None:
        """The text of the program and the machine: it is compiled again when it is loaded."""
        bundle.write(bundle.program_files(self.program, self.machine.config), Path(directory))

    def _simulated(self, asked: _Simulation) -> Run:
        made = prepare(self.program, self.machine.config, asked.settings, asked.inputs, seed=asked.seed)
        return run_program(made, asked.build, sim=asked.sim, progress=asked.progress)


def compile(
    source: Any,
    machine: Any = "default",
    *,
    allow_host: bool = False,
    bandwidth: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Model:
    """Compile a source for a machine.

    `source` is a path (MODEL.onnx, PROGRAM.py), bytes, an `onnx.ModelProto`, a problem, a tile program, or a
    compiled model, whose source is compiled again. `allow_host` leaves operators that the machine cannot
    execute to the host. `bandwidth` is that of ports slower than their width, for which tiles are chosen.
    Raises `InputError` for what cannot be read, and for what the machine cannot do.
    """
    hardware = machine_of(machine)
    if isinstance(source, GraphModel | ProgramModel):
        source = source.source if isinstance(source, GraphModel) else source.program
    found = read_source(source, allow_host=allow_host)
    if isinstance(found, Program):
        return ProgramModel(hardware, found)
    with shown(progress) as say:
        made = compile_model(found.network(), hardware.config, progress=say, bandwidth=bandwidth)
    return GraphModel(hardware, found, made)


def load(directory: str | Path) -> Model:
    """A model that `Model.save` or `heald compile` wrote; raises `InputError` for files that changed."""
    path = Path(directory)
    config = bundle.machine(path)
    program = bundle.program(path)
    if program is not None:
        return ProgramModel(Machine(config), program)
    compiled, source = bundle.load(path)
    return GraphModel(Machine(config), source, compiled)
