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

from cosim.job import Job, Outcome, Region, Simulator, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.assembly import listing
from hw.config import MachineConfig
from jacquard.checking import verdict_on
from jacquard.network_program import MachineProgram, machine_program
from jacquard.network_results import NetworkReport, ProgramRun, difference, equal
from jacquard.results import Result
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


@dataclass
class _Execution:
    """A model between two of its steps."""

    model: CompiledModel
    inputs: Arrays
    settings: MemorySettings
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    runs: list[ProgramRun] = field(default_factory=list)
    next: int = 0
    model_seconds: float = 0.0

    def __post_init__(self) -> None:
        network = self.model.network
        reference.check_inputs(network, self.inputs)
        self.arrays |= {n: t.constant for n, t in network.tensors.items() if t.constant is not None}
        self.arrays |= self.inputs
        begin = time.perf_counter()
        self.expected = reference.run(network, self.inputs, everything=True)
        self.reference_seconds = time.perf_counter() - begin

    def job(self) -> tuple[Job, Outcome] | None:
        """The next program's job and its prediction; None at the end. Executes what the host has to."""
        steps = self.model.steps
        while self.next < len(steps):
            step = steps[self.next]
            if isinstance(step, MachineProgram):
                job = job_of(step, self.arrays, self.settings, self._title())
                begin = time.perf_counter()
                predicted = predict(self.model.config, job)
                self.model_seconds += time.perf_counter() - begin
                return job, predicted
            self._host(step)
            self.next += 1
        return None

    def _title(self) -> str:
        name = self.model.network.name or "model"
        return name if len(self.model.programs) == 1 else f"{name}, program {len(self.runs)}"

    def _host(self, operator: HostOperator) -> None:
        network = self.model.network
        result = operator.reference([v.of(self.arrays[v.tensor]) for v in operator.inputs])
        tensor = network.tensors[operator.output.tensor]
        array = self.arrays.get(tensor.name)
        array = np.zeros(tensor.shape, tensor.element) if array is None else array.copy()
        operator.output.write(array, result)
        self.arrays[tensor.name] = array

    def done(self, job: Job, predicted: Outcome, observed: Outcome) -> None:
        """Take the next program's outcome, and compare it."""
        program = self.model.steps[self.next]
        assert isinstance(program, MachineProgram)
        homes = program.kept()
        tensors = {n: h.extract(d) for (n, h), d in zip(homes.items(), observed.outputs, strict=True)}
        self.arrays |= tensors
        same, wrong = self._compared(program, tensors)
        if observed.error is not None:
            e = observed.error
            at = program.operator_of.get((e.warp, e.pc))
            name = job.name if at is None else program.operators[at].name
            cause = f"the machine stopped: {e.cause.name.lower()}, warp {e.warp}, pc {e.pc}"
            wrong = (name, cause)
        verdict = self.model.verdicts[len(self.runs)]
        self.runs.append(ProgramRun.of(program, job, predicted, observed, verdict, tensors, same, wrong))
        self.next += 1

    def _compared(
        self, program: MachineProgram, tensors: Arrays
    ) -> tuple[dict[int, bool], tuple[str, str] | None]:
        """Whether results that memory still holds are the reference's, by operator; the first wrong one."""
        same: dict[int, bool] = {}
        wrong: tuple[str, str] | None = None
        for number, operator in enumerate(program.operators):
            name = operator.output.tensor
            # Copies that the compiler added have no counterpart in the network.
            if name not in tensors or name not in self.expected:
                continue
            found, wanted = (operator.output.of(x) for x in (tensors[name], self.expected[name]))
            same[number] = equal(found, wanted)
            if not same[number] and wrong is None:
                unknown = number + 1 - len(same)
                lost = f" (of {unknown} operators before it nothing was left to compare)" if unknown else ""
                wrong = operator.name, difference(found, wanted) + lost
        return same, wrong

    def report(self, build_seconds: float, sim: str) -> NetworkReport:
        """What became of the model."""
        network = self.model.network
        numbers = iter(range(len(self.runs)))
        steps = [next(numbers) if isinstance(s, MachineProgram) else s for s in self.model.steps]
        results: list[Result] = list(self.runs)
        return NetworkReport(
            self.settings.behind(self.model.config),
            results,
            build_seconds=build_seconds,
            sim_seconds=sum(r.observed.seconds for r in self.runs),
            model_seconds=self.model_seconds,
            compile_seconds=sum(self.model.seconds.values()),
            sim=sim,
            reference="NumPy" if all(stores_sums(o) for o in network.operators) else "the reference",
            network=network,
            steps=steps,
            found={name: self.arrays[name] for name in network.outputs},
            wanted={name: self.expected[name] for name in network.outputs},
            seconds={**self.model.seconds, "reference": self.reference_seconds},
        )


def run_model(
    model: CompiledModel,
    inputs: Arrays,
    settings: MemorySettings,
    simulator: Callable[[], Simulator],
    *,
    sim: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> NetworkReport:
    """Run a compiled model and compare everything.

    `simulator` is called when the first program is predicted, and not at all where there is none. Every
    program is a simulation of its own: the padding of tiles is computed from what buffers held before, which
    the cycle model takes to be 0. Raises `InputError` for inputs that are missing, unknown or of another type
    or shape.
    """
    run = _Execution(model, inputs, settings)
    machine: Simulator | None = None
    while (found := run.job()) is not None:
        job, predicted = found
        progress(f"model: {job.name}: {predicted.cycles:,} cycles predicted in {run.model_seconds:.2f} s")
        if machine is None:
            name = model.config.name
            progress(f"simulator {sim}: building the machine {name!r}, or taking it from the cache")
            machine = simulator()
        ready = f"ready after {machine.build_seconds:.1f} s"
        progress(f"simulator {sim}: {ready}, running {predicted.cycles:,} cycles")
        (observed,) = machine.run([job])
        run.done(job, predicted, observed)
    return run.report(machine.build_seconds if machine is not None else 0.0, sim)


def run_network(
    network: Network,
    config: MachineConfig,
    settings: MemorySettings,
    simulator: Callable[[], Simulator],
    inputs: Arrays,
    *,
    sim: str = "",
    after: Observer | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> NetworkReport:
    """Compile a network, run it and compare everything; raises `InputError` for what cannot be compiled."""
    reference.check_inputs(network, inputs)
    model = compile_model(network, settings.behind(config), after)
    return run_model(model, inputs, settings, simulator, sim=sim, progress=progress)


def draw_inputs(network: Network, seed: int, given: Arrays | None = None) -> dict[str, np.ndarray]:
    """The inputs that are given, or random ones; raises `InputError` for those that do not fit."""
    if given is None:
        return reference.random_inputs(network, np.random.default_rng(seed))
    reference.check_inputs(network, given)
    return dict(given)
