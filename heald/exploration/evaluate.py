"""One point: its machine's resources, and the models compiled for it, by the exact cycle model."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cosim.backends import simulator
from cosim.energy import Table
from cosim.job import Simulator
from cosim.session.metrics import ModelMetrics, model_metrics
from cosim.session.network import CompiledModel, compile_model, draw_inputs, predict_model
from cosim.session.operators import Prediction
from cosim.settings import MemorySettings
from heald import partition
from heald.exploration.results import Confirmation, Point
from heald.model_run import run_model
from heald.sources import GraphSource
from hw.area.measure import area
from hw.config import MachineConfig
from hw.errors import InputError
from sw.graph import reference
from sw.graph.network import Network

Arrays = Mapping[str, np.ndarray]


class ToolError(Exception):
    """Resources cannot be determined, for a reason that has nothing to do with the point."""


class CheckError(Exception):
    """A check rejected a compiled program: an error in Heald, not in the point."""


@dataclass(frozen=True)
class Workload:
    """Everything that the evaluation of any point needs."""

    models: tuple[GraphSource, ...]
    family: str
    synthesis: bool
    table: Table
    plugins: tuple[Path, ...] = ()


@dataclass(frozen=True)
class LoadedModel:
    """A model that was read, with inputs and all tensors computed from them."""

    source: GraphSource
    name: str
    network: Network
    inputs: Arrays
    tensors: Arrays


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a point: metrics as in `results.Point`, and one entry per model."""

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

    Raises `InputError` if the machine or a model is refused, `ToolError` if resources cannot be determined,
    `SynthesisError`, and `CheckError`.
    """
    begin = time.perf_counter()
    try:
        taken = area(config, workload.family, measured=workload.synthesis)
    except InputError as error:
        raise ToolError(str(error)) from None
    found = tuple(model_metrics(model.name, predicted(model, config), workload.table) for model in models)
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


def predicted(model: LoadedModel, config: MachineConfig) -> Prediction:
    """Predict a model on a machine; raises `InputError` if it is refused, and `CheckError`."""
    compiled = _compiled(model, config)
    for failure in compiled.failures:
        raise CheckError(failure)
    tensors = model.tensors if compiled.network is model.network else None
    made = predict_model(compiled, model.inputs, MemorySettings.of(config), tensors)
    for program in made.programs:
        if program.predicted.error is not None:
            raise CheckError(f"{model.name}: the cycle model stops: {program.predicted.error}")
    return made


def confirm(
    point: Point,
    config: MachineConfig,
    models: Sequence[LoadedModel],
    sim: str,
    progress: Callable[[str], None],
) -> Confirmation:
    """Run all models of a point on the RTL and compare.

    A run that breaks off counts as failed. Raises `InputError` for tools that are missing or fail.
    """

    @functools.cache
    def built() -> Simulator:
        try:
            return simulator(config, sim)
        except RuntimeError as error:
            raise InputError(f"--confirm: the RTL of point {point.number} cannot be built: {error}") from None

    events = cycles = 0
    differences: list[str] = []
    for model, known in zip(models, point.models, strict=True):
        settings = MemorySettings.of(config)
        try:
            compiled = _compiled(model, config)
            report = run_model(compiled, model.inputs, settings, built, sim=sim, progress=progress)
        except RuntimeError as error:
            differences.append(f"{model.name}: the run broke off: {error}")
            continue
        events += report.events
        cycles += report.cycles
        # An explored model may leave everything to the host.
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
