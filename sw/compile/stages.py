"""The stages of the compiler, and what passes from each to the next.

A stage is a frozen dataclass: its fields are its options, its call takes one thing and gives another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from hw.assembly import encode
from hw.config import MachineConfig
from hw.errors import InputError
from sw.canonical.hoist import Strategy, optimise
from sw.canonical.passes import Canonicalize
from sw.codegen.generate import compiled, instructions
from sw.compile import legal
from sw.compile.array_tiles import Choices
from sw.compile.memory import Home, Kind, MemoryPlan
from sw.compile.program import Tiled, emit, tile
from sw.dependence.passes import DeadStore
from sw.graph.network import Network, Operator
from sw.ir.program import Instruction, Program, Region
from sw.ir.roles import WarpRole
from sw.ir.scope import retype
from sw.ir.split import share, warps
from sw.ir.walk import instructions as instructions_of
from sw.ir.walk import statements
from sw.layout import MEMORY_BYTES
from sw.operators.registry import LoweredOperator
from sw.tiling.blocking import Blocking
from sw.warps.convert import convert

#: Puts waits and signals into the sequential program of a machine.
Synchroniser = Callable[[Program, MachineConfig], Program]


@dataclass(frozen=True)
class Group:
    """Operators of a network that follow each other on the machine."""

    network: Network
    operators: tuple[Operator, ...]
    config: MachineConfig

    @property
    def halves(self) -> tuple[Group, Group]:
        """The operators in two groups."""
        middle = len(self.operators) // 2
        first, second = self.operators[:middle], self.operators[middle:]
        return replace(self, operators=first), replace(self, operators=second)


@dataclass(frozen=True)
class TileProgram:
    """A tile program of a group: `source` is the sequential one, `program` what became of it by now.

    `labels` holds the number of the operator of every instruction.
    """

    group: Group
    tiled: Tiled
    labels: Mapping[str, int]
    source: Program
    program: Program


@dataclass(frozen=True)
class WarpPrograms:
    """The tile programs of the warps, made from one with waits and signals."""

    origin: TileProgram
    programs: Mapping[int, Program]


@dataclass(frozen=True)
class Compiled:
    """Operators as one program of the machine.

    `source` is the sequential tile program, `synchronised` the one with waits and signals. `labels` holds for
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
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

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
class Legalise:
    """Copies where an operator cannot read or write a view as it lies."""

    name: ClassVar[str] = "legalise"

    def __call__(self, network: Network, config: MachineConfig) -> Network:
        """A network that the machine can execute."""
        return legal.legal(network, config)


@dataclass(frozen=True)
class Tile:
    """Tiles, addresses, and the loops of the CGRA.

    `blockings` are those of products whose sums are stored, by the tensor that these write; of others `skip`
    of the best ones are left out.
    `bandwidth` is that of ports that are slower than their width.
    """

    blockings: Mapping[str, Blocking] | None = None
    skip: int = 0
    bandwidth: Mapping[str, int] | None = None
    memory_bytes: int = MEMORY_BYTES

    name: ClassVar[str] = "tile"

    def __call__(self, group: Group) -> tuple[Group, Tiled]:
        """Operators with their tiles; raises `InputError` for what the machine cannot do or does not have."""
        allowed = Choices(self.blockings or {}, self.skip, tuple((self.bandwidth or {}).items()))
        return group, tile(group.network, group.operators, group.config, self.memory_bytes, allowed)


@dataclass(frozen=True)
class Emit:
    """One sequential tile program."""

    name: ClassVar[str] = "emit"

    def __call__(self, made: tuple[Group, Tiled]) -> TileProgram:
        """The statements of all operators; raises `InputError` for more warps than the machine has."""
        group, tiled = made
        program, labels = emit(tiled, group.config)
        program = retype(program)
        needed = max(warps(program), default=0) + 1
        if needed > group.config.warps:
            role = WarpRole(needed - 1).title
            raise InputError(f"warps must be at least {needed}, not {group.config.warps} ({role} is one)")
        return TileProgram(group, tiled, labels, program, program)


@dataclass(frozen=True)
class RemoveDeadStores:
    """Without instructions whose results nothing reads."""

    name: ClassVar[str] = "dead-store"

    def __call__(self, made: TileProgram) -> TileProgram:
        """The program without them."""
        program = retype(DeadStore()(made.program))
        left = {i.label for i in instructions_of(program)}
        labels = {label: number for label, number in made.labels.items() if label in left}
        return replace(made, labels=labels, source=program, program=program)


@dataclass(frozen=True)
class AssignWarps:
    """Waits and signals: those of `sw.warps`, or of another scheme."""

    synchronise: Synchroniser | None = None

    name: ClassVar[str] = "warps"

    def __call__(self, made: TileProgram) -> TileProgram:
        """The program of several warps; raises `InputError` where the machine has too few channels."""
        config = made.group.config
        if self.synchronise is not None:
            return replace(made, program=self.synchronise(made.program, config))
        return replace(made, program=convert(made.program, config, early=made.tiled.early).program)


@dataclass(frozen=True)
class Canonicalise:
    """Expressions in canonical form."""

    name: ClassVar[str] = "canonicalize"

    def __call__(self, made: TileProgram) -> TileProgram:
        """The program with all expressions in canonical form."""
        return replace(made, program=retype(Canonicalize()(made.program)))


@dataclass(frozen=True)
class Hoist:
    """One program per warp, with what its registers keep."""

    strategy: Strategy = Strategy.BUDGET

    name: ClassVar[str] = "hoist"

    def __call__(self, made: TileProgram) -> WarpPrograms:
        """The programs of the warps by number."""
        registers = made.group.config.registers
        program = made.program
        return WarpPrograms(
            made,
            {w: _hoisted(_alone(share(program, w)), registers, self.strategy) for w in warps(program)},
        )


@dataclass(frozen=True)
class Generate:
    """Instruction words."""

    name: ClassVar[str] = "generate"

    def __call__(self, made: WarpPrograms) -> Compiled:
        """The words of every warp, and the operator that each instruction belongs to.

        Raises `InputError` where registers, loops or instruction memory do not suffice.
        """
        origin, config = made.origin, made.origin.group.config
        words: dict[int, list[int]] = {}
        operator_of: dict[tuple[int, int], int] = {}
        for warp, program in made.programs.items():
            name = f"warp {WarpRole(warp).title}"
            code, allocation = compiled(program, config, name, uniform=True)
            words[warp] = [encode(c) for c in instructions(code, allocation, name)]
            for pc, operation in enumerate(code.operations):
                if operation.label in origin.labels:
                    operator_of[warp, pc] = origin.labels[operation.label]
        return Compiled(
            origin.group.network,
            origin.group.operators,
            config,
            origin.tiled.memory,
            origin.tiled.parts,
            origin.source,
            origin.program,
            words,
            origin.labels,
            operator_of,
        )


def _alone(own: Program) -> Program:
    """The program of one warp without buffers of others, which differ where its own are equal."""
    named: set[str] = set()
    for s in statements(own.body):
        if isinstance(s, Instruction):
            values = (*s.reads, *s.writes, *(value for _, value in s.operands))
            named |= {value.buffer for value in values if isinstance(value, Region)}
    return replace(own, buffers=tuple(b for b in own.buffers if b.name in named))


@functools.lru_cache(maxsize=1024)
def _hoisted(own: Program, registers: int, strategy: Strategy) -> Program:
    """What registers keep of one warp's program: machines that differ elsewhere have equal programs."""
    return retype(optimise(own, registers, strategy, uniform=True))
