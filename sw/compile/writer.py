"""Shared state for emitting a model's tile program: buffers, regions of memories, labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hw.config import MachineConfig
from hw.errors import InputError
from hw.semantics import wrap
from sw.compile.forms import Loop, linear
from sw.compile.memory import Allocation, MemoryPlan
from sw.graph.network import View, word
from sw.ir.expression import Const, Expr, const
from sw.ir.program import Access, Buffer, For, Instruction, Interval, Program, Region, Statement
from sw.ir.roles import WarpRole
from sw.ir.split import with_used_buffers
from sw.layout import round_up

#: Most rows of a load or store, and most bytes per row.
LONGEST = (1 << 16) - 1
#: The on-chip memories as buffers of the program.
BUFFER_A, BUFFER_B, ACCUMULATOR, SCRATCH, OUT, CONFIGURATION = (
    "buffer_a",
    "buffer_b",
    "accumulator",
    "scratchpad",
    "output_buffer",
    "configuration",
)


def interval(start: Expr | int, length: Expr | int) -> Interval:
    """An interval of this many elements from a start."""
    first = const(start) if isinstance(start, int) else start
    return Interval(first, first + length)


def loop(level: Loop, body: Sequence[Statement]) -> For:
    """A loop over the steps of a level, around a body."""
    return For(level.name, Const(0), Const(level.count), Const(1), tuple(body))


@dataclass(frozen=True)
class AddressMap:
    """An address in a tensor: a start element, strides in loops, and multiples of expressions."""

    loops: tuple[Loop, ...]
    steps: Mapping[str, int]
    start: int = 0
    further: tuple[tuple[Expr, int], ...] = ()

    def moved(self, steps: Mapping[str, int], loops: Sequence[Loop]) -> AddressMap:
        """The same inside more loops."""
        return dataclasses.replace(self, loops=(*self.loops, *loops), steps={**self.steps, **steps})

    def counted(self, unit: Callable[[int], int], base: int = 0) -> Expr:
        """The address in units of `unit` elements; `base` is the start of the tensor."""
        found = linear(self.loops, {n: unit(s) for n, s in self.steps.items()}, base + unit(self.start))
        for number, elements in self.further:
            found = found + number * unit(elements)
        return found


@dataclass
class ChipSpace:
    """Bytes of an on-chip memory that an operator allocates."""

    what: str
    base: int
    size: int
    alignment: int
    used: int = 0

    def take(self, size: int) -> int:
        """The first of this many bytes; raises `InputError` if too few are left."""
        start = round_up(self.base + self.used, self.alignment)
        if start + size > self.base + self.size:
            raise InputError(
                f"{self.what} must hold {start + size - self.base} bytes for this operator, not {self.size}"
            )
        self.used = start + size - self.base
        return start


@dataclass
class Writer:
    """Emits the statements of operators, one after the other."""

    config: MachineConfig
    memory: MemoryPlan
    #: Number of the current operator.
    number: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    #: In repeated operators, the step number, and the stride of each tensor per step in elements.
    step: Expr | None = None
    moves: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = {name: f"t{number}" for number, name in enumerate(self.memory.homes)}

    def label(self, stem: str) -> str:
        """A unique label for the current operator; `labels` maps it to the operator."""
        label, number = f"{stem}_{self.number}", 0
        while label in self.labels:
            number += 1
            label = f"{stem}_{self.number}_{number}"
        self.labels[label] = self.number
        return label

    def home(self, name: str) -> Allocation:
        """The allocation of a tensor."""
        return self.memory.homes[name]

    def address(self, name: str, walk: AddressMap) -> Expr:
        """The address of an element."""
        home = self.home(name)
        return self._stepped(name, walk).counted(home.offset, wrap(home.address))

    def _stepped(self, name: str, walk: AddressMap) -> AddressMap:
        """The address in the current step."""
        move = self.moves.get(name, 0)
        if self.step is None or not move:
            return walk
        return dataclasses.replace(walk, further=(*walk.further, (self.step, move)))

    def region(
        self, view: View, walk: AddressMap, rows: Expr | int, row_step: int, columns: Expr | int
    ) -> Region:
        """Rows of a view: `columns` successive elements each, `row_step` apart; else the whole tensor."""
        home = self.home(view.tensor)
        several = rows not in (1, Const(1))
        if not row_compatible(view, home.row) or (several and (row_step % home.row or row_step < 0)):
            return self.whole(view.tensor)
        # Rows of one element are adjacent along any axis.
        if view.shape[-1] > home.row or (home.row == 1 and columns not in (1, Const(1))):
            return self.whole(view.tensor) if several else self.run(view.tensor, walk, columns)
        walk = self._stepped(view.tensor, walk)
        row = walk.counted(lambda elements: elements // home.row)
        column = walk.counted(lambda elements: elements % home.row)
        apart = row_step // home.row
        count: Expr | int = rows
        if apart > 1:
            count = (rows - 1) * apart + 1
        elif apart == 0:
            count = 1
        return Region(self.names[view.tensor], (interval(row, count), interval(column, columns)))

    def run(self, name: str, walk: AddressMap, number: Expr | int) -> Region:
        """Successive elements: rows of the tensor, or all of it."""
        home = self.home(name)
        walk = self._stepped(name, walk)
        steps = (walk.start, *walk.steps.values(), *(e for _, e in walk.further))
        counted = number % home.row == 0 if isinstance(number, int) else home.row == 1
        if not counted or any(s % home.row for s in steps):
            return self.whole(name)
        first = walk.counted(lambda elements: elements // home.row)
        return Region(self.names[name], (interval(first, number // home.row), interval(0, home.row)))

    def whole(self, name: str) -> Region:
        """All of a tensor."""
        home = self.home(name)
        return Region(self.names[name], (interval(0, home.rows), interval(0, home.row)))

    def stored(self, name: str, region: Region) -> tuple[Access, ...]:
        """What a store to a region writes, including all tensors that shared its memory before."""
        return (region, *(self.whole(other) for other in self.memory.overwritten(name)))

    def scratch(self, start: Expr | int, length: Expr | int) -> Region:
        """Bytes of the scratchpad."""
        return Region(SCRATCH, (interval(start, length),))

    def out(self, start: Expr | int, length: Expr | int) -> Region:
        """Bytes of the output buffer."""
        return Region(OUT, (interval(start, length),))

    def accumulator(self, word: Expr | int, words: Expr | int) -> Region:
        """Words of the accumulator."""
        return Region(ACCUMULATOR, (interval(word, words), interval(0, self.config.cols)))

    def load_scratch(
        self,
        view: View,
        walk: AddressMap,
        rows: Expr | int,
        row_step: int,
        columns: Expr | int,
        target: Expr | int,
        pitch: int,
        when: Expr | None = None,
        fill: tuple[Expr | int, int] = (0, 0),
        below: Expr | int = 0,
        region: Region | None = None,
    ) -> Instruction:
        """Loads rows of a view into the scratchpad, `pitch` bytes apart there.

        `fill` gives the number and value of the bytes that pad each row; `below` rows of padding follow the
        last.
        """
        home = self.home(view.tensor)
        source = region or self.region(view, walk, rows, row_step, columns)
        operands = {
            "memory": self.address(view.tensor, walk),
            "target": target,
            "outer": rows,
            "inner": columns * home.itemsize,
            "load_stride": home.offset(row_step),
            "load_pitch": pitch,
        }
        if fill[0] or below:
            operands |= {"load_pad_inner": fill[0], "load_fill": fill[1] & 0xFF}
        if below:
            operands["load_pad_outer"] = below
        size = (rows + below - 1) * pitch + columns * home.itemsize + fill[0]
        return Instruction(
            self.label("LC"),
            "load_c",
            (source,),
            (self.scratch(target, size),),
            WarpRole.LOAD_SCRATCH,
            when,
            given(operands),
        )

    def store_out(
        self,
        view: View,
        walk: AddressMap,
        rows: Expr | int,
        row_step: int,
        columns: Expr | int,
        source: Expr | int,
        pitch: int,
        when: Expr | None = None,
        region: Region | None = None,
    ) -> Instruction:
        """Stores rows of the output buffer, `pitch` bytes apart there, to rows of a view."""
        size = (rows - 1) * pitch + columns * self.home(view.tensor).itemsize
        held = self.out(source, size)
        return self.store("store_out", held, view, walk, rows, columns, source, pitch, when, row_step, region)

    def store(
        self,
        name: str,
        held: Region,
        view: View,
        walk: AddressMap,
        rows: Expr | int,
        columns: Expr | int,
        source: Expr | int,
        pitch: Expr | int,
        when: Expr | None = None,
        row_step: int | None = None,
        region: Region | None = None,
    ) -> Instruction:
        """Stores rows of results on the chip, of the region `held`, to rows of a view."""
        home = self.home(view.tensor)
        row_step = view.strides[-2] if row_step is None else row_step
        target = region or self.region(view, walk, rows, row_step, columns)
        operands = {
            "memory": self.address(view.tensor, walk),
            "source": source,
            "rows": rows,
            "bytes": columns * home.itemsize,
            "store_stride": home.offset(row_step),
            "store_pitch": pitch,
        }
        writes = self.stored(view.tensor, target)
        return Instruction(self.label("S"), name, (held,), writes, WarpRole.STORE, when, given(operands))

    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers of the program."""
        d, c = self.config.derived, self.config
        made = [
            Buffer(self.names[name], (const(h.rows), const(h.row)), word(h.tensor.element), "memory")
            for name, h in self.memory.homes.items()
        ]
        for name, shape, space in ((BUFFER_A, d.buffer_a, "A"), (BUFFER_B, d.buffer_b, "B")):
            made.append(Buffer(name, (const(shape.columns), const(shape.lanes)), "int8", space))
        made.append(Buffer(ACCUMULATOR, (const(d.acc_words), const(c.cols)), "int32", "acc"))
        made.append(Buffer(SCRATCH, (const(c.scratch_bytes),), "uint8", "scratch"))
        made.append(Buffer(OUT, (const(c.out_bytes),), "uint8", "out"))
        made.append(Buffer(CONFIGURATION, (const(1),), "int8", "grid"))
        return tuple(made)

    def program(self, name: str, body: Sequence[Statement]) -> Program:
        """The whole program, with the buffers that it uses."""
        return with_used_buffers(Program(name, (), self.buffers(), tuple(body)))


def given(operands: Mapping[str, Expr | int]) -> tuple[tuple[str, Expr], ...]:
    """Operands in the form that an instruction holds them."""
    return tuple((n, const(v) if isinstance(v, int) else v) for n, v in operands.items())


def row_compatible(view: View, row: int) -> bool:
    """Whether every axis of a view moves by whole rows of its tensor, or inside a row."""
    inside = view.offset % row
    for count, stride in zip(view.shape, view.strides, strict=True):
        if count > 1 and stride % row:
            if stride < 0:
                return False
            inside += (count - 1) * stride
    return inside < row
