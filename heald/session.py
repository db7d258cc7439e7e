"""Compile a source for a machine, predict its cycles, run it on the RTL, and compare.

A source is a model (a path, bytes or `onnx.ModelProto`), a problem of `heald.problems`, or a tile program.
`compile` turns any of them into a `Model`, which makes predictions and runs.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cosim import testbench
from cosim.backends import BACKENDS, simulator
from cosim.job import Simulator
from cosim.refine import refined_blockings
from cosim.session.network import CompiledModel, compile_model, draw_inputs, predict_model
from cosim.session.onnxruntime_comparison import check_model
from cosim.session.operators import Prediction
from cosim.session.program_files import read_json
from cosim.session.tile_program import prepare, split_inputs
from cosim.session.waves import recorded
from cosim.settings import MemorySettings
from cosim.waves import Waves
from heald import bundle, partition
from heald.comparison import Comparison, Side
from heald.files import atomic
from heald.hardware import Machine
from heald.hardware import machine as machine_of
from heald.model_run import ModelRun, run_model, run_on_device
from heald.progress import Progress, shown
from heald.run import Run, run_program
from heald.sources import GraphSource, OnnxSource, read_source
from hw.config import MachineConfig
from hw.errors import InputError, whole_number
from hw.html import table
from sw.compile.legal import stores_sums
from sw.compiler import Observer
from sw.frontend.bindings import Typed, as_typed
from sw.graph.network import Network
from sw.ir.expression import Const
from sw.ir.program import Program

Arrays = Mapping[str, np.ndarray]
Build = Callable[[], Simulator]
#: Prefixes of board addresses.
BOARDS = ("uart:", "mmio:")


def memories(
    config: MachineConfig,
    latency: Mapping[str, int] | None = None,
    bandwidth: Mapping[str, int] | None = None,
    stall: int | None = None,
    base: int = 0,
) -> MemorySettings:
    """Settings of the memory behind each port; raises `InputError` for unknown ports or bad values."""
    ports: dict[str, Any] = {}
    for name, given in (("latency", latency), ("bandwidth", bandwidth)):
        if given is not None and not isinstance(given, Mapping):
            raise InputError(f"{name} must be numbers by port, not {given!r}")
        ports[name] = {p: whole_number(f"{name} of {p}", number) for p, number in (given or {}).items()}
    seed = None if stall is None else whole_number("stall", stall)
    return MemorySettings.of(config, **ports, stall_seed=seed, base=whole_number("base", base))


@dataclass(frozen=True, repr=False)
class Model(ABC):
    """A source compiled for a machine. Results refer to it by its `title`.

    `inputs` and `outputs` map the name of each argument and result of a run to its shape and NumPy type.
    """

    machine: Machine
    title: str
    inputs: Mapping[str, Typed]
    outputs: Mapping[str, Typed]

    @abstractmethod
    def given(self, inputs: Any = None, seed: int = 0, *, exact: bool = False) -> dict[str, np.ndarray]:
        """Check inputs and return them by name, as a run takes them. Raises `InputError` if one does not fit.

        Without `inputs`, random ones are drawn from `seed`; those of a tile program are drawn when it runs.
        `exact` refuses arrays of other types, even if their values fit.
        """

    def predict(
        self,
        inputs: Any = None,
        *,
        seed: int = 0,
        stall: int | None = None,
        bandwidth: Mapping[str, int] | None = None,
        latency: Mapping[str, int] | None = None,
    ) -> Prediction:
        """Predict the cycles with the cycle model, without a simulation. Arguments are as for `run`.

        Inputs matter only if addresses depend on them, as they do on the parameters of a tile program.
        """
        whole_number("seed", seed, 0)
        settings = memories(self.machine.config, latency, bandwidth, stall)
        return self._predicted(self.given(inputs, seed), settings, seed)

    def run(
        self,
        inputs: Any = None,
        *,
        on: str = "verilator",
        seed: int = 0,
        stall: int | None = None,
        bandwidth: Mapping[str, int] | None = None,
        latency: Mapping[str, int] | None = None,
        base: int = 0,
        waves: str | Path | Waves | None = None,
        host_only: bool = False,
        progress: Progress | None = None,
    ) -> Run:
        """Run on the RTL and verify results, cycles, warps and bitstreams.

        `inputs` is one array, a tuple or list in the order of `self.inputs`, or a dictionary. By default they
        are random, drawn from `seed`. An array of another type is accepted if its values fit; floats are
        rounded. `on` is a simulator (`verilator`, `cpp`, `amaranth`) or the address of a board
        (`uart:PORT@BAUD`, `mmio:...`), on which only results are compared. `bandwidth` (bytes per cycle) and
        `latency` (cycles) map ports to numbers. `stall` is the seed of random memory stalls, and `base` the
        base address in memory. `waves` is a waveform file, .fst or .vcd, or a `Waves`, which also selects
        cycles and parts of the machine. It needs a model that is one program. With `host_only`, a model that
        runs entirely on the host counts as verified. A failed check does not raise; it is in the result.
        Raises `InputError` for inputs that do not fit and for missing tools.
        """
        whole_number("seed", seed, 0)
        arrays = self.given(inputs, seed)
        settings = memories(self.machine.config, latency, bandwidth, stall, base)
        asked = Waves.of(waves)
        with shown(progress) as say:
            if on in BACKENDS:

                def simulated(written: Waves | None) -> Run:
                    build = functools.partial(simulator, self.machine.config, on, written)
                    given = (arrays, settings, build, seed, asked is not None)
                    return self._simulated(*given, sim=on, progress=say)

                predict = functools.partial(self._predicted, arrays, settings, seed)
                run = recorded(asked, simulated, predict, atomic, say)
            else:
                run = self._on_device(arrays, str(on), say)
        return replace(run, host_only=host_only) if isinstance(run, ModelRun) else run

    def check_reference(self) -> None:
        """Raise `InputError` if runs cannot be compared with onnxruntime."""
        raise InputError(f"a comparison with onnxruntime needs an ONNX model, and {self.title} is not one")

    def __repr__(self) -> str:
        return f"<{self.title} for machine {self.machine.config.name}>"

    def _repr_html_(self) -> str:
        both = (("input", self.inputs), ("output", self.outputs))
        rows = [(w, n, d, " x ".join(map(str, s))) for w, a in both for n, (s, d) in a.items()]
        about = f"<p><b>{escape(self.title)}</b> for machine {escape(self.machine.config.name)}</p>"
        return about + table(("", "name", "type", "shape"), rows)

    @abstractmethod
    def save(self, directory: str | Path) -> dict[str, int]:
        """Write a compiled directory, like `heald compile -o`; `load` reads it back.

        Returns the size of each file in bytes, by path. Raises `InputError` if it cannot be written.
        """

    @abstractmethod
    def _predicted(self, inputs: Arrays, settings: MemorySettings, seed: int) -> Prediction: ...

    @abstractmethod
    def _simulated(
        self, inputs: Arrays, settings: MemorySettings, build: Build, seed: int, waves: bool, **options: Any
    ) -> Run: ...

    def _on_device(self, inputs: Arrays, address: str, progress: Progress) -> Run:
        raise InputError(f"on must be one of {', '.join(BACKENDS)}, not {address!r}")

    def _named(self, inputs: Any, exact: bool) -> dict[str, np.ndarray]:
        """Inputs by name; unless `exact`, converted to the model's types if no value changes."""
        if not isinstance(inputs, Mapping):
            names = list(self.inputs)
            several = isinstance(inputs, tuple) or (isinstance(inputs, list) and len(names) > 1)
            given = tuple(inputs) if several else (inputs,)
            if len(given) != len(names):
                raise InputError(f"inputs must be {len(names)} arrays ({', '.join(names)}), not {len(given)}")
            inputs = dict(zip(names, given, strict=True))
        types = {} if exact else self.inputs
        return {name: as_typed(name, value, types.get(name)) for name, value in inputs.items()}


