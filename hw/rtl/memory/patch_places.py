"""Where the pixels of each step of a `load_b_conv` go: columns, lanes and blocks of buffer B."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import BufferShape
from hw.rtl.bits import difference, log2, place, place_bits, total
from hw.rtl.memory.load_steps import block_bits
from hw.rtl.memory.patches import Divider, PatchShape, PatchWalker

#: Width of a position in the tile: 16 bits, plus the bytes of a beat before the first and after the last one.
PLACE_BITS = isa.SIZE_BITS + 2
#: Width of an output column, including those before the first one (at most kernel_w*dilation_w) and after the
#: last.
COLUMN_BITS = isa.SIZE_BITS + 2


#: Members of a step's place: flags, and byte numbers within the beat.
_FLAGS = ("told", "checks", "starts", "last", "reads")
_NUMBERS = ("read_from", "read_to", "used_to", "skip", "write_from", "write_to")


def place_layout(shape: BufferShape, width: int) -> data.StructLayout:
    """Where the bytes of a step go, as in `hw.rtl.memory.load_steps.step_layout`, and its request flags.

    `told`: the writer receives the step. `checks`: it is the first of a row in memory. `starts`: no word of
    the row has been requested yet.
    """
    count = log2(width) + 1
    numbers, flags = dict.fromkeys(_NUMBERS, count), dict.fromkeys(_FLAGS, 1)
    places = {"start": max(1, log2(shape.lanes)), "block": block_bits(shape, width)}
    return data.StructLayout(flags | numbers | places)


class PatchPlaces(Component):
    """Computes where the pixels of each step of a `load_b_conv` go.

    **Timing.** Two steps behind `walker`, with which it shares `advance`. The tile position of a step's first
    byte is registered and multiplied by the pitch; `place` follows from the product. `shape`, `align`,
    `target` and `pitch` must hold.
    """

    def __init__(self, shape: BufferShape, width: int, walker: PatchWalker):
        self._shape, self._width, self._walker = shape, width, walker
        super().__init__(
            {
                "advance": In(1),
                "shape": In(PatchShape),
                "align": In(log2(width)),
                "target": In(place_bits(shape.columns)),
                "pitch": In(place_bits(shape.columns)),
                "place": Out(place_layout(shape, width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, walker = self._width, self._walker
        shift = log2(width)
        where = self._where = Signal(place_layout(self._shape, width), name="where")
        column, skip = self._columns(m, walker)
        left, none = Signal(signed(COLUMN_BITS + 1)), Signal()
        first_read, reads = Signal(init=1), Signal()  # no request in this row yet; this step requests
        m.d.comb += reads.eq(walker.first_of_beat & walker.reads)
        m.d.comb += left.eq(self.shape.out_cols - column)
        placed = self._place(m, self._output_row(m, walker) + column, self._depth(m, walker))
        with m.If(self.advance):
            m.d.sync += [
                where.told.eq(walker.active & ~walker.preparing),
                where.checks.eq(walker.first_of_row & walker.line_in_memory),
                where.starts.eq(first_read),
                first_read.eq(~walker.placing | walker.end_of_row | (first_read & ~reads)),
                where.last.eq(walker.last),
                where.reads.eq(reads),
                *self._bytes(walker),
                *placed,
                where.skip.eq(Mux(skip[shift:].any(), width, skip)),
                # -column, and one step later left, both clamped to 0 ... width.
                where.write_from.eq(
                    Mux(column[-1], Mux(column[shift:].all(), width - column[:shift], width), 0)
                ),
                none.eq(left[-1] | ~walker.placing),
                where.write_to.eq(Cat(left[:shift], left[shift:-1].any())),
                self.place.write_to.eq(Mux(none, 0, Mux(where.write_to[-1], width, where.write_to))),
            ]
        return m

    def _bytes(self, walker: PatchWalker) -> list[Any]:
        """Which bytes of the beat come from memory, and which are pixels at all."""
        width, where = self._width, self._where
        shift = log2(width)
        last_read, last_used = walker.last_read[:shift] + 1, walker.last_used[:shift] + 1
        return [
            where.read_from.eq(Mux(walker.at_first_read, walker.first_read[:shift], 0)),
            where.read_to.eq(Mux(walker.reads, Mux(walker.at_last_read, last_read, width), 0)),
            where.used_to.eq(Mux(walker.at_last_used, last_used, width)),
        ]

    def _columns(self, m: Module, walker: PatchWalker) -> tuple[Value, Value]:
        """The output column of the first byte used, and the number of this byte in the beat."""
        shape = self.shape
        dividends = {
            "dilation": shape.dilation_w,
            "beat": Const(self._width, log2(self._width) + 1),
            "align": self.align,
        }
        by = {}
        for name, dividend in dividends.items():
            by[name] = divider = Divider(len(dividend))
            m.submodules[f"{name}_by_stride"] = divider
            m.d.comb += [
                divider.step.eq(walker.dividing & self.advance),
                divider.number.eq(walker.number),
                divider.dividend.eq(dividend),
                divider.divisor.eq(shape.stride_w),
            ]
        # skip = column*stride_w + j*dilation_w - (pixel of byte 0), with 0 <= skip < stride_w.
        column, beat_column = (Signal(signed(COLUMN_BITS), name=n) for n in ("column", "beat_column"))
        skip, beat_skip = (Signal(isa.KERNEL_BITS, name=n) for n in ("skip", "beat_skip"))
        further, less = Signal(isa.KERNEL_BITS + 1), Signal(signed(isa.KERNEL_BITS + 2))
        beat_less, over, under = Signal(signed(isa.KERNEL_BITS + 1)), Signal(), Signal()
        following, following_skip = Signal(signed(COLUMN_BITS)), Signal(isa.KERNEL_BITS)
        m.d.comb += [
            further.eq(skip + by["dilation"].remainder),
            less.eq(further - shape.stride_w),
            over.eq(~less[-1]),
            beat_less.eq(beat_skip - by["beat"].remainder),
            under.eq(beat_less[-1]),
            following.eq(total(beat_column, by["beat"].quotient, under)),
            following_skip.eq(beat_less + Mux(under, shape.stride_w, 0)),
        ]
        # Where the columns restart: at a new row, at the next beat, or again at this beat.
        fresh, again, again_skip = Signal(), Signal(signed(COLUMN_BITS)), Signal(isa.KERNEL_BITS)
        m.d.comb += [
            fresh.eq(walker.end_of_row | ~walker.placing),
            again.eq(beat_column),
            again_skip.eq(beat_skip),
        ]
        with m.If(fresh):
            m.d.comb += [again.eq(-by["align"].quotient), again_skip.eq(by["align"].remainder)]
        with m.Elif(walker.end_of_beat):
            m.d.comb += [again.eq(following), again_skip.eq(following_skip)]
        with m.If(self.advance):
            m.d.sync += [beat_column.eq(again), beat_skip.eq(again_skip)]
            with m.If(walker.end_of_columns | ~walker.placing):
                m.d.sync += [column.eq(again), skip.eq(again_skip)]
            with m.Else():
                m.d.sync += [
                    column.eq(difference(column, by["dilation"].quotient, over)),
                    skip.eq(Mux(over, less, further)),
                ]
        return column, skip

    def _output_row(self, m: Module, walker: PatchWalker) -> Value:
        """Position of the output row in the tile.

        The kernel rows that use an image row are equally spaced, and so are their output rows.
        """
        out_cols = self.shape.out_cols
        # Output rows, as positions of their first element: dilation_h div stride_h (`turn`; `turns` is one
        # row more), image row y, the current scan step and the previous one, the first kernel row found, the
        # current one, and the distance between two.
        turn, turns, line, scan, before, first, now, apart = (
            Signal(PLACE_BITS, name=f"place_{n}")
            for n in ("turn", "turns", "line", "scan", "before", "first", "now", "apart")
        )
        following = line + Mux(walker.next_output_row, out_cols, 0)
        with m.If(self.advance):
            with m.If(walker.dividing):
                # Multiplies by the quotient while the divider produces it.
                higher = Mux(walker.number == 0, 0, turn << 1)
                m.d.sync += turn.eq(higher + Mux(walker.quotient_bit, out_cols, 0))
            with m.If(walker.preparing):
                m.d.sync += [turns.eq(turn + out_cols), line.eq(0), scan.eq(0)]
            with m.If(walker.scanning):
                m.d.sync += [scan.eq(scan - Mux(walker.borrow, turns, turn)), before.eq(scan)]
            with m.If(walker.found & ~walker.used):
                m.d.sync += [first.eq(before), now.eq(before)]
            with m.If(walker.found & walker.used & ~walker.twice):
                m.d.sync += apart.eq(first - before)
            with m.If(walker.end_of_columns):
                m.d.sync += now.eq(now - apart)
            with m.If(walker.end_of_beat):
                m.d.sync += now.eq(first)
            with m.If(walker.end_of_line):
                m.d.sync += [line.eq(following), scan.eq(following)]
        return now

    def _depth(self, m: Module, walker: PatchWalker) -> Value:
        """The column of the depth step in the first block.

        A column beyond the buffer is only marked as such (`hw.rtl.bits.place`).
        """
        columns = self._shape.columns
        # Depth steps within a channel: of the current scan step and the previous one, the first kernel row
        # found, the current one, and the distance between two. After the scan, `scan` is the depth of a
        # channel.
        scan, before, first, now, apart = (
            Signal(place_bits(columns), name=f"depth_{n}")
            for n in ("scan", "before", "first", "now", "apart")
        )
        deeper = Signal(place_bits(columns))
        start, step = Signal(place_bits(columns)), Signal(isa.KERNEL_BITS)  # of the channel; in a kernel row
        m.d.comb += deeper.eq(place(scan + self.shape.kernel_w, columns))
        with m.If(self.advance):
            with m.If(walker.scanning):
                m.d.sync += [scan.eq(deeper), before.eq(scan), step.eq(0)]
            with m.If(walker.found & ~walker.used):
                m.d.sync += [first.eq(before), now.eq(before)]
            with m.If(walker.found & walker.used & ~walker.twice):
                m.d.sync += apart.eq(Cat((before - first)[: log2(columns)], before[-1]))
            with m.If(walker.placing):
                m.d.sync += step.eq(step + 1)
            with m.If(walker.end_of_columns):
                m.d.sync += [step.eq(0), now.eq(place(now + apart, columns))]
            with m.If(walker.end_of_beat):
                m.d.sync += now.eq(first)
            with m.If(walker.end_of_row):
                m.d.sync += start.eq(place(start + scan, columns))
            with m.If(walker.begins_line):
                m.d.sync += [scan.eq(0), start.eq(self.target)]
        return place(start + now + step, columns)

    def _place(self, m: Module, position: Value, depth: Value) -> list[Any]:
        """Lane and columns of the first byte used, written or not; returns the statements to register.

        The low bits of the pitch are constant (other values are an error), so they are left out of the
        product.
        """
        buffer = self._shape
        lane_bits, bank_bits, far_bits = log2(buffer.lanes), log2(buffer.banks), log2(buffer.columns)
        kept, kept_depth = Signal(signed(PLACE_BITS)), Signal(place_bits(buffer.columns))
        number = kept[lane_bits:].as_signed()
        product = Signal(signed(PLACE_BITS - lane_bits + place_bits(buffer.columns) - bank_bits))
        low_pitch = buffer.lanes % buffer.banks
        low_part = number * low_pitch
        low_far = number[far_bits - lane_bits : -1].any() if low_pitch else Const(0)
        # Columns relative to the depth step in the tile's first block, and that step's column; `far`: beyond
        # every buffer.
        further, first_block = Signal(len(self.place.block)), Signal(len(kept_depth))
        far = Signal()
        m.d.comb += [
            product.eq(number * self.pitch[bank_bits:]),
            self.place.block.eq(first_block + Mux(far, buffer.columns, further)),
        ]
        with m.If(self.advance):
            m.d.sync += [
                *[self.place[name].eq(self._where[name]) for name in (*_FLAGS, *_NUMBERS)],
                self.place.start.eq(kept),
                further.eq((product << bank_bits) + low_part),
                first_block.eq(kept_depth),
                far.eq(~kept[-1] & (product[far_bits - bank_bits : -1].any() | low_far)),
            ]
        return [kept.eq(position), kept_depth.eq(depth)]
