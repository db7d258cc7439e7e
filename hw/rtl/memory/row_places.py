"""Where the bytes of each beat of a load go: columns and lanes of the buffer."""

from __future__ import annotations

from amaranth.hdl import Array, Const, Module, Mux, Signal, signed
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from hw.config import BufferShape
from hw.rtl.bits import log2, low, place, place_bits
from hw.rtl.memory.load_steps import block_bits, lane_bits, start_bits


class RowPlaces(Component):
    """Follows the beats of a `LoadWalker` and computes where each goes, in the terms of `step_layout`.

    With `lanes_first`, byte j of the beat lies `(start + j) div lanes` blocks after the one in column
    `block`, in lane `(start + j) mod lanes`. Otherwise (depth first) it lies in lane `lane`, in column `start
    + j` of a group of as many columns as there are banks; `block` is any column of the group.

    **Timing.** As the walker: the first beat comes after `begin`, the next after `advance`, that of another
    row after `advance` with `new_row`. `target`, `pitch` and `lanes_first` must hold.
    """

    def __init__(self, shape: BufferShape, width: int):
        self._shape, self._width = shape, width
        super().__init__(
            {
                "begin": In(1),
                "target": In(place_bits(shape.columns)),
                "align": In(log2(width)),
                "pitch": In(place_bits(shape.columns)),
                "lanes_first": In(1),
                "advance": In(1),
                "end": In(log2(width) + 1),
                "new_row": In(1),
                "next_align": In(log2(width)),
                "start": Out(signed(start_bits(shape, width))),
                "block": Out(block_bits(shape, width)),
                "lane": Out(lane_bits(shape)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape, lane = self._shape, self.lane
        of_lane, of_bank = log2(shape.lanes), log2(shape.banks)
        by_lanes = self.lanes_first if of_lane else Const(0, 1)
        base = Signal(place_bits(shape.columns))  # column of element 0 of the row
        spread = max(1, self._width // shape.lanes)  # blocks that a beat can touch, minus one
        behind = Signal(signed(len(self.start) + 1))
        steps = Mux(by_lanes, behind[of_lane:], behind[of_bank:])[: bits_for(spread)]
        pitch = Mux(by_lanes, self.pitch, shape.banks)
        next_lane = Mux(by_lanes, 0, lane + 1)[: len(lane)] if of_lane else Const(0, 1)
        # The row that begins: column of its element 0, and the position of its byte 0 in the beat.
        row_base, following, align = Signal(len(base)), Signal(len(base)), Signal(log2(self._width))
        # Columns from one row to the next; unused with `begin`, when the pitch is not known yet.
        jump = Signal(len(base)) if of_lane else self.pitch
        m.d.comb += [
            behind.eq(self.start + self.end),
            following.eq(place(base + jump, shape.columns)),
            row_base.eq(Mux(self.begin, self.target, following)),
            align.eq(Mux(self.begin, self.align, self.next_align)),
        ]
        with m.If(self.begin | self.advance):
            with m.If(self.begin | self.new_row):
                m.d.sync += [
                    base.eq(row_base),
                    self.block.eq(row_base),
                    self.start.eq(Mux(by_lanes, 0, row_base[:of_bank]) - align),
                    lane.eq(Mux(self.begin, 0, next_lane)),
                ]
                if of_lane:
                    wraps = ~self.begin & (lane == shape.lanes - 2)  # after the row that begins
                    m.d.sync += jump.eq(Mux(by_lanes, 1, Mux(wraps, self.pitch, 0)))
            with m.Else():
                m.d.sync += [
                    self.start.eq(Mux(by_lanes, low(behind, of_lane), low(behind, of_bank))),
                    self.block.eq(Array(self.block + i * pitch for i in range(spread + 1))[steps]),
                ]
        return m
