"""Invariants of a loader's row walker."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Mux, Value
from amaranth.lib.wiring import Component

from hw.formal.bench import Bench
from hw.rtl.bits import log2


@dataclass(frozen=True)
class MemoryRow:
    """A row in memory: the addresses of its first and last byte, in 32 and 33 bits."""

    first: Value
    last: Value

    def is_same(self, other: MemoryRow) -> Value:
        """Whether both rows are the same."""
        return (self.first == other.first) & (self.last == other.last)

    def holds(self, starts: Value, word: Value, shift: int) -> Value:
        """Whether a beat in this word is the row's first, or a later one within the row.

        If the row crosses the end of memory, and so is in no window, later beats may be anywhere.
        """
        place = word << shift
        behind = self.last[32] | ((place > self.first) & (place <= self.last))
        return Mux(starts, word == self.first[shift:], behind)


class LoadWalk:
    """Registers of the `LoadWalker` at `path` inside a component, interpreted for the current beat.

    `_left` counts the bytes of the segment from the start of the current beat's word; `op` is the operation.
    `_flags` says that the registers derived from the operation agree with it.
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
        """Whether it walks this row; `following` is the word after that of the previous beat."""
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
