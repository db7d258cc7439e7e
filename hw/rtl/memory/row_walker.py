"""The beats of a load: which row, which part of it, which bytes of the beat, what each is the last of.

Both halves of a loader walk them (docs/machine.md, "Loaders").
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import log2


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

    **Timing.** `start` begins a new operation in the next cycle; it may come while none is under way or with
    the last beat of the one before. A beat ends with each cycle in which `advance` is 1 while `active`.
    What `start` needs is loaded from `rows` whenever it could come, so that it decides about `active` alone:
    much comes before `start` and `advance`, and little behind.
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
        fills, tails = Signal(), Signal()  # whether there are segments of fill beats; rows behind the last
        fill_follows = Signal()  # the segment's successor is one of fill beats of the same row
        tail = Signal()
        rows = Signal(size)  # rows left: with memory beats, then those behind
        last_row, final_row = Signal(), Signal()  # this is the last one, of the present kind and of all
        align = Signal(shift)
        # Beats left in the segment: `beats`, and `more` for what its bytes have beyond whole beats.
        beats, more = Signal(size + 1 - shift), Signal(2)
        end_of_segment = Signal()  # there is one
        end = Signal(shift)  # of the segment's last beat; 0 means the whole beat

        ends_row, ends_all, renews, moves = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            ends_row.eq(end_of_segment & ~fill_follows),
            ends_all.eq(ends_row & final_row),
            renews.eq(~self.active | ends_all),
            moves.eq(~self.active | self.advance),
            self.end.eq(Mux(end_of_segment & end.any(), end, width)),
            self.end_of_row.eq(self.active & ends_row),
            self.more_rows.eq(~tail & ~last_row),
            self.new_row.eq(self.active & ends_row & ~ends_all),
            self.last.eq(self.active & ends_all),
            self.next_align.eq(Mux(self.more_rows, align + d.step, 0)),
        ]

        # The segment that begins next.
        reach = Signal(size + 1)  # of a row behind the last
        length, low, over = Signal(size + 1), Signal(shift), Signal(shift + 1)
        with m.If(renews):
            m.d.comb += [length.eq(self.rows.inner), low.eq(self.rows.low)]
        with m.Elif(~ends_row):
            m.d.comb += length.eq(d.pad_inner)
        with m.Else():
            m.d.comb += [length.eq(Mux(self.more_rows, d.inner, reach)), low.eq(self.next_align)]
        m.d.comb += over.eq(low + length[:shift])
        with m.If(moves):
            m.d.sync += [
                end_of_segment.eq(self._are(2, beats, more)),
                self.first_of_row.eq(renews | ends_row),
                self.first.eq(Mux(renews | ends_row, low, 0)),
            ]
            with m.If(more.any()):
                m.d.sync += more.eq(more - 1)
            with m.Else():
                m.d.sync += beats.eq(beats - 1)
            with m.If(renews | end_of_segment):
                whole, rest = length[shift:], Cat(over.any() & ~self._beyond(over), self._beyond(over))
                m.d.sync += [
                    beats.eq(whole),
                    more.eq(rest),
                    end_of_segment.eq(self._are(1, whole, rest)),
                    end.eq(over[:shift]),
                    self.in_memory.eq(renews | (ends_row & self.more_rows)),
                    fill_follows.eq(
                        Mux(renews, self.rows.pad_inner.any(), ends_row & self.more_rows & fills)
                    ),
                ]
        is_last = Mux(renews, self.rows.outer == 1, Mux(last_row, d.pad_outer == 1, rows == 2))
        with m.If(moves & (renews | ends_row)):
            m.d.sync += [
                tail.eq(~renews & ~self.more_rows),
                rows.eq(Mux(renews, self.rows.outer, Mux(last_row, d.pad_outer, rows - 1))),
                last_row.eq(is_last),
                final_row.eq(is_last & Mux(renews, ~self.rows.pad_outer.any(), last_row | tail | ~tails)),
                align.eq(low),
            ]
        with m.If(moves & renews):
            m.d.sync += [
                self.active.eq(self.start),
                d.eq(self.rows),
                fills.eq(self.rows.pad_inner.any()),
                tails.eq(self.rows.pad_outer.any()),
                reach.eq(self.rows.inner + self.rows.pad_inner),
            ]
        return m

    def _are(self, number: int, whole: Value, rest: Value) -> Value:
        """Whether `whole + rest` is a number, which is 2 at most."""
        return Cat((whole == number - r) & (rest == r) for r in range(number + 1)).any()

    def _beyond(self, over: Value) -> Value:
        """Whether a number of bytes takes more than one beat."""
        return over[-1] & over[:-1].any()
