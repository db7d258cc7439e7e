"""Runs models on model and RTL: compile, predict, simulate, compare with the reference, tensor by tensor.

A model is a sequence of steps: programs of the machine, and operators of the host. Each step gets what the
steps before it really made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosim.job import Job, Region, Simulator, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from heald.network_program import MachineProgram, machine_program
from heald.network_results import ModelProgramPrediction, ModelRecord, Prediction, ProgramRun
from heald.results import Result
from heald.warps import verdict_on
from hw.assembly import listing
from hw.config import MachineConfig
from sw.check import Verdict
from sw.compile.legal import stores_sums
from sw.compile.memory import Allocation, Kind
from sw.compile.stages import Compiled
from sw.compiler import Observer, compile_network
from sw.graph import reference
from sw.graph.host import HostOperator
from sw.graph.network import Network

Arrays = Mapping[str, np.ndarray]
Step = HostOperator | MachineProgram


@dataclass(frozen=True)
class CompiledModel:
    """A model as steps; `verdicts` are the checker's on its programs, `seconds` those of each pass."""

    network: Network
    config: MachineConfig
    steps: tuple[Step, ...]
    verdicts: tuple[Verdict, ...]
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def programs(self) -> tuple[MachineProgram, ...]:
        """Its programs of the machine."""
        return tuple(s for s in self.steps if isinstance(s, MachineProgram))


