"""One point: resources of its machine, and what the exact cycle model says of the models compiled for it."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import find_libpython
import numpy as np

from cosim import toolchain
from cosim.backends import simulator
from cosim.energy import Table, moved, spent
from cosim.session.network import CompiledModel, compile_model, draw_inputs, predict_model
from cosim.session.operators import ModelProgramPrediction, OperatorResult, Prediction
from cosim.settings import MemorySettings
from heald import partition
from heald.exploration.results import Confirmation, ModelMetrics, OperatorMetrics, Point
from heald.model_run import run_model
from heald.sources import GraphSource
from hw.config import PORTS, MachineConfig
from hw.errors import InputError
from sw.graph import reference
from sw.graph.network import Network

Arrays = Mapping[str, np.ndarray]


class ToolError(Exception):
    """Resources cannot be had: nothing that the point is to blame for."""


class CheckError(Exception):
    """A program that the compiler made is not accepted: an error of Heald, not of the point."""


@dataclass(frozen=True)
class Workload:
    """All that the evaluation of any point needs."""

    models: tuple[GraphSource, ...]
    family: str
    synthesis: bool
    table: Table


@dataclass(frozen=True)
class LoadedModel:
    """A model that was read, with inputs and all tensors that it computes from them."""

    source: GraphSource
    name: str
    network: Network
    inputs: Arrays
    tensors: Arrays


@dataclass(frozen=True)
class Evaluation:
    """What is known of a point: metrics as in `results.Point`, and one entry per model."""

    metrics: Mapping[str, float]
    models: tuple[ModelMetrics, ...]
    seconds: float


def load_model(source: GraphSource) -> LoadedModel:
    """Read a model; raises `InputError` that names it."""
    with source.named():
        network = source.network()
        inputs = draw_inputs(network, seed=0)
    return LoadedModel(source, source.title, network, inputs, reference.run(network, inputs, everything=True))


def evaluate(models: tuple[LoadedModel, ...], config: MachineConfig, workload: Workload) -> Evaluation:
    """Compile and predict all models on a machine.

    Raises `InputError` for what is refused, `ToolError` where resources cannot be had, `SynthesisError` and
    `CheckError`.
    """
    begin = time.perf_counter()
    try:
        taken = area(config, workload.family, measured=workload.synthesis)
    except InputError as error:
        raise ToolError(str(error)) from None
    found = tuple(_model(model, config, workload.table) for model in models)
    cycles = sum(m.cycles for m in found)
    macs = sum(m.macs for m in found)
    metrics: dict[str, float] = {
        "cycles": cycles,
        "bytes_moved": sum(sum(m.bytes_moved.values()) for m in found),
        "energy_pj": sum(sum(m.energy.values()) for m in found),
        "host_operators": sum(o.where == "host" for m in found for o in m.operators),
        "utilization": macs / (config.macs_per_cycle * max(1, cycles)),
        **taken,
    }
    if clock := taken.get("fmax_mhz"):
        metrics["seconds_per_inference"] = cycles / (clock * 1e6)
    return Evaluation(metrics, found, time.perf_counter() - begin)


def _compiled(model: LoadedModel, config: MachineConfig) -> CompiledModel:
    try:
        return partition.compiled(model.source, model.network, lambda graph: compile_model(graph, config))[1]
    except InputError as error:
        raise InputError(f"{model.name}: {error}").with_traceback(error.__traceback__) from error.__cause__


def _model(model: LoadedModel, config: MachineConfig, table: Table) -> ModelMetrics:
    compiled = _compiled(model, config)
    for failure in compiled.failures:
        raise CheckError(failure)
    tensors = model.tensors if compiled.network is model.network else None
    made = predict_model(compiled, model.inputs, MemorySettings.of(config), tensors)
    for program in made.programs:
        if program.predicted.error is not None:
            raise CheckError(f"{model.name}: the cycle model stops: {program.predicted.error}")
    return _metrics(model.name, made, table)


def _metrics(name: str, made: Prediction, table: Table) -> ModelMetrics:
    passed, energies = Counter(dict.fromkeys(PORTS, 0)), Counter[str]()
    instructions = 0
    for run in made.programs:
        assert isinstance(run, ModelProgramPrediction)
        passed.update(moved(made.config, run.predicted))
        energies.update(spent(table, run.program, run.predicted))
        instructions += sum(v for n, v in run.predicted.counters.items() if n.endswith("_INSTRUCTIONS"))
    operators = tuple(_operator(o) for o in made.operators if isinstance(o, OperatorResult))
    counts = (made.cycles, sum(o.macs for o in operators), instructions, len(made.programs))
    return ModelMetrics(name, *counts, dict(passed), dict(energies), operators)


def _operator(o: OperatorResult) -> OperatorMetrics:
    moved = dict(o.facts.moved) if o.facts is not None else {}
    return OperatorMetrics(o.name, o.op, o.where, o.start, o.end, o.cycles, o.macs, dict(o.bounds), moved)


if TYPE_CHECKING:
    from hw.synthesis import Resources

#: Resources by the names of the metrics.
RESOURCES = ("luts", "ffs", "brams", "dsps")


class SynthesisError(Exception):
    """Synthesis began and failed on a machine."""


def area(config: MachineConfig, family: str, *, measured: bool) -> dict[str, float]:
    """What a machine takes, by the names of the metrics; `fmax_mhz` where anything is known of the clock.

    Raises `InputError` for an unknown family, missing tools and a cache that cannot be written, and
    `SynthesisError` where the tools fail on the machine.

    Measured are the resources, by synthesis. The clock is estimated all the same: placing and routing a
    machine takes many minutes (`heald fpga` does it).
    """
    # Both take time to import, and synthesis needs tools that estimates do not.
    from hw.area import estimate
    from hw.area.model import is_fitted

    guess = estimate(config, family) if is_fitted(family) or not measured else None
    clock = {} if guess is None or guess.fmax_mhz is None else {"fmax_mhz": guess.fmax_mhz}
    found = _measured(config, family) if measured else guess
    return {name: getattr(found, name) for name in RESOURCES} | clock


def _measured(config: MachineConfig, family: str) -> Resources:
    from hw.emit import TOP, verilog
    from hw.synthesis.tools import ToolError
    from hw.synthesis.yosys import synthesise

    try:
        return synthesise(verilog(config, trace=False), TOP, family).resources
    except ToolError as error:
        if any(os.strerror(errno.ENOSPC) in line for line in error.lines):
            raise  # the cache is full
        raise SynthesisError(str(error)) from None


def has_clock(family: str) -> bool:
    """Whether the clock of machines is known of a family."""
    from hw.area.model import is_fitted, load

    return is_fitted(family) and bool(load(family).clock)


def check_tools(sim: str) -> None:
    """Raise `InputError` where the tools that run the RTL are missing, before work is done for it."""
    if sim == "amaranth":
        return
    toolchain.find()
    if sim == "verilator" and find_libpython.find_libpython() is None:
        raise InputError(
            f"--sim verilator needs Python as a shared library, which {sys.executable} does not have: "
            "--sim cpp does without"
        )


def confirm(
    point: Point,
    config: MachineConfig,
    models: Sequence[LoadedModel],
    sim: str,
    progress: Callable[[str], None],
) -> Confirmation:
    """Run all models of a point on the RTL and compare.

    A run that breaks off does not hold either. Raises `InputError` for tools that are missing, or fail.
    """
    try:
        built = simulator(config, sim)
    except RuntimeError as error:
        raise InputError(f"--confirm: the RTL of point {point.number} cannot be built: {error}") from None
    events = cycles = 0
    differences: list[str] = []
    for model, known in zip(models, point.models, strict=True):
        settings = MemorySettings.of(config)
        try:
            compiled = _compiled(model, config)
            report = run_model(compiled, model.inputs, settings, lambda: built, sim=sim, progress=progress)
        except RuntimeError as error:
            differences.append(f"{model.name}: the run broke off: {error}")
            continue
        events += report.events
        cycles += report.cycles
        # What was explored may leave everything to the host.
        found = replace(report, host_only=True).failure
        if not found and report.cycles != known.cycles:
            found = f"{report.cycles} cycles, not the {known.cycles} that were explored"
        if found:
            differences.append(f"{model.name}: {found}")
    return Confirmation(point.number, not differences, events, cycles, "; ".join(differences) or None)


def chosen(ranks: Sequence[Sequence[Point]], count: int) -> list[Point]:
    """The best points: those of the front, evenly spread if there are too many, then the next ranks."""
    found: list[Point] = []
    for rank in ranks:
        left = count - len(found)
        if len(rank) > left:
            last = len(rank) - 1
            picked = [round(i * last / max(1, left - 1)) for i in range(left)]
            return found + [rank[i] for i in picked]
        found += rank
    return found
