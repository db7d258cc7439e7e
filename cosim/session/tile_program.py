"""Prepares a tile program to run on cycle model and RTL, and compares it with its sequential meaning.

A separate program fills the scratchpad before, and another one writes it to memory after, so that all buffers
start with defined contents and all are compared at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.compare import compare
from cosim.job import Job, Outcome, Region, Window
from cosim.models.cycle import predict
from cosim.models.functional import Memories, execute
from cosim.session.driver import Prepared
from cosim.session.results import ProgramPrediction, Result
from cosim.session.warps import converted, verdict_on
from cosim.settings import MemorySettings
from hw.assembly import assemble, listing
from hw.config import ENGINES, PORTS, MachineConfig
from hw.errors import InputError
from sw.check import Verdict
from sw.compile.stages import MachineCode
from sw.compiler import Observer, compile_tile_program
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.split import warps, without_syncs
from sw.ir.walk import instructions
from sw.layout import PAGE, Placement
from sw.tile_programs import Bound, bind
from sw.tile_programs.stated import Launches

Arrays = Mapping[str, np.ndarray]
Synchronise = Callable[[Program, MachineConfig], Program]

#: Spaces whose contents are compared at the end.
LASTING = ("memory", "scratch", None)
#: Bytes per row in the programs that fill and dump the scratchpad.
_ROW = 64


@dataclass(frozen=True)
class CompiledProgram:
    """A program, bound and compiled: its words and assembly text by warp, and the checker's verdict."""

    bound: Bound
    code: MachineCode
    words: dict[int, list[int]]
    texts: dict[int, str]
    verdict: Verdict

    @property
    def program(self) -> Program:
        """The tile program with waits and signals."""
        return self.code.origin.program


@dataclass
class ProgramResult(Result):
    """The result of a tile program; `memory` is the memory that the RTL left.

    `values` are all buffers that it writes: those in memory, logs, and those in the scratchpad.
    """

    compiled: CompiledProgram
    memory: np.ndarray

    def elsewhere(self, config: MachineConfig, settings: MemorySettings) -> int:
        """Its cycles on another machine and with other memories, for `advise`."""
        return prepare(self.compiled.bound.source, config, settings).prediction.cycles

    def as_dict(self) -> dict[str, Any]:
        """An entry of `operators` in the JSON of a run, with assembly by warp and the checker's verdict."""
        return super().as_dict() | {
            "programs": {str(warp): text for warp, text in self.compiled.texts.items()}
        }


def synchronised(program: Program, config: MachineConfig) -> Program:
    """A program of several warps with `wait` and `signal`; loops are kept."""
    return converted(program, config).program


def compile_program(
    program: Program,
    config: MachineConfig,
    values: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    after: Observer | None = None,
    synchronise: Synchronise = synchronised,
) -> CompiledProgram:
    """Bind a program and generate the programs of its warps.

    `synchronise` adds `wait` and `signal` if there are several warps, unless the program has its own; the
    checker verifies the result. Raises `InputError` for what the machine cannot do or does not have.
    """
    bound = bind(program, config, values, seed=seed)
    if after is not None:
        after("bind", bound.program)

    def ordered(made: Program, config: MachineConfig) -> Program:
        by_hand = made != without_syncs(made)
        return made if by_hand or len(warps(made)) < 2 else synchronise(made, config)

    code = compile_tile_program(
        bound.program, config, after=after, synchronise=ordered, lasting=LASTING, uniform=False
    )
    # A program that does nothing still runs.
    words = code.programs or {0: assemble("halt\n")}
    texts = {w: listing(own) for w, own in words.items()}
    verdict = verdict_on(without_syncs(code.origin.source), texts, config)
    return CompiledProgram(bound, code, words, texts, verdict)


def split_inputs(program: Program, arrays: Arrays) -> tuple[dict[str, int], Arrays]:
    """Split inputs into parameter values and buffer contents; raises `InputError` for unknown names."""
    parameters = {p.name for p in program.parameters}
    buffers = {b.name for b in program.buffers if b.space == "memory"}
    values = {}
    for name, array in arrays.items():
        if name not in parameters | buffers:
            known = ", ".join((*sorted(parameters), *sorted(buffers))) or "none"
            raise InputError(f"{name} must be a parameter or a buffer in memory of the program ({known})")
        if name in parameters:
            if array.size != 1 or array.dtype.kind not in "iub":
                raise InputError(f"{name} must be a whole number, not {array.dtype} of {list(array.shape)}")
            values[name] = int(array.reshape(())) if array.ndim == 0 else int(array.reshape(-1)[0])
    return values, {name: array for name, array in arrays.items() if name in buffers}


def initial_memory(bound: Bound, arrays: Arrays, seed: int) -> np.ndarray:
    """Memory at the start: the given contents, or random numbers drawn from the seed."""
    rng = np.random.default_rng(seed)
    memory = np.zeros(bound.size, np.uint8)
    for name, place in bound.memory.items():
        drawn = _random(place, rng)
        array = bound.contents.get(name, arrays.get(name, drawn))
        memory[place.address : place.address + place.size] = place.image(array)
    return memory


def _random(place: Placement, rng: np.random.Generator) -> np.ndarray:
    limits = np.iinfo(place.dtype)
    return rng.integers(limits.min, limits.max + 1, place.shape).astype(place.dtype)


def expect(compiled: CompiledProgram, memory: np.ndarray, scratch: np.ndarray) -> Memories:
    """The memories after sequential execution; work is counted for the program that the machine executes.

    Raises `IRError` for what the machine would refuse.
    """
    bound = compiled.bound

    def left(program: Program) -> Memories:
        state = Memories(bound.config, memory.copy(), strict=True)
        state.scratch[:] = scratch
        state.known["scratch"][:] = True
        execute(program, state, stated=Launches(bound.places, bound.config).stated)
        return state

    state, source = left(bound.program), compiled.code.origin.source
    if source != bound.program:
        done = left(source)
        state.macs, state.moved = done.macs, done.moved
    return state


