"""The beats of a load: which row, which part of it, which bytes of the beat, what each is the last of.

Both halves of a loader walk them (docs/machine.md, "Loaders").
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.bits import log2


def rows_layout(width: int) -> data.StructLayout:
    """Rows and padding of a load; `low` and `step` are address and stride modulo the port's bytes."""
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


class RowWalker(Component):
    """Walks the beats of a load; all outputs tell of the present one.

    A row has a segment of memory beats and one of fill beats; a row behind the last has one of fill beats.
    Bytes from `first` to before `end` of the beat belong to the row; `next_align` is `first` of the next
    row's first beat. `new_row` says that with this beat a row ends and another follows, `more_rows` that
    there are further rows with memory beats. No operation has zero rows or bytes.

    **Timing.** `start` begins a new operation in the next cycle; it may come with the last beat of the one
    before. A beat ends with each cycle in which `advance` is 1.
    """

    def __init__(self, width: int):
        self._width = width
        shift = log2(width)
        super().__init__(
            {
                "start": In(1),
                "rows": In(rows_layout(width)),
                "advance": In(1),
                "active": Out(1),
                "in_memory": Out(1),
                "first_of_row": Out(1),
                "first": Out(shift),
                "end": Out(shift + 1),
                "next_align": Out(shift),
                "new_row": Out(1),
                "more_rows": Out(1),
                "end_of_row": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, shift = self._width, log2(self._width)
        size = isa.SIZE_BITS
        d = Signal(rows_layout(width))
        filling, tail = Signal(), Signal()
        rows = Signal(size)  # rows left: with memory beats, then those behind
        align = Signal(shift)
        # Beats left in the segment: `beats`, and `more` for what its bytes have beyond whole beats.
        beats, more = Signal(size + 1 - shift), Signal(2)
        end = Signal(shift)  # of the segment's last beat; 0 means the whole beat

        end_of_segment, has_fill, last_row = Signal(), Signal(), Signal()
        few = ~beats[1:].any()
        m.d.comb += [
            self.in_memory.eq(~filling & ~tail),
            end_of_segment.eq(few & Mux(beats[0], more == 0, more == 1)),
            has_fill.eq(self.in_memory & d.pad_inner.any()),
            self.end.eq(Mux(end_of_segment & end.any(), end, width)),
            self.end_of_row.eq(self.active & end_of_segment & ~has_fill),
            self.more_rows.eq(~tail & ~last_row),
            self.new_row.eq(self.end_of_row & ~self.last),
            self.last.eq(self.end_of_row & last_row & (tail | ~d.pad_outer.any())),
            self.next_align.eq(Mux(self.more_rows, align + d.step, 0)),
        ]

        # The segment that begins next.
        reach = Signal(size + 1)  # of a row behind the last
        length, low, over = Signal(size + 1), Signal(shift), Signal(shift + 1)
        with m.If(self.start):
            m.d.comb += [length.eq(self.rows.inner), low.eq(self.rows.low)]
        with m.Elif(~self.end_of_row):
            m.d.comb += length.eq(d.pad_inner)
        with m.Else():
            m.d.comb += [length.eq(Mux(self.more_rows, d.inner, reach)), low.eq(self.next_align)]
        m.d.comb += over.eq(low + length[:shift])
        with m.If(self.advance):
            m.d.sync += [self.first_of_row.eq(0), self.first.eq(0)]
            with m.If(more.any()):
                m.d.sync += more.eq(more - 1)
            with m.Else():
                m.d.sync += beats.eq(beats - 1)
            with m.If(end_of_segment & has_fill):
                m.d.sync += filling.eq(1)
            with m.If(self.end_of_row):
                m.d.sync += [
                    filling.eq(0),
                    tail.eq(~self.more_rows),
                    rows.eq(Mux(last_row, d.pad_outer, rows - 1)),
                    last_row.eq(Mux(last_row, d.pad_outer == 1, rows == 2)),
                    align.eq(low),
                    self.first.eq(low),
                    self.first_of_row.eq(1),
                ]
            with m.If(self.last):
                m.d.sync += self.active.eq(0)
        with m.If(self.start | (self.advance & end_of_segment)):
            m.d.sync += [
                beats.eq(length[shift:]),
                more.eq(Cat(over.any() & ~self._beyond(over), self._beyond(over))),
                end.eq(over[:shift]),
            ]
        with m.If(self.start):
            m.d.sync += [
                self.active.eq(1),
                d.eq(self.rows),
                reach.eq(self.rows.inner + self.rows.pad_inner),
                filling.eq(0),
                tail.eq(0),
                rows.eq(self.rows.outer),
                last_row.eq(self.rows.outer == 1),
                align.eq(low),
                self.first.eq(low),
                self.first_of_row.eq(1),
            ]
        return m

    def _beyond(self, over: Value) -> Value:
        """Whether a number of bytes takes more than one beat."""
        return over[-1] & over[:-1].any()
