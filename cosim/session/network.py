"""Compiles models, predicts them, and prepares them to run on the RTL and be checked.

A model is a sequence of steps: programs of the machine, and operators of the host. Each step gets the actual
results of the steps before it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosim.advice import Advice, Predictor, advise
from cosim.job import Job, Outcome, Region, Window
from cosim.models.cycle import predict
from cosim.session.driver import Prepared
from cosim.session.machine_program import MachineProgram, machine_program
from cosim.session.operators import ModelProgramPrediction, Prediction, ProgramRun
from cosim.session.warps import verdict_on
from cosim.settings import MemorySettings
from hw.assembly import listing
from hw.config import MachineConfig
from hw.errors import InputError
from sw.check import Verdict
from sw.compile.memory import Kind
from sw.compile.stages import Compiled
from sw.compiler import Observer, compile_network
from sw.graph import reference
from sw.graph.host import HostOperator
from sw.graph.network import Network

Arrays = Mapping[str, np.ndarray]
Step = HostOperator | MachineProgram


@dataclass(frozen=True)
class CompiledModel:
    """A model as steps; `verdicts` are the checker's on its programs, `seconds` the time of each pass."""

    network: Network
    config: MachineConfig
    steps: tuple[Step, ...]
    verdicts: tuple[Verdict, ...]
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def programs(self) -> tuple[MachineProgram, ...]:
        """Its programs of the machine."""
        return tuple(s for s in self.steps if isinstance(s, MachineProgram))

    @property
    def failures(self) -> list[str]:
        """Warps that the checker rejects, and bitstreams that do not decode to their loops."""
        rejected = [f"the checker does not accept the warps: {v.reason}" for v in self.verdicts if not v.ok]
        kernels = [k.name for p in self.programs for k in p.kernels if not k.verified]
        return rejected + [f"bitstream {name} does not decode to its loop" for name in kernels]