@dataclass(frozen=True, repr=False)
class GraphModel(Model):
    """A compiled graph of operators: programs of the machine and steps of the host.

    `bound` holds the inputs that compilation turned into constants.
    """

    source: GraphSource
    compiled: CompiledModel
    bound: Arrays = field(default_factory=dict)

    @classmethod
    def of(
        cls, machine: Machine, title: str, source: GraphSource, compiled: CompiledModel, bound: Arrays
    ) -> GraphModel:
        """A model that was compiled."""
        network = compiled.network
        inputs, outputs = (
            {n: (network.tensors[n].shape, np.dtype(network.tensors[n].element)) for n in names}
            for names in (network.inputs, network.outputs)
        )
        return cls(machine, title, inputs, outputs, source, compiled, bound)

    def given(self, inputs: Any = None, seed: int = 0, *, exact: bool = False) -> dict[str, np.ndarray]:
        """The checked inputs; without any, random ones drawn from the seed."""
        if inputs is None:
            return draw_inputs(self.compiled.network, seed)
        named = self._named(inputs, exact)
        for name in named.keys() & self.bound.keys():
            if not np.array_equal(named.pop(name), self.bound[name]):
                raise InputError(
                    f"input {name!r} was compiled as another constant: compile again with this one"
                )
        return draw_inputs(self.compiled.network, seed, named)

    def as_dict(self) -> dict[str, Any]:
        """The compiled model, as `heald compile --json` prints it."""
        made = self.compiled
        return {
            "operators": [o.name for p in made.programs for o in p.operators],
            "programs": [{str(w): len(words) for w, words in p.programs.items()} for p in made.programs],
            "ii": [k.as_dict() for p in made.programs for k in p.kernels],
            "fixed_point": {n: a.as_dict() for n, a in made.network.accuracy.items()},
            "checked": [v.as_dict() for v in made.verdicts],
            "compile_seconds": dict(made.seconds),
            "hw": self.machine.config.hash,
        }

    def save(self, directory: str | Path, *, export: bool = False) -> dict[str, int]:
        """Write programs, bitstreams, memory map and constants; with `export`, also a test bench."""
        bench = testbench.files(self.compiled, self.given(None, 0)) if export else {}
        return bundle.write(bundle.files(self.compiled, self.source, bench), Path(directory))

    def check_reference(self) -> None:
        """Raise `InputError` if there is no ONNX model, or onnxruntime does not accept it."""
        if self._onnx is None:
            super().check_reference()
        else:
            check_model(self._onnx.proto)

    @property
    def _onnx(self) -> OnnxSource | None:
        """The ONNX model, or None for a problem."""
        return self.source if isinstance(self.source, OnnxSource) else None

    def _predicted(self, inputs: Arrays, settings: MemorySettings, seed: int) -> Prediction:
        return predict_model(self.compiled, inputs, settings)

    def _simulated(
        self, inputs: Arrays, settings: MemorySettings, build: Build, seed: int, waves: bool, **options: Any
    ) -> Run:
        count = len(self.compiled.programs)
        if waves and count != 1:
            raise InputError(f"waves must be of one program, this model has {count}")
        return run_model(
            self.compiled, inputs, settings, build, title=self.title, source=self._onnx, **options
        )

    def _on_device(self, inputs: Arrays, address: str, progress: Progress) -> Run:
        if not address.startswith(BOARDS):
            return super()._on_device(inputs, address, progress)
        options: dict[str, Any] = {"source": self._onnx, "progress": progress}
        return run_on_device(self.compiled, inputs, address, title=self.title, **options)


