"""Invariants of the walkers of rows of loaders and storer."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Mux, Value
from amaranth.lib.wiring import Component

from hw.formal.bench import Bench
from hw.rtl.bits import log2


class Walk:
    """Registers of the `RowWalker` at `path` inside a component, and what they say of the present beat.

    `left` counts the bytes of the segment from the beginning of the present beat's word on; `padding` is both
    paddings, `inner` the bytes of a row, `step` and `align` stride and address modulo the port's bytes.
    `flags` says that what is kept in a bit agrees with the numbers it follows from.
    """

    def __init__(self, bench: Bench, dut: Component, path: str, width: int):
        names = ["active", "in_memory", "tail", "first_of_row", "first", "align", "beats", "more", "end"]
        names += ["end_of_segment", "fills", "tails", "fill_follows", "last_row", "final_row"]
        r = {n: bench.register(dut, f"{path}/{n}") for n in names}
        d = bench.view(dut, f"{path}/d")
        self.active, self.in_memory, self.tail = r["active"], r["in_memory"], r["tail"]
        self.first_of_row, self.first, self.align = r["first_of_row"], r["first"], r["align"]
        self.step, self.inner, self.padding = d.step, d.inner, Cat(d.pad_outer, d.pad_inner)
        beats, more = Value.cast(r["beats"] + r["more"]), r["more"]
        self.left = Value.cast((beats << log2(width)) - Mux(r["end"] == 0, 0, width - r["end"]))
        self.flags = (
            (r["end_of_segment"] == Mux(more == 0, r["beats"] == 1, (more == 1) & (r["beats"] == 0)))
            & (more <= 2)
            & (r["fills"] == d.pad_inner.any())
            & (r["fill_follows"] == (r["in_memory"] & r["fills"]))
            & ~(r["in_memory"] & r["tail"])
            & (r["final_row"] == (r["last_row"] & (r["tail"] | ~r["tails"])))
            & (r["tails"] == d.pad_outer.any())
        )


def fits(walk: Walk, first: Value, span: Value, stride: Value, following: Value, width: int) -> Value:
    """Whether a walker fits the row from address `first` to `first + span` that is walked with it.

    `stride` leads to the row behind; `following` is the number of the word behind that of the beat before.
    """
    shift = log2(width)
    word = Mux(walk.first_of_row, first[shift:], following)[: 32 - shift]
    place = word << shift
    begins = Mux(walk.first_of_row, first[:shift], 0)
    memory = (
        (walk.first == begins)
        & ((place + walk.left)[:32] == (first + span + 1)[:32])
        & (walk.left > walk.first)
        & (walk.left[16:] < 4)
        & (walk.first_of_row | ((place > first) & (place <= (first + span))))
    )
    return (
        walk.flags
        & (walk.inner != 0)
        & (span == (walk.inner - 1)[: len(span)])
        & (walk.step == stride[:shift])
        & (walk.tail | (walk.align == first[:shift]))
        & (~walk.in_memory | memory)
    )


@dataclass(frozen=True)
class MemoryRow:
    """A row in memory: the addresses of its first and last byte, in 32 and 33 bits."""

    first: Value
    last: Value

    def is_same(self, other: MemoryRow) -> Value:
        """Whether it is another one."""
        return (self.first == other.first) & (self.last == other.last)

    def holds(self, starts: Value, word: Value, shift: int) -> Value:
        """Whether a beat in this word is its first, or lies behind that and not beyond its end.

        Of a row that crosses the end of memory, which is in no window, any later one may be anywhere.
        """
        place = word << shift
        behind = self.last[32] | ((place > self.first) & (place <= self.last))
        return Mux(starts, word == self.first[shift:], behind)


class LoadWalk:
    """Registers of the `LoadWalker` at `path` inside a component, and what they say of the present beat.

    `left` counts the bytes of the segment from the beginning of the present beat's word on; `op` is the
    operation. `flags` says that what is kept of the operation agrees with it.
    """

    def __init__(self, bench: Bench, dut: Component, path: str, op: Value, width: int):
        names = ["active", "in_memory", "first_of_row", "first", "follow", "beats", "final", "tail"]
        names += ["fills", "tails", "reach"]
        r = {n: bench.register(dut, f"{path}/{n}") for n in names}
        self.active, self.in_memory, self.first_of_row = r["active"], r["in_memory"], r["first_of_row"]
        self._first, self._tail, self._shift = r["first"], r["tail"], log2(width)
        self._align = (r["follow"] - op.load_stride)[: self._shift]
        beats = r["beats"].as_signed()
        self._left = Value.cast(((beats + 1) << self._shift) + r["final"] + 1)
        self._flags = (
            (beats >= -1)
            & (r["fills"] == op.load_pad_inner.any())
            & (r["tails"] == op.load_pad_outer.any())
            & (r["reach"] == (op.inner + op.load_pad_inner))
            & ~(r["in_memory"] & r["tail"])
        )

    def fits(self, row: MemoryRow, following: Value) -> Value:
        """Whether it walks this row; `following` is the number of the word behind that of the beat before."""
        shift = self._shift
        word = Mux(self.first_of_row, row.first[shift:], following)[: 32 - shift]
        begins = Mux(self.first_of_row, row.first[:shift], 0)
        memory = (
            (self._first == begins)
            & (((word << shift) + self._left)[:32] == (row.last + 1)[:32])
            & (self._left > self._first)
            & (self._left[16:] < 4)
            & row.holds(self.first_of_row, word, shift)
        )
        return self._flags & (self._tail | (self._align == row.first[:shift])) & (~self.in_memory | memory)
