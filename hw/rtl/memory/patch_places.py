"""Where the pixels of each step of a `load_b_conv` go: output columns, lanes, blocks of buffer B."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import BufferShape
from hw.rtl.bits import log2, place, place_bits
from hw.rtl.memory.patches import Divider, PatchShape, PatchWalker

#: Positions in the tile: 16 bits, plus the bytes of a beat before the first and behind the last of them.
PLACE_BITS = isa.SIZE_BITS + 2
#: Output columns before the first one and behind the last: kernel_w*dilation_w at most before.
COLUMN_BITS = isa.SIZE_BITS + 2


def block_bits(shape: BufferShape, width: int) -> int:
    """Bits of a block's column with which no block that a beat can touch wraps back into the buffer."""
    return place_bits(shape.columns) + 2 + log2(max(1, width // shape.lanes))


def place_layout(shape: BufferShape, width: int) -> data.StructLayout:
    """What a step does with the bytes of its beat.

    Bytes from `read_from` to before `read_to` are of memory, others are filled; from `used_to` on they are
    of no pixel. Of the rest every stride_w-th from `skip` on is used, of these those from `write_from` to
    before `write_to` are written: `start` is the lane of the first, `block` the column of its block.
    """
    count = log2(width) + 1
    return data.StructLayout(
        {
            "last": 1,
            "first_of_beat": 1,
            "reads": 1,
            "read_from": count,
            "read_to": count,
            "used_to": count,
            "skip": isa.KERNEL_BITS,
            "write_from": count,
            "write_to": count,
            "start": log2(shape.lanes),
            "block": block_bits(shape, width),
        }
    )


class PatchPlaces(Component):
    """Walks the steps of a `load_b_conv` and tells where the pixels of each go.

    **Timing.** As `PatchWalker`, a step behind it: where a step's first byte lies in the tile is kept in
    registers, behind which a multiplier finds its column. `place` belongs to the present step if `valid`; it
    is meant to be registered too. For both one setup step each of the contract is left out.
    """

    def __init__(self, shape: BufferShape, width: int):
        self._shape, self._width = shape, width
        super().__init__(
            {
                "start": In(1),
                "advance": In(1),
                "shape": In(PatchShape),
                "outer": In(isa.SIZE_BITS),
                "inner": In(isa.SIZE_BITS),
                "align": In(log2(width)),
                "target": In(place_bits(shape.columns)),
                "pitch": In(place_bits(shape.columns)),
                "active": Out(1),
                "valid": Out(1),
                "place": Out(place_layout(shape, width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._width
        m.submodules.walker = walker = PatchWalker(width, isa.TIMING.conv_setup - 2)
        for name in ("start", "advance", "shape", "outer", "inner", "align"):
            m.d.comb += getattr(walker, name).eq(getattr(self, name))
        m.d.comb += self.active.eq(walker.active | self.valid)
        where, shift = self.place, log2(width)
        move: list[Any] = [
            self.valid.eq(walker.scanning | walker.placing),
            where.last.eq(walker.last),
            where.first_of_beat.eq(walker.first_of_beat),
            where.reads.eq(walker.reads),
            *self._bytes(walker),
        ]
        column, skip = self._columns(m, walker)
        output_row, depth = self._rows(m, walker)
        left = Signal(signed(COLUMN_BITS + 1))
        m.d.comb += left.eq(self.shape.out_cols - column)
        move += [
            *self._place(m, output_row + column, depth),
            where.skip.eq(skip),
            # -column and left, cut to 0 up to the width.
            where.write_from.eq(Mux(column[-1], Mux(column[shift:].all(), width - column[:shift], width), 0)),
            where.write_to.eq(
                Mux(left[-1] | walker.scanning, 0, Mux(left[shift:-1].any(), width, left[:shift]))
            ),
        ]
        with m.If(self.advance):
            m.d.sync += move
        return m

    def _bytes(self, walker: PatchWalker) -> list[Any]:
        """Which bytes of the beat are in memory, which are pixels at all."""
        width, where = self._width, self.place
        shift = log2(width)
        last_read, last_used = walker.last_read[:shift] + 1, walker.last_used[:shift] + 1
        return [
            where.read_from.eq(Mux(walker.at_first_read, walker.first_read[:shift], 0)),
            where.read_to.eq(Mux(walker.reads, Mux(walker.at_last_read, last_read, width), 0)),
            where.used_to.eq(Mux(walker.at_last_used, last_used, width)),
        ]

    def _columns(self, m: Module, walker: PatchWalker) -> tuple[Value, Value]:
        """The output column of the first byte that is used, and the number of this byte in the beat."""
        shape = self.shape
        dividends = {
            "dilation": shape.dilation_w,
            "beat": Const(self._width, isa.KERNEL_BITS),
            "align": self.align,
        }
        by = {}
        for name, dividend in dividends.items():
            by[name] = divider = Divider()
            m.submodules[f"{name}_by_stride"] = divider
            m.d.comb += [
                divider.step.eq(walker.dividing & self.advance),
                divider.first.eq(walker.number == 0),
                divider.dividend.eq(dividend),
                divider.divisor.eq(shape.stride_w),
            ]
        # skip = column*stride_w + j*dilation_w - (pixel of byte 0), from 0 to before stride_w.
        column, beat_column = (Signal(signed(COLUMN_BITS), name=n) for n in ("column", "beat_column"))
        skip, beat_skip = (Signal(isa.KERNEL_BITS, name=n) for n in ("skip", "beat_skip"))
        further = Signal(isa.KERNEL_BITS + 1)
        m.d.comb += further.eq(skip + by["dilation"].remainder)
        over, under = Signal(), Signal()
        m.d.comb += [over.eq(further >= shape.stride_w), under.eq(beat_skip < by["beat"].remainder)]
        following, following_skip = Signal(signed(COLUMN_BITS)), Signal(isa.KERNEL_BITS)
        m.d.comb += [
            following.eq(beat_column + by["beat"].quotient + under),
            following_skip.eq(beat_skip - by["beat"].remainder + Mux(under, shape.stride_w, 0)),
        ]
        with m.If(self.advance):
            m.d.sync += [
                column.eq(column - by["dilation"].quotient - over),
                skip.eq(further - Mux(over, shape.stride_w, 0)),
            ]
            with m.If(walker.end_of_columns):
                m.d.sync += [column.eq(beat_column), skip.eq(beat_skip)]
            with m.If(walker.end_of_beat):
                m.d.sync += [column.eq(following), skip.eq(following_skip)]
                m.d.sync += [beat_column.eq(following), beat_skip.eq(following_skip)]
            with m.If(walker.end_of_row | walker.scanning):
                m.d.sync += [column.eq(-by["align"].quotient), skip.eq(by["align"].remainder)]
                m.d.sync += [beat_column.eq(-by["align"].quotient), beat_skip.eq(by["align"].remainder)]
        return column, skip

    def _rows(self, m: Module, walker: PatchWalker) -> tuple[Value, Value]:
        """Position of the output row in the tile, and the column of the depth step in the first block.

        The kernel rows that use an image row are equally far apart, and so are their output rows.
        """
        shape = self.shape
        # Output rows, as positions of their first element: dilation_h div stride_h, that of y, that of the
        # scan step, of the first kernel row found, of the present one, and the distance of two.
        turn, line, scan, first, now, apart = (
            Signal(PLACE_BITS, name=f"place_{n}") for n in ("turn", "line", "scan", "first", "now", "apart")
        )
        # Depth steps of a channel: of the scan step, and so on; all of a channel; steps of channels before.
        # Beyond the buffer they are only known as such (`hw.rtl.bits.place`).
        columns = self._shape.columns
        deep, deep_first, deep_now, deep_apart, channel = (
            Signal(place_bits(columns), name=f"depth_{n}")
            for n in ("scan", "first", "now", "apart", "channel")
        )
        deeper = Signal(place_bits(columns))
        m.d.comb += deeper.eq(place(deep + shape.kernel_w, columns))
        start, step = Signal(place_bits(columns)), Signal(isa.KERNEL_BITS)
        with m.If(self.advance):
            with m.If(walker.dividing):
                # The product with the quotient while the quotient is made.
                before = Mux(walker.number == 0, 0, turn << 1)
                m.d.sync += turn.eq(before + Mux(walker.quotient_bit, shape.out_cols, 0))
            with m.If(walker.preparing):
                m.d.sync += [line.eq(0), scan.eq(0), deep.eq(0), start.eq(self.target)]
            with m.If(walker.scanning):
                m.d.sync += [
                    scan.eq(scan - turn - Mux(walker.borrow, shape.out_cols, 0)),
                    deep.eq(deeper),
                    channel.eq(deeper),  # at the last kernel row: the steps of all
                    step.eq(0),
                ]
                with m.If(walker.found & (walker.uses == 0)):
                    m.d.sync += [first.eq(scan), now.eq(scan), deep_first.eq(deep), deep_now.eq(deep)]
                with m.If(walker.found & (walker.uses == 1)):
                    m.d.sync += [apart.eq(first - scan), deep_apart.eq(self._apart(deep, deep_first))]
            with m.If(walker.placing):
                m.d.sync += step.eq(step + 1)
                with m.If(walker.end_of_columns):
                    m.d.sync += [
                        step.eq(0),
                        now.eq(now - apart),
                        deep_now.eq(place(deep_now + deep_apart, columns)),
                    ]
                with m.If(walker.end_of_beat):
                    m.d.sync += [now.eq(first), deep_now.eq(deep_first)]
                with m.If(walker.end_of_row):
                    m.d.sync += start.eq(place(start + channel, columns))
            with m.If(walker.end_of_line):
                following = line + Mux(walker.next_output_row, shape.out_cols, 0)
                m.d.sync += [
                    line.eq(following),
                    scan.eq(following),
                    deep.eq(0),
                    start.eq(self.target),
                ]
        return now, place(start + deep_now + step, columns)

    def _apart(self, greater: Value, value: Value) -> Value:
        """The distance of two places; beyond the buffer if the greater is."""
        return Cat((greater - value)[: log2(self._shape.columns)], greater[-1])

    def _place(self, m: Module, position: Value, depth: Value) -> list[Any]:
        """Lane and columns of the first byte that is used, whether it is written or not; what to keep for it.

        The low bits of the pitch are known (others are an error), so they are left out of the product.
        """
        buffer = self._shape
        lane_bits, bank_bits, far_bits = log2(buffer.lanes), log2(buffer.banks), log2(buffer.columns)
        kept, kept_depth = Signal(signed(PLACE_BITS)), Signal(place_bits(buffer.columns))
        number = kept[lane_bits:].as_signed()
        product = Signal(signed(PLACE_BITS - lane_bits + place_bits(buffer.columns) - bank_bits))
        far = Signal()  # no buffer reaches as far
        low_part = number * (buffer.lanes % buffer.banks)
        m.d.comb += [
            product.eq(number * self.pitch[bank_bits:]),
            far.eq(~product[-1] & product[far_bits - bank_bits : -1].any()),
            self.place.start.eq(kept),
            self.place.block.eq(kept_depth + Mux(far, buffer.columns, (product << bank_bits) + low_part)),
        ]
        return [kept.eq(position), kept_depth.eq(depth)]
