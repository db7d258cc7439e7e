"""The compiler of models, one function per stage (docs/compile.md).

network -> memory, tiles, configurations -> sequential tile program -> warps -> canonical form -> code
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from hw.assembly import encode
from hw.config import MachineConfig
from hw.errors import InputError
from sw.canonical.hoist import Strategy, optimise
from sw.canonical.passes import Canonicalize
from sw.codegen.generate import ProgramTooLongError, compiled, instructions
from sw.compile import program
from sw.compile.legal import legal
from sw.compile.memory import Home, Kind, MemoryPlan
from sw.compile.products import check_machine
from sw.graph.host import HostOperator
from sw.graph.network import Network, Operator
from sw.ir.program import Instruction, Program, Region
from sw.ir.roles import WarpRole
from sw.ir.scope import retype
from sw.ir.walk import statements
from sw.layout import MEMORY_BYTES
from sw.lowering import Observer
from sw.operators.registry import LoweredOperator
from sw.tiled.split import share, warps
from sw.warps.convert import convert


@dataclass(frozen=True)
class Compiled:
    """A run of operators as one program of the machine.

    `source` is the sequential tile program, `synchronised` the one with waits and signals. `labels` tells for
    every label of it the number of its operator, `operator_of` for every warp and instruction. `seconds` are
    those of the stages.
    """

    network: Network
    operators: tuple[Operator, ...]
    config: MachineConfig
    memory: MemoryPlan
    parts: tuple[LoweredOperator, ...]
    source: Program
    synchronised: Program
    programs: dict[int, list[int]]
    labels: Mapping[str, int]
    operator_of: Mapping[tuple[int, int], int]
    seconds: Mapping[str, float] = field(compare=False)

    @property
    def constants(self) -> tuple[tuple[int, np.ndarray], ...]:
        """Address and bytes of all constants."""
        homes = self.memory.homes.values()
        return tuple((h.address, h.image(h.tensor.constant)) for h in homes if h.tensor.constant is not None)

    @property
    def inputs(self) -> dict[str, Home]:
        """The tensors that must be given."""
        return {n: h for n, h in self.memory.homes.items() if h.kind is Kind.INPUT}

    @property
    def outputs(self) -> dict[str, Home]:
        """The tensors that stay to the end."""
        return {n: h for n, h in self.memory.homes.items() if h.kind is Kind.OUTPUT}


@dataclass(frozen=True)
class HostStage:
    """An operator of the host."""

    operator: HostOperator


@dataclass(frozen=True)
class MachineStage:
    """A program of the machine."""

    compiled: Compiled


Stage = HostStage | MachineStage


def compile_network(
    network: Network,
    config: MachineConfig,
    *,
    after: Observer = lambda step, made: None,
    memory_bytes: int = MEMORY_BYTES,
) -> tuple[Stage, ...]:
    """The stages of a network: programs of the machine, and operators of the host between them.

    `after` sees the tile program after every step. Raises `InputError` for what the machine cannot do or does
    not have, with the operator.
    """
    check_machine(config)
    network = legal(network, config)
    stages: list[Stage] = []
    for run in runs(network):
        if isinstance(run[0], HostOperator):
            stages += [HostStage(o) for o in run if isinstance(o, HostOperator)]
        else:
            stages += [MachineStage(c) for c in _programs(network, run, config, after, memory_bytes)]
    return tuple(stages)


def runs(network: Network) -> Iterator[tuple[Operator, ...]]:
    """Operators that follow each other on the same side, host or machine."""
    run: list[Operator] = []
    for operator in network.operators:
        if run and isinstance(operator, HostOperator) != isinstance(run[-1], HostOperator):
            yield tuple(run)
            run = []
        run.append(operator)
    if run:
        yield tuple(run)


def _programs(
    network: Network, run: Sequence[Operator], config: MachineConfig, after: Observer, memory_bytes: int
) -> list[Compiled]:
    """One program, or several where the instruction memory does not hold one."""
    try:
        return [compile_run(network, run, config, after, memory_bytes)]
    except ProgramTooLongError as error:
        if len(run) == 1:
            raise InputError(f"{run[0].name}: {error}") from None
    middle = len(run) // 2
    first = _programs(network, run[:middle], config, after, memory_bytes)
    return first + _programs(network, run[middle:], config, after, memory_bytes)


def compile_run(
    network: Network,
    operators: Sequence[Operator],
    config: MachineConfig,
    after: Observer,
    memory_bytes: int = MEMORY_BYTES,
) -> Compiled:
    """All stages for operators of the machine that follow each other."""
    clock = _Clock()
    with clock("tile and configure"):
        emitted = program.emit(network, operators, config, memory_bytes)
        source = retype(emitted.program)
    after("emit", source)
    with clock("convert to warps"):
        # Every operator must be seen, not only the first instances of the program.
        synchronised = convert(source, config, limit=None).program
    after("convert to warps", synchronised)
    with clock("canonicalize"):
        canonical = retype(Canonicalize()(synchronised))
    after("canonicalize", canonical)
    with clock("generate"):
        words, operator_of = code(canonical, config, emitted.labels, after)
    return Compiled(
        network,
        tuple(operators),
        config,
        emitted.memory,
        emitted.parts,
        source,
        synchronised,
        words,
        emitted.labels,
        operator_of,
        clock.seconds,
    )


def code(
    made: Program, config: MachineConfig, labels: Mapping[str, int], after: Observer
) -> tuple[dict[int, list[int]], dict[tuple[int, int], int]]:
    """The words of every warp, and the operator that each instruction belongs to.

    Raises `ProgramTooLongError` where the instruction memory does not hold one of them.
    """
    words: dict[int, list[int]] = {}
    operator_of: dict[tuple[int, int], int] = {}
    for warp in warps(made):
        own = _optimised(_alone(share(made, warp)), config.registers)
        after(f"optimise warp {WarpRole(warp).title}", own)
        name = f"warp {WarpRole(warp).title}"
        made_code, allocation = compiled(own, config, name, uniform=True)
        words[warp] = [encode(c) for c in instructions(made_code, allocation, name)]
        for pc, operation in enumerate(made_code.operations):
            if operation.label in labels:
                operator_of[warp, pc] = labels[operation.label]
    return words, operator_of


def _alone(own: Program) -> Program:
    """The program of one warp without buffers of others, which differ where its own are equal."""
    named: set[str] = set()
    for s in statements(own.body):
        if isinstance(s, Instruction):
            values = (*s.reads, *s.writes, *(value for _, value in s.operands))
            named |= {value.buffer for value in values if isinstance(value, Region)}
    return replace(own, buffers=tuple(b for b in own.buffers if b.name in named))


@functools.lru_cache(maxsize=1024)
def _optimised(own: Program, registers: int) -> Program:
    """What registers keep of one warp's program: machines that differ elsewhere have equal programs."""
    return retype(optimise(own, registers, Strategy.BUDGET, uniform=True))


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