def compile_model(
    network: Network,
    config: MachineConfig,
    after: Observer | None = None,
    progress: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> CompiledModel:
    """Compile a network and check its warps; raises `InputError` for what the machine cannot do.

    `after` and `options` are passed to `sw.compiler.compile_network`.
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
    """Steps with the checker's verdicts on their programs."""
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
    """The job that runs a program on tensors; tensors that it writes start as earlier steps left them."""
    given = [
        (h.address, h.image(arrays[n]))
        for n, h in program.homes.items()
        if h.kind is Kind.INPUT or (h.kind is Kind.OUTPUT and n in arrays)
    ]
    return Job(
        programs=dict(program.programs),
        settings=settings,
        windows=tuple(Window(*w) for w in program.windows),
        memory=(*program.constants, *given),
        outputs=tuple(Region(h.address, h.size) for h in program.kept().values()),
        name=name,
    )


def _execute(operator: HostOperator, network: Network, arrays: dict[str, np.ndarray]) -> None:
    """Execute an operator on the host, on a copy of the tensor that it writes."""
    result = reference.result_of(operator, network, arrays)
    tensor = network.tensors[operator.output.tensor]
    array = arrays.get(tensor.name, np.zeros(tensor.shape, tensor.element)).copy()
    operator.output.write(array, result)
    arrays[tensor.name] = array


def predict_model(
    model: CompiledModel, inputs: Arrays, settings: MemorySettings, tensors: Arrays | None = None
) -> Prediction:
    """Predict the cycles of a compiled model, with the cycle model alone.

    `tensors` are all values that the network computes from the inputs; computed here if not given.
    """
    if tensors is None:
        tensors = reference.run(model.network, inputs, everything=True)
    made = []
    for program, verdict in zip(model.programs, model.verdicts, strict=True):
        needed = {name for name, home in program.homes.items() if home.tensor.constant is None}
        if not needed <= tensors.keys() and program.compiled is not None:
            # Includes tensors that the compiler added.
            tensors = reference.run(program.compiled.network, inputs, everything=True)
        job = job_of(program, tensors, settings, model.network.name or "model")
        predicted = predict(model.config, job, values=False)
        made.append(ModelProgramPrediction.of(program, job, predicted, verdict))
    return Prediction(settings.behind(model.config), settings, model.steps, tuple(made))


def predictor(network: Network, inputs: Arrays, tensors: Arrays) -> Predictor:
    """A function for `advise` that compiles a network for another machine and predicts its cycles."""

    def cycles(config: MachineConfig, settings: MemorySettings) -> int:
        model = compile_model(network, config, bandwidth=settings.bandwidth)
        found = predict_model(model, inputs, settings, tensors)
        wrong = [*model.failures, *(p.predicted.error for p in found.programs if p.predicted.error)]
        if wrong:
            raise InputError(f"the program for this machine failed a check: {wrong[0]}")
        return found.cycles

    return cycles


def advice_on(network: Network, config: MachineConfig, progress: Callable[[str], None]) -> Advice | None:
    """What bounds a network on a machine and what would help most, all by prediction.

    None if the host executes everything.
    """
    inputs, settings = draw_inputs(network, 0), MemorySettings.of(config)
    tensors = reference.run(network, inputs, everything=True)
    made = predict_model(compile_model(network, config, progress=progress), inputs, settings, tensors)
    causes: Counter[str] = Counter()
    for program in made.programs:
        causes.update(program.causes)
    again = predictor(network, inputs, tensors)
    return advise(made.cycles, causes, config, settings, again, progress) if made.cycles else None


@dataclass(frozen=True, kw_only=True)
class PreparedStep(Prepared[ProgramRun]):
    """A program of a model with its job, and the tensors that it must produce."""

    prediction: ModelProgramPrediction
    expected: Arrays

    def judged(self, outcomes: Sequence[Outcome]) -> ProgramRun:
        """The result, compared with the prediction, and tensor by tensor with the reference."""
        return ProgramRun.after(self.prediction, outcomes[0], self.expected)


class Execution:
    """A run of a compiled model, in which each step gets the actual results of the steps before it.

    `arrays` are the tensors so far, `expected` the reference's; `seconds` has the time of each pass and of
    the reference. Raises `InputError` for inputs that are missing, unknown, or of another type or shape.
    """

    def __init__(self, model: CompiledModel, inputs: Arrays, settings: MemorySettings):
        reference.check_inputs(model.network, inputs)
        self.model, self.settings = model, settings
        constants = {n: t.constant for n, t in model.network.tensors.items() if t.constant is not None}
        self.arrays: dict[str, np.ndarray] = constants | dict(inputs)
        begin = time.perf_counter()
        self.expected = reference.run(model.network, inputs, everything=True)
        self.seconds = {**model.seconds, "reference": time.perf_counter() - begin}

    def programs(self, results: Sequence[ProgramRun]) -> Iterator[PreparedStep]:
        """Prepare the programs one after the other, for `cosim.session.driver.drive`."""
        model, network = self.model, self.model.network
        verdicts = iter(model.verdicts)
        for step in model.steps:
            if isinstance(step, HostOperator):
                _execute(step, network, self.arrays)
                continue
            name = (network.name or "model") + f", program {len(results)}" * (len(model.programs) > 1)
            job = job_of(step, self.arrays, self.settings, name)
            begin = time.perf_counter()
            predicted = predict(model.config, job)
            seconds = time.perf_counter() - begin
            made = ModelProgramPrediction.of(step, job, predicted, next(verdicts))
            yield PreparedStep(jobs=(job,), prediction=made, model_seconds=seconds, expected=self.expected)
            self.arrays |= results[-1].values


def draw_inputs(network: Network, seed: int, given: Arrays | None = None) -> dict[str, np.ndarray]:
    """The given inputs, completed by random ones; raises `InputError` for inputs that do not fit."""
    if given is None:
        return reference.random_inputs(network, np.random.default_rng(seed))
    reference.check_inputs(network, given)
    return dict(given)
