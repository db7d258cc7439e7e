"""Where the bytes of each beat of a load go: columns and lanes of the buffer."""

from __future__ import annotations

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from hw.config import BufferShape
from hw.rtl.bits import log2, low, place, place_bits
from hw.rtl.memory.load_steps import block_bits, lane_bits, start_bits


class RowPlaces(Component):
    """Follows the beats of a `RowWalker` and tells where the present one goes, as `step_layout` has it.

    Byte j of the beat lies `(start + j) div lanes` blocks behind the one in column `block`, in lane
    `(start + j) mod lanes`. In depth-first form it lies in column `start + j` of a group of columns, as many
    as there are banks, and in `lane`; `block` is any column of the group.

    **Timing.** As the walker: with `advance` the next beat follows, with `new_row` that of another row. While
    `renews` the first beat of what could begin is loaded, from `target`, `align` and `new_lanes_first`.
    """

    def __init__(self, shape: BufferShape, width: int):
        self._shape, self._width = shape, width
        super().__init__(
            {
                "renews": In(1),
                "target": In(place_bits(shape.columns)),
                "align": In(log2(width)),
                "new_lanes_first": In(1),
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

        def start_row(row_base: Value, next_lane: Value, align: Value, lanes_first: Value) -> None:
            """Point at the first beat of a row whose byte 0 is `align` bytes into it."""
            m.d.sync += [
                base.eq(row_base),
                self.block.eq(row_base),
                self.start.eq(Mux(lanes_first, 0, row_base[:of_bank]) - align),
                lane.eq(next_lane),
            ]

        spread = max(1, self._width // shape.lanes)  # blocks that a beat can touch, less one
        behind = Signal(signed(len(self.start) + 1))
        steps = Mux(by_lanes, behind[of_lane:], behind[of_bank:])[: bits_for(spread)]
        pitch = Mux(by_lanes, self.pitch, shape.banks)
        m.d.comb += behind.eq(self.start + self.end)
        with m.If(self.advance):
            m.d.sync += [
                self.start.eq(Mux(by_lanes, low(behind, of_lane), low(behind, of_bank))),
                self.block.eq(Array(self.block + i * pitch for i in range(spread + 1))[steps]),
            ]
        with m.If(self.advance & self.new_row):
            wrap = (lane == shape.lanes - 1) if of_lane else Const(1, 1)
            next_lane = Mux(by_lanes, 0, lane + 1)[: len(lane)] if of_lane else Const(0, 1)
            next_base = Signal(len(base))
            jump = Mux(by_lanes, 1, Mux(wrap, self.pitch, 0))
            m.d.comb += next_base.eq(place(base + jump, shape.columns))
            start_row(next_base, next_lane, self.next_align, by_lanes)
        with m.If(self.renews):
            new = self.new_lanes_first if of_lane else Const(0, 1)
            start_row(self.target, Const(0, len(lane)), self.align, new)
        return m
