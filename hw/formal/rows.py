"""Invariants of the walker of rows, which loaders and storer share."""

from __future__ import annotations

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