@dataclass(frozen=True, repr=False)
class ProgramModel(Model):
    """A tile program, compiled for the values of its parameters when it runs.

    Its inputs are its parameters, which are integers, and its buffers in memory. A size that depends on a
    parameter is given as its expression's text. `after` is called with the result of each compiler stage.
    """

    program: Program
    after: Observer | None = None

    @classmethod
    def of(
        cls, machine: Machine, title: str, program: Program, after: Observer | None = None
    ) -> ProgramModel:
        """A program for a machine."""
        parameters: dict[str, Typed] = {p.name: ((), np.dtype(np.int32)) for p in program.parameters}
        buffers: dict[str, Typed] = {
            b.name: (tuple(s.value if isinstance(s, Const) else str(s) for s in b.shape), np.dtype(b.element))
            for b in program.buffers
            if b.space == "memory"
        }
        return cls(machine, title, parameters | buffers, buffers, program, after)

    def given(self, inputs: Any = None, seed: int = 0, *, exact: bool = False) -> dict[str, np.ndarray]:
        """The given inputs, checked."""
        named = {} if inputs is None else self._named(inputs, exact)
        split_inputs(self.program, named)
        return named

    def save(self, directory: str | Path) -> dict[str, int]:
        """Write the program's text and the machine: it is compiled again when it is loaded."""
        return bundle.write(bundle.program_files(self.program, self.machine.config), Path(directory))

    def _predicted(self, inputs: Arrays, settings: MemorySettings, seed: int) -> Prediction:
        made = prepare(self.program, self.machine.config, settings, inputs, seed=seed)
        return Prediction(settings.behind(self.machine.config), settings, (), (made.prediction,))

    def _simulated(
        self, inputs: Arrays, settings: MemorySettings, build: Build, seed: int, waves: bool, **options: Any
    ) -> Run:
        config = self.machine.config
        made = prepare(self.program, config, settings, inputs, seed=seed, after=self.after)
        return run_program(made, build, title=self.title, **options)