def compile_model(
    network: Network,
    config: MachineConfig,
    after: Observer | None = None,
    progress: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> CompiledModel:
    """Compile a network and check its warps; raises `InputError` for what the machine cannot do.

    `after` and `options` are those of `sw.compiler.compile_network`.
    """
    progress(f"compiling {_count(len(network.operators), 'operator')} for machine {config.name!r}")
    seconds: dict[str, float] = {}
    steps: list[Step] = []
    for step in compile_network(network, config, after=after, **options):
        if not isinstance(step, Compiled):
            steps.append(step)
            continue
        for name, value in step.seconds.items():
            seconds[name] = seconds.get(name, 0.0) + value
        steps.append(machine_program(step))
    made = checked_model(network, config, steps, seconds)
    programs = _count(len(made.programs), "program")
    progress(f"compiled: {programs} in {sum(made.seconds.values()):.1f} s")
    return made


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def checked_model(
    network: Network, config: MachineConfig, steps: Sequence[Step], seconds: Mapping[str, float]
) -> CompiledModel:
    """Steps with what the checker says of their programs."""
    begin = time.perf_counter()
    verdicts = tuple(
        verdict_on(s.source, {warp: listing(words) for warp, words in s.programs.items()}, config)
        for s in steps
        if isinstance(s, MachineProgram)
    )
    return CompiledModel(
        network, config, tuple(steps), verdicts, dict(seconds) | {"check": time.perf_counter() - begin}
    )


def job_of(program: MachineProgram, arrays: Arrays, settings: MemorySettings, name: str) -> Job:
    """The job that runs a program on tensors; what it writes starts as an earlier step left it."""
    given = [(h, arrays[n]) for n, h in program.homes.items() if _given(n, h, arrays)]
    return Job(
        programs=dict(program.programs),
        settings=settings,
        windows=tuple(Window(*w) for w in program.windows),
        memory=(*program.constants, *((h.address, h.image(a)) for h, a in given)),
        outputs=tuple(Region(h.address, h.size) for h in program.kept().values()),
        name=name,
    )


def _given(name: str, home: Allocation, arrays: Arrays) -> bool:
    """Whether memory holds a tensor at the start."""
    return home.kind is Kind.INPUT or (home.kind is Kind.OUTPUT and name in arrays)


def _execute(operator: HostOperator, network: Network, arrays: dict[str, np.ndarray]) -> None:
    """Do what the host has to, on a copy of the tensor that it writes."""
    result = operator.reference([v.of(arrays[v.tensor]) for v in operator.inputs])
    tensor = network.tensors[operator.output.tensor]
    array = arrays.get(tensor.name, np.zeros(tensor.shape, tensor.element)).copy()
    operator.output.write(array, result)
    arrays[tensor.name] = array


def predict_model(
    model: CompiledModel, inputs: Arrays, settings: MemorySettings, tensors: Arrays | None = None
) -> Prediction:
    """The cycles of a compiled model by the cycle model alone.

    `tensors` are those that the network computes from the inputs, computed here if not given.
    """
    if tensors is None:
        tensors = reference.run(model.network, inputs, everything=True)
    made = []
    for program, verdict in zip(model.programs, model.verdicts, strict=True):
        needed = {name for name, home in program.homes.items() if home.tensor.constant is None}
        if not needed <= tensors.keys() and program.compiled is not None:
            # Of tensors that the compiler added.
            tensors = reference.run(program.compiled.network, inputs, everything=True)
        job = job_of(program, tensors, settings, model.network.name or "model")
        predicted = predict(model.config, job, values=False)
        made.append(ModelProgramPrediction.of(program, job, predicted, verdict))
    return Prediction(settings.behind(model.config), model.steps, tuple(made))


def run_model(
    model: CompiledModel,
    inputs: Arrays,
    settings: MemorySettings,
    simulator: Callable[[], Simulator],
    *,
    sim: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> ModelRecord:
    """Run a compiled model and compare everything.

    `simulator` is called when the first program is predicted, and not at all where there is none. Every
    program is a simulation of its own: the padding of tiles is computed from what buffers held before, which
    the cycle model takes to be 0. Raises `InputError` for inputs that are missing, unknown or of another type
    or shape.
    """
    network = model.network
    reference.check_inputs(network, inputs)
    arrays = {n: t.constant for n, t in network.tensors.items() if t.constant is not None} | dict(inputs)
    begin = time.perf_counter()
    expected = reference.run(network, inputs, everything=True)
    seconds = {**model.seconds, "reference": time.perf_counter() - begin}
    runs: list[Result] = []
    model_seconds, machine = 0.0, None
    verdicts = iter(model.verdicts)
    for step in model.steps:
        if isinstance(step, HostOperator):
            _execute(step, network, arrays)
            continue
        title = (network.name or "model") + f", program {len(runs)}" * (len(model.programs) > 1)
        job = job_of(step, arrays, settings, title)
        begin = time.perf_counter()
        predicted = predict(model.config, job)
        model_seconds += time.perf_counter() - begin
        progress(f"model: {title}: {predicted.cycles:,} cycles predicted in {model_seconds:.2f} s")
        if machine is None:
            name = model.config.name
            progress(f"simulator {sim}: building the machine {name!r}, or taking it from the cache")
            machine = simulator()
        ready = f"ready after {machine.build_seconds:.1f} s"
        progress(f"simulator {sim}: {ready}, running {predicted.cycles:,} cycles")
        (observed,) = machine.run([job])
        made = ModelProgramPrediction.of(step, job, predicted, next(verdicts))
        runs.append(ProgramRun.after(made, observed, expected))
        arrays |= runs[-1].values
    return ModelRecord(
        settings.behind(model.config),
        runs,
        build_seconds=machine.build_seconds if machine is not None else 0.0,
        sim_seconds=sum(r.observed.seconds for r in runs),
        model_seconds=model_seconds,
        compile_seconds=sum(model.seconds.values()),
        sim=sim,
        reference="NumPy" if all(stores_sums(o) for o in network.operators) else "the reference",
        network=network,
        steps=model.steps,
        found={name: arrays[name] for name in network.outputs},
        wanted={name: expected[name] for name in network.outputs},
        seconds=seconds,
    )


def run_network(
    network: Network,
    config: MachineConfig,
    settings: MemorySettings,
    simulator: Callable[[], Simulator],
    inputs: Arrays,
    *,
    sim: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> ModelRecord:
    """Compile a network, run it and compare everything; raises `InputError` for what cannot be compiled."""
    reference.check_inputs(network, inputs)
    model = compile_model(network, settings.behind(config))
    return run_model(model, inputs, settings, simulator, sim=sim, progress=progress)


def draw_inputs(network: Network, seed: int, given: Arrays | None = None) -> dict[str, np.ndarray]:
    """The inputs that are given, or random ones; raises `InputError` for those that do not fit."""
    if given is None:
        return reference.random_inputs(network, np.random.default_rng(seed))
    reference.check_inputs(network, given)
    return dict(given)
