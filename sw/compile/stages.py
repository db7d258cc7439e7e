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
from sw.compile.memory import Allocation, Kind, MemoryPlan
from sw.compile.program import Group, Part, Tiled, emit, tile
from sw.compile.repeat import Repeated, stacked
from sw.dependence.passes import LASTING, DeadStore
from sw.graph.network import Network, Operator
from sw.ir.program import Program
from sw.ir.roles import WarpRole
from sw.ir.scope import retype
from sw.ir.split import share, warps, with_used_buffers
from sw.ir.walk import instructions as instructions_of
from sw.layout import MEMORY
from sw.warps.convert import convert

#: Puts waits and signals into the sequential program of a machine.
Synchroniser = Callable[[Program, MachineConfig], Program]


@dataclass(frozen=True)
class TileProgram:
    """A tile program: `source` is the sequential one, `program` what became of it by now.

    Of operators, `tiled` holds their tiles and `labels` the number of the operator of every instruction.
    """

    config: MachineConfig
    source: Program
    program: Program
    tiled: Tiled | None = None
    labels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WarpPrograms:
    """The tile programs of the warps, made from one with waits and signals."""

    origin: TileProgram
    programs: Mapping[int, Program]


@dataclass(frozen=True)
class MachineCode:
    """Instruction words of the warps, and the operator of every instruction by warp and place."""

    origin: TileProgram
    programs: dict[int, list[int]]
    operator_of: Mapping[tuple[int, int], int]


@dataclass(frozen=True)
class Compiled:
    """Operators as one program of the machine.

    `source` is the sequential tile program, `synchronised` the one with waits and signals. `labels` holds for
    every label of it the number of its operator, `operator_of` for every warp and instruction. `seconds` are
    those of the stages.
    """

    network: Network
    operators: tuple[Operator | Repeated, ...]
    config: MachineConfig
    memory: MemoryPlan
    parts: tuple[Part, ...]
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
    def inputs(self) -> dict[str, Allocation]:
        """The tensors that must be given."""
        return {n: h for n, h in self.memory.homes.items() if h.kind is Kind.INPUT}

    @property
    def outputs(self) -> dict[str, Allocation]:
        """The tensors that stay to the end."""
        return {n: h for n, h in self.memory.homes.items() if h.kind is Kind.OUTPUT}


@dataclass(frozen=True)
class Legalise:
    """Copies where an operator cannot read or write a view as it lies; steps that repeat in one tensor."""

    name: ClassVar[str] = "legalise"

    def __call__(self, whole: Group) -> Group:
        """A network that the machine can execute."""
        network = stacked(legal.legal(whole.network, whole.config))
        return replace(whole, network=network, operators=network.operators)


@dataclass(frozen=True)
class Tile(Choices):
    """Tiles, addresses, and the loops of the CGRA."""

    memory: range = MEMORY

    name: ClassVar[str] = "tile"

    def __call__(self, group: Group) -> Tiled:
        """Operators with their tiles; raises `InputError` for what the machine cannot do or does not have."""
        return tile(group, self.memory, self)


@dataclass(frozen=True)
class Emit:
    """One sequential tile program."""

    name: ClassVar[str] = "emit"

    def __call__(self, tiled: Tiled) -> TileProgram:
        """The statements of all operators; raises `InputError` for more warps than the machine has."""
        config = tiled.group.config
        program, labels = emit(tiled)
        program = retype(program)
        needed = max(warps(program), default=0) + 1
        if needed > config.warps:
            role = WarpRole(needed - 1).title
            told = f"warps must be at least {needed}, not {config.warps}: {role} needs one of its own"
            raise InputError(f"{told} (--set warps={needed})")
        return TileProgram(config, program, program, tiled, labels)


@dataclass(frozen=True)
class RemoveDeadStores:
    """Without instructions whose results nothing reads; `lasting` spaces are read after the end."""

    lasting: tuple[str | None, ...] = LASTING

    name: ClassVar[str] = "dead-store"

    def __call__(self, made: TileProgram) -> TileProgram:
        """The program without them."""
        program = retype(DeadStore(self.lasting)(made.program))
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
        if self.synchronise is not None:
            return replace(made, program=self.synchronise(made.program, made.config))
        early = made.tiled is not None and made.tiled.early
        return replace(made, program=convert(made.program, made.config, release_early=early).program)


@dataclass(frozen=True)
class Canonicalise:
    """Expressions in canonical form."""

    name: ClassVar[str] = "canonicalize"

    def __call__(self, made: TileProgram) -> TileProgram:
        """The program with all expressions in canonical form."""
        return replace(made, program=retype(Canonicalize()(made.program)))


@dataclass(frozen=True)
class Hoist:
    """One program per warp, with what its registers keep.

    `uniform` programs differ in numbers alone where their problems do (`sw.canonical.hoist`).
    """

    strategy: Strategy = Strategy.BUDGET
    uniform: bool = True

    name: ClassVar[str] = "hoist"

    def __call__(self, made: TileProgram) -> WarpPrograms:
        """The programs of the warps by number."""
        # Buffers of others differ where a warp's own program is the same.
        own = {w: with_used_buffers(share(made.program, w)) for w in warps(made.program)}
        registers = made.config.registers
        return WarpPrograms(
            made, {w: _hoisted(p, registers, self.strategy, self.uniform) for w, p in own.items()}
        )


@dataclass(frozen=True)
class Generate:
    """Instruction words; `uniform` as in `Hoist`."""

    uniform: bool = True

    name: ClassVar[str] = "generate"

    def __call__(self, made: WarpPrograms) -> MachineCode:
        """The words of every warp, and the operator that each instruction belongs to.

        Raises `InputError` where registers, loops or instruction memory do not suffice.
        """
        origin = made.origin
        words: dict[int, list[int]] = {}
        operator_of: dict[tuple[int, int], int] = {}
        for warp, program in sorted(made.programs.items()):
            name = warp_name(warp)
            code, allocation = compiled(program, origin.config, name, uniform=self.uniform)
            words[warp] = [encode(c) for c in instructions(code, allocation, name)]
            for pc, operation in enumerate(code.operations):
                if operation.label in origin.labels:
                    operator_of[warp, pc] = origin.labels[operation.label]
        return MachineCode(origin, words, operator_of)


def warp_name(warp: int) -> str:
    """A warp as messages call it: by the engine that it drives."""
    return f"warp {WarpRole(warp).title if warp in set(WarpRole) else warp}"


@functools.lru_cache(maxsize=1024)
def _hoisted(own: Program, registers: int, strategy: Strategy, uniform: bool) -> Program:
    """What registers keep of one warp's program: machines that differ elsewhere have equal programs."""
    return retype(optimise(own, registers, strategy, uniform=uniform))