def jobs_of(
    compiled: CompiledProgram, memory: np.ndarray, scratch: np.ndarray, settings: MemorySettings
) -> list[Job]:
    """The job of a program; if it uses the scratchpad, between jobs that fill and dump it."""
    bound = compiled.bound
    job = Job(
        programs=compiled.words,
        settings=settings,
        windows=tuple(Window(*w) for w in bound.windows()),
        memory=((PAGE, memory[PAGE:]),),
        outputs=(Region(PAGE, len(memory) - PAGE),),
        name=bound.source.name,
    )
    if not any(i.name in ("load_c", "store_scratch") for i in instructions(compiled.program)):
        return [job]
    whole = (Window(PAGE, PAGE + len(scratch) - 1),)
    fill = Job({0: _copy(bound.config, "load_c")}, settings, whole, ((PAGE, scratch),), name="fill")
    dump = Job(
        {0: _copy(bound.config, "store_scratch")},
        settings,
        whole,
        outputs=(Region(PAGE, len(scratch)),),
        name="dump",
    )
    return [fill, job, dump]


def _copy(config: MachineConfig, name: str) -> list[int]:
    """The words of a program that moves the whole scratchpad."""
    operands = {
        "load_c": "target=0, outer={rows}, inner={row}, load_stride={row}, load_pitch={row}",
        "store_scratch": "source=0, rows={rows}, bytes={row}, store_stride={row}, store_pitch={row}",
    }[name].format(rows=config.derived.scratch.columns // _ROW, row=_ROW)
    text = f"@program\ndef copy():\n    {name}(memory={PAGE}, {operands}, warp=0)\n"
    return compile_tile_program(parse_program(text), config).programs[0]


@dataclass(frozen=True, kw_only=True)
class PreparedProgram(Prepared[ProgramResult]):
    """A tile program with its jobs, and memory before and after it."""

    compiled: CompiledProgram
    memory: np.ndarray
    expected: Memories
    compile_seconds: float

    def judged(self, outcomes: Sequence[Outcome]) -> ProgramResult:
        """The result, with memory and scratchpad compared with those of the sequential execution."""
        observed, made = outcomes[len(outcomes) // 2], self.prediction
        memory = np.concatenate([self.memory[:PAGE], observed.outputs[0]])
        scratch = outcomes[-1].outputs[0] if len(outcomes) > 1 else None
        correct = observed.error is None and np.array_equal(memory, self.expected.memory)
        correct = correct and (scratch is None or np.array_equal(scratch, self.expected.scratch))
        return ProgramResult(
            **made.given(),
            observed=observed,
            correct=correct,
            divergence=compare(made.config, made.job, made.predicted, observed),
            values=_values(self.compiled.bound, memory, scratch),
            compiled=self.compiled,
            memory=memory,
        )


def prepare(
    program: Program,
    config: MachineConfig,
    settings: MemorySettings,
    arrays: Arrays | None = None,
    *,
    seed: int = 0,
    after: Observer | None = None,
    synchronise: Synchronise = synchronised,
) -> PreparedProgram:
    """Compile a program, predict its cycles, and execute it sequentially for the expected results.

    `arrays` holds buffers in memory and parameters by name; buffers that are not given are random, drawn from
    the seed. Raises `InputError` for what the machine cannot do or does not have.
    """
    start = time.perf_counter()
    config = settings.behind(config)
    values, buffers = split_inputs(program, arrays or {})
    compiled = compile_program(program, config, values, seed=seed, after=after, synchronise=synchronise)
    memory = initial_memory(compiled.bound, buffers, seed)
    scratch = np.random.default_rng([seed, 1]).integers(0, 256, config.scratch_bytes).astype(np.uint8)
    expected = expect(compiled, memory, scratch)
    jobs = jobs_of(compiled, memory, scratch, settings)
    job = jobs[len(jobs) // 2]
    begin = time.perf_counter()
    predicted = predict(config, job)
    end = time.perf_counter()
    return PreparedProgram(
        jobs=jobs,
        prediction=_prediction(compiled, job, expected, predicted),
        model_seconds=end - begin,
        compiled=compiled,
        memory=memory,
        expected=expected,
        compile_seconds=begin - start,
    )


def _prediction(
    compiled: CompiledProgram, job: Job, expected: Memories, predicted: Outcome
) -> ProgramPrediction:
    config, rates, macs = compiled.bound.config, job.settings.bandwidth, expected.macs
    count = sum(predicted.counters.get(f"{engine.upper()}_OPERATIONS", 0) for engine in ENGINES)
    bounds = {"gemm": -(-macs // config.macs_per_cycle)}
    bounds |= {port: -(-expected.moved.get(port, 0) // rates[port]) for port in PORTS}
    return ProgramPrediction(
        name=compiled.program.name,
        op="program",
        shape=f"{count} operations",
        config=config,
        job=job,
        predicted=predicted,
        checked=compiled.verdict,
        macs=macs,
        bounds=bounds,
    )


def _values(bound: Bound, memory: np.ndarray, scratch: np.ndarray | None) -> Arrays:
    """Contents of the buffers that a program writes."""
    found = {
        n: p.extract(memory[p.address : p.address + p.size])
        for n, p in bound.memory.items()
        if n in bound.stored
    }
    if scratch is None:
        return found
    places = {n: p for n, p in bound.places.items() if p.space == "scratch" and n in bound.written}
    return found | {name: place.extract(scratch) for name, place in places.items()}
