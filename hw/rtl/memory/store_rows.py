"""Walks the beats of a store: the part of a row, and what each beat completes."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.bits import log2


def row_layout(width: int) -> data.StructLayout:
    """Properties of a row that depend on `align`, the number of bytes before it in its first word.

    The row has `extra` beats more than it has whole words, and ends before byte `end` of its last beat (0: at
    the end of the word). `single`: it has one beat. `more`: it has one beat more than chunks.
    """
    shift = log2(width)
    return data.StructLayout({"align": shift, "extra": 2, "end": shift, "single": 1, "more": 1})


def store_layout(width: int) -> data.StructLayout:
    """The rows of a store: each has `whole` words and `rest` bytes; `first` describes the first row.

    `no_word` and `one_word` mean 0 and 1 whole words, `one` means a single row. `step` is the stride modulo
    the bytes of a word, `next` the align of the second row, `over` the sum of `next` and `rest`.
    """
    shift = log2(width)
    return data.StructLayout(
        {
            "step": shift,
            "rest": shift,
            "whole": isa.SIZE_BITS - shift,
            "no_word": 1,
            "one_word": 1,
            "rows": isa.SIZE_BITS,
            "one": 1,
            "first": row_layout(width),
            "next": shift,
            "over": shift + 1,
        }
    )


def row_at(m: Module, width: int, align: Value, over: Value, rows: data.View) -> data.View:
    """The row of an operation that begins at `align`; `over` is `align` plus the operation's `rest`."""
    row, beyond = Signal(row_layout(width)), Signal()
    m.d.comb += [
        beyond.eq(over[-1] & over[:-1].any()),
        row.align.eq(align),
        row.extra[0].eq(over.any() & ~beyond),
        row.extra[1].eq(beyond),
        row.end.eq(over),
        row.single.eq((rows.no_word & row.extra[0]) | (rows.one_word & ~row.extra.any())),
        row.more.eq(Mux(rows.rest.any(), beyond, over.any())),
    ]
    return row


class StoreRows(Component):
    """Walks the beats of a store; all outputs describe the current beat.

    Bytes `first` <= i < `end` of the beat belong to the row; `reads` means that the beat reads a chunk.
    `end_of_row` marks the last beat of a row, `last` the last beat of the operation. `renews` means that a
    beat that begins now belongs to a new operation.

    **Timing.** `start` begins the operation `coming` in the next cycle, if none is active or the last beat of
    the previous one ends. A beat ends in each cycle in which `advance` is 1 while `active`. The outputs for a
    beat are computed during the previous one and loaded even if no operation starts: `start`, a late input,
    only drives `active`.
    """

    def __init__(self, width: int):
        self._width = width
        shift = log2(width)
        super().__init__(
            {
                "start": In(1),
                "coming": In(store_layout(width)),
                "advance": In(1),
                "active": Out(1),
                "renews": Out(1, init=1),
                "first_of_row": Out(1),
                "first": Out(shift),
                "end": Out(shift + 1),
                "reads": Out(1),
                "end_of_row": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, coming = self._width, self.coming
        d = Signal(store_layout(width))  # `next` is the align of the row after the current one
        present = Signal(row_layout(width))
        beats, extra = Signal(d.whole.shape()), Signal(2)  # number left
        ends, last_row = Signal(), Signal()
        moves, begins = Signal(), Signal()
        row, is_last = self._next_row(m, d, moves & begins)
        ending = Signal()  # the next beat of the row is its last
        m.d.comb += [
            ending.eq(_total(2, beats, extra)),
            moves.eq(~self.active | self.advance),
            begins.eq(self.renews | ends),
            self.end.eq(Mux(ends & present.end.any(), present.end, width)),
            self.end_of_row.eq(ends),
            self.last.eq(self.active & ends & last_row),
        ]
        with m.If(moves):
            m.d.sync += [self.first_of_row.eq(begins), self.first.eq(Mux(begins, row.align, 0))]
            with m.If(begins):
                m.d.sync += [
                    present.eq(row),
                    ends.eq(row.single),
                    self.reads.eq(~(row.single & row.more)),
                    beats.eq(Mux(self.renews, coming.whole, d.whole)),
                    extra.eq(row.extra),
                    last_row.eq(is_last),
                    self.renews.eq((self.renews & ~self.start) | (row.single & is_last)),
                ]
            with m.Else():
                m.d.sync += [
                    ends.eq(ending),
                    self.renews.eq(ending & last_row),
                    self.reads.eq(~(ending & present.more)),
                ]
                with m.If(extra.any()):
                    m.d.sync += extra.eq(extra - 1)
                with m.Else():
                    m.d.sync += beats.eq(beats - 1)
            with m.If(self.renews):
                m.d.sync += self.active.eq(self.start)
        return m

    def _next_row(self, m: Module, d: data.View, begins: Value) -> tuple[Signal, Signal]:
        """The next row to begin, and whether it is the last of its operation."""
        coming, row, is_last = self.coming, Signal(row_layout(self._width)), Signal()
        following = Signal(d.next.shape())  # the align of the row after it
        m.d.comb += [
            row.eq(Mux(self.renews, coming.first, row_at(m, self._width, d.next, d.over, d))),
            is_last.eq(Mux(self.renews, coming.one, d.rows == 2)),
            following.eq(d.next + d.step),
        ]
        with m.If(begins & self.renews):
            m.d.sync += d.eq(coming)
        with m.Elif(begins):
            m.d.sync += [d.next.eq(following), d.over.eq(following + d.rest), d.rows.eq(d.rows - 1)]
        return row, is_last


def _total(number: int, beats: Value, extra: Value) -> Value:
    """Whether `beats` and `extra` add up to `number`, at most 2."""
    few = beats[2:] == 0
    return few & Mux(extra[1], beats[:2] == number - 2, beats[:2] == number - extra[0])