def compile(
    source: Any,
    machine: Any = "default",
    *,
    allow_host: bool = False,
    dims: Mapping[str, int] | None = None,
    dynamic: bool = False,
    fixed_point: bool = False,
    bandwidth: Mapping[str, int] | None = None,
    latency: Mapping[str, int] | None = None,
    stall: int | None = None,
    refine: int = 0,
    inputs: Arrays | None = None,
    seed: int = 0,
    after: Observer | None = None,
    progress: Progress | None = None,
) -> Model:
    """Compile a source for a machine.

    `source` is a path (MODEL.onnx, PROGRAM.py), bytes, an `onnx.ModelProto`, a problem or a tile program. A
    compiled model is compiled again with its own `allow_host`, `dims`, `dynamic` and `fixed_point`.
    `allow_host` leaves operators that the machine cannot execute to the host. `dims` sets sizes that the
    model leaves open, by their name or as INPUT.AXIS. `dynamic` quantises activations at run time where only
    the weights are quantised. `fixed_point` uses fixed point, with a stated error bound, where no exact
    integer form exists. Tiles are chosen for `bandwidth`, `latency` and `stall`, as given to `run`. `refine`
    is the number of plans of each GEMM that the cycle model compares. `inputs` holds scales, zero points and
    shapes that are inputs of the model but must be known to the compiler; if empty, they are drawn from
    `seed`. `after` is called with the name and the result of each stage. Raises `InputError` if the source
    cannot be read or the machine cannot execute it.
    """
    hardware = machine_of(machine)
    settings = memories(hardware.config, latency, bandwidth, stall)
    if isinstance(source, GraphModel | ProgramModel):
        source = source.source if isinstance(source, GraphModel) else source.program
    found = read_source(source, allow_host=allow_host, dims=dims, dynamic=dynamic, fixed_point=fixed_point)
    if isinstance(found, Program):
        title = str(source) if isinstance(source, str | Path) else found.name
        return ProgramModel.of(hardware, title, found, after)
    found, network, bound = found.read(inputs, seed)
    whole_number("refine", refine, 0)
    with shown(progress) as say, found.named():
        config = settings.behind(hardware.config)

        def make(graph: Network) -> CompiledModel:
            options: dict[str, Any] = {"bandwidth": settings.bandwidth}
            if refine:
                if not any(map(stores_sums, graph.operators)):
                    raise InputError("refine goes with GEMMs whose sums are results, there is none")
                options["blockings"] = refined_blockings(graph, config, settings, refine)
            return compile_model(graph, config, after, say, **options)

        found, made = partition.compiled(found, network, make, config)
    return GraphModel.of(hardware, found.title, found, made, bound)


def load(directory: str | Path) -> Model:
    """Load a directory of `Model.save` or `heald compile`; raises `InputError` if its files have changed."""
    path = Path(directory)
    config, found = bundle.load(path)
    if isinstance(found, Program):
        return ProgramModel.of(Machine(config), str(path), found)
    compiled, source = found
    return GraphModel.of(Machine(config), str(path), source, compiled, {})


def compare(a: Any, b: Any, progress: Progress | None = None) -> Comparison:
    """Compare two runs or predictions.

    Each is a `Run`, a prediction, an output file of `heald run --json`, or a directory of `heald compile`,
    whose cycles are predicted. Raises `InputError` for anything else.
    """
    with shown(progress) as say:
        return Comparison(*(_side(given, say) for given in (a, b)))


def _side(given: Any, say: Progress) -> Side:
    """One side of a comparison."""
    if not isinstance(given, str | Path):
        return Side.of_run(given)
    path = Path(given)
    if not path.is_dir():
        return Side.of(read_json(path), str(path))
    say(f"{path}: the cycle model predicts it")
    return Side.of(load(path).predict().as_dict(), f"{path} (predicted)")
