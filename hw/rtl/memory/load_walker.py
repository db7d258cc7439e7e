"""Walks the beats of a load: the row, the part of the row, the bytes of the beat, and what it completes.

Source: docs/machine.md, "Loaders".
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import log2, lookup


def rows_layout(width: int) -> data.StructLayout:
    """Rows and padding of a load; `low` and `step` are the address and the stride modulo the port's width."""
    return data.StructLayout(
        {
            "low": log2(width),
            "step": log2(width),
            "outer": isa.SIZE_BITS,
            "inner": isa.SIZE_BITS,
            "pad_outer": isa.SIZE_BITS,
            "pad_inner": isa.SIZE_BITS,
        }
    )


class LoadWalker(Component):
    """Walks the beats of one load at a time; all outputs describe the current beat.

    A row has a segment of memory beats followed by a segment of fill beats; a padding row after the last one
    has only fill beats. Bytes `first` <= i < `end` of the beat belong to the row; `next_align` is `first` of
    the next row's first beat. `new_row` means that the row ends with this beat and another follows.
    Operations must not have zero rows or bytes.

    **Timing.** The first beat comes one cycle after `begin`; `rows` must hold from then until the last beat.
    A beat ends in each cycle in which `advance` is 1 while `active`.
    """

    def __init__(self, width: int):
        self._width = width
        shift = log2(width)
        super().__init__(
            {
                "begin": In(1),
                "rows": In(rows_layout(width)),
                "advance": In(1),
                "active": Out(1),
                "in_memory": Out(1),
                "first_of_row": Out(1),
                "first": Out(shift),
                "end": Out(shift + 1),
                "next_align": Out(shift),
                "new_row": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, shift, size, d = self._width, log2(self._width), isa.SIZE_BITS, self.rows
        fills, tails = Signal(), Signal()  # whether rows have fill segments; whether there are padding rows
        reach = Signal(size + 1)  # bytes of a padding row
        m.d.sync += [
            fills.eq(d.pad_inner.any()),
            tails.eq(d.pad_outer.any()),
            reach.eq(d.inner + d.pad_inner),
        ]
        # Beats left in the segment and rows left of this kind, both minus one: negative in the last.
        beats, rows = Signal(signed(size + 2 - shift)), Signal(signed(size + 1))
        tail = Signal()  # it is a padding row
        follow = Signal(shift)  # where the next row begins in its word, if it has memory beats
        final = Signal(shift)  # the segment's last byte in its word
        ends_segment, ends_row, last_row, more_rows, ends_all = (
            Signal(name=n) for n in ("ends_segment", "ends_row", "last_row", "more_rows", "ends_all")
        )
        m.d.comb += [
            ends_segment.eq(beats[-1]),
            ends_row.eq(ends_segment & ~(self.in_memory & fills)),
            last_row.eq(rows[-1]),
            more_rows.eq(~tail & ~last_row),
            ends_all.eq(ends_row & last_row & (tail | ~tails)),
            self.end.eq(Mux(ends_segment, final, width - 1) + 1),
            self.new_row.eq(self.active & ends_row & ~ends_all),
            self.last.eq(self.active & ends_all),
            self.next_align.eq(Mux(more_rows, follow, 0)),
        ]

        begins = self.begin | ends_row
        low, left = self._next_beat(m, beats, ends_segment, ends_row, more_rows, reach)
        with m.If(self.begin | self.advance):
            m.d.sync += [
                beats.eq(left >> shift),
                self.first_of_row.eq(begins),
                self.first.eq(Mux(begins, low, 0)),
            ]
            with m.If(self.begin | ends_segment):
                m.d.sync += [final.eq(left), self.in_memory.eq(self.begin | (ends_row & more_rows))]
            with m.If(begins):
                of_kind = Mux(self.begin, d.outer, Mux(last_row, d.pad_outer, rows[:size]))
                fresh = self.begin | last_row
                m.d.sync += [
                    tail.eq(~self.begin & ~more_rows),
                    rows.eq(of_kind + Cat(~fresh, 1).as_signed()),
                    follow.eq(low + d.step),
                ]
            m.d.sync += self.active.eq(self.begin | (self.active & ~ends_all))
        return m

    def _next_beat(
        self, m: Module, beats: Signal, ends_segment: Value, ends_row: Value, more_rows: Value, reach: Value
    ) -> tuple[Signal, Signal]:
        """Where the next beat's row begins in its word; the bytes left from there minus one word and 1."""
        width, shift, d = self._width, log2(self._width), self.rows
        length, low = Signal(len(reach)), Signal(shift)
        less, left = Signal(shift + 1), Signal(signed(len(reach) + 1))
        with m.If(self.begin):
            m.d.comb += [length.eq(d.inner), low.eq(d.low)]
        with m.Elif(~ends_segment):
            m.d.comb += length.eq(beats << shift)
        with m.Elif(~ends_row):
            m.d.comb += length.eq(d.pad_inner)
        with m.Else():
            m.d.comb += [length.eq(Mux(more_rows, d.inner, reach)), low.eq(self.next_align)]
        numbers = [(n - 1 - width) % (2 << shift) for n in range(width)]
        m.d.comb += [
            less.eq(Mux(self.begin | ends_segment, lookup(low, numbers, shift + 1), width)),
            left.eq(length + Cat(less, 1).as_signed()),
        ]
        return low, left
