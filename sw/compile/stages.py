"""The stages of the compiler, and the data that pass between them.

A stage is a frozen dataclass: its fields are its options, and its call maps one input to one output.
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

#: Inserts waits and signals into a machine's sequential program.
Synchroniser = Callable[[Program, MachineConfig], Program]


@dataclass(frozen=True)
class TileProgram:
    """A tile program: `source` is the sequential one, `program` its current form.

    `tiled` holds the tiles of operators, and `labels` the operator number of every instruction.
    """

    config: MachineConfig
    source: Program
    program: Program
    tiled: Tiled | None = None
    labels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WarpPrograms:
    """The tile programs of the warps, split from one program with waits and signals."""

    origin: TileProgram
    programs: Mapping[int, Program]


@dataclass(frozen=True)
class MachineCode:
    """Instruction words of the warps, and the operator of every instruction."""

    origin: TileProgram
    programs: dict[int, list[int]]
    operator_of: Mapping[tuple[int, int], int]


@dataclass(frozen=True)
class Compiled:
    """Operators compiled into one program of the machine.

    `source` is the sequential tile program, and `synchronised` the one with waits and signals. `labels` maps
    each of its labels to an operator number, and `operator_of` does so for every warp and instruction.
    `seconds` holds the time of each stage.
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
        """The tensors that a run must be given."""
        return {n: h for n, h in self.memory.homes.items() if h.kind is Kind.INPUT}

    @property
    def outputs(self) -> dict[str, Allocation]:
        """The tensors that are live at the end."""
        return {n: h for n, h in self.memory.homes.items() if h.kind is Kind.OUTPUT}


@dataclass(frozen=True)
class Legalise:
    """Insert copies where an operator cannot use a view directly; put repeated steps into one tensor."""

    name: ClassVar[str] = "legalise"

    def __call__(self, whole: Group) -> Group:
        """A network that the machine can execute."""
        network = stacked(legal.legal(whole.network, whole.config))
        return replace(whole, network=network, operators=network.operators)


@dataclass(frozen=True)
class Tile(Choices):
    """Choose tiles, addresses, and the loops of the CGRA."""

    memory: range = MEMORY

    name: ClassVar[str] = "tile"

    def __call__(self, group: Group) -> Tiled:
        """Operators with their tiles; raises `InputError` for anything that exceeds the machine."""
        return tile(group, self.memory, self)


@dataclass(frozen=True)
class Emit:
    """Emit one sequential tile program."""

    name: ClassVar[str] = "emit"

    def __call__(self, tiled: Tiled) -> TileProgram:
        """The statements of all operators; raises `InputError` if the machine has too few warps."""
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
    """Remove instructions whose results are never read; `lasting` spaces are read after the end."""

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
    """Insert waits and signals, with `sw.warps` or another scheme."""

    synchronise: Synchroniser | None = None

    name: ClassVar[str] = "warps"

    def __call__(self, made: TileProgram) -> TileProgram:
        """The program for several warps; raises `InputError` if the machine has too few channels."""
        if self.synchronise is not None:
            return replace(made, program=self.synchronise(made.program, made.config))
        early = made.tiled is not None and made.tiled.early
        return replace(made, program=convert(made.program, made.config, release_early=early).program)


@dataclass(frozen=True)
class Canonicalise:
    """Bring expressions into canonical form."""

    name: ClassVar[str] = "canonicalize"

    def __call__(self, made: TileProgram) -> TileProgram:
        """The program with all expressions in canonical form."""
        return replace(made, program=retype(Canonicalize()(made.program)))


@dataclass(frozen=True)
class Hoist:
    """Split into one program per warp, and keep values in registers.

    With `uniform`, programs whose problems differ only in numbers differ only in numbers
    (`sw.canonical.hoist`).
    """

    strategy: Strategy = Strategy.BUDGET
    uniform: bool = True

    name: ClassVar[str] = "hoist"

    def __call__(self, made: TileProgram) -> WarpPrograms:
        """The programs of the warps by number."""
        # Buffers of other warps may differ even if a warp's own program is the same.
        own = {w: with_used_buffers(share(made.program, w)) for w in warps(made.program)}
        registers = made.config.registers
        return WarpPrograms(
            made, {w: _hoisted(p, registers, self.strategy, self.uniform) for w, p in own.items()}
        )


@dataclass(frozen=True)
class Generate:
    """Generate instruction words; `uniform` is as in `Hoist`."""

    uniform: bool = True

    name: ClassVar[str] = "generate"

    def __call__(self, made: WarpPrograms) -> MachineCode:
        """The words of every warp, and the operator of each instruction.

        Raises `InputError` if registers, loop depth or instruction memory are exceeded.
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
    """The name of a warp in messages, after the engine that it drives."""
    return f"warp {WarpRole(warp).title if warp in set(WarpRole) else warp}"


@functools.lru_cache(maxsize=1024)
def _hoisted(own: Program, registers: int, strategy: Strategy, uniform: bool) -> Program:
    """One warp's program with values in registers; machines that differ elsewhere share it."""
    return retype(optimise(own, registers, strategy, uniform=uniform))
