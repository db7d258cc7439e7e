"""The request half of `load_b_conv`: memory requests of its steps, and checks of its operands."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import BufferShape
from hw.rtl.bits import log2, place_bits
from hw.rtl.interfaces import operation
from hw.rtl.memory.patch_places import PatchPlaces, place_layout
from hw.rtl.memory.patches import NONZERO, PatchShape, PatchWalker

#: Index of `load_b_conv` among the instructions of its engine.
VARIANT = isa.of_engine("load_b").index(isa.INSTRUCTIONS["load_b_conv"])


def shape_of(op: Value) -> Value:
    """The geometry in an operation of load_b, as a `PatchShape`."""
    return Cat(getattr(op, f"conv_{name}") for name in PatchShape.members)


class PatchRequests(Component):
    """Walks the steps of a `load_b_conv` in step with the pipeline of its loader.

    The loader keeps the address of the current row of a channel: `deciding` sets it to that of the image row,
    `end_of_row` advances it to the next channel. `leaves_line` means that an image row that is in memory
    ends, for all channels. `place` describes the step in the last stage; the writer receives it if `told` is
    1.

    **Timing.** `begin` begins an operation in the next cycle; it may be 1 only while no operation is active.
    `operation`, `target`, `pitch` must hold from then on; of `memory` only the alignment matters. A step ends
    in each cycle in which `advance` is 1; two such cycles later it is in `place`. `wrong` is valid from the
    third cycle of an operation on.
    """

    def __init__(self, buffer: BufferShape, width: int):
        self._buffer, self._width = buffer, width
        column = place_bits(buffer.columns)
        super().__init__(
            {
                "begin": In(1),
                "operation": In(operation("load_b")),
                "target": In(column),
                "pitch": In(column),
                "advance": In(1),
                "active": Out(1),
                "wrong": Out(1),
                "deciding": Out(1),
                "end_of_row": Out(1),
                "leaves_line": Out(1),
                "place": Out(place_layout(buffer, width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        op, width = self.operation, self._width
        m.submodules.walker = walker = PatchWalker(width, isa.TIMING.conv_setup)
        m.submodules.places = places = PatchPlaces(self._buffer, width, walker)
        align = Signal(log2(width))
        m.d.comb += [
            align.eq(op.memory - op.conv_left),
            walker.start.eq(self.begin),
            walker.outer.eq(op.outer),
            walker.span.eq(op.inner - 1),
            places.target.eq(self.target),
            places.pitch.eq(self.pitch),
            *[part.advance.eq(self.advance) for part in (walker, places)],
            *[part.shape.eq(shape_of(op)) for part in (walker, places)],
            *[part.align.eq(align) for part in (walker, places)],
            self.active.eq(walker.active),
            self.deciding.eq(walker.deciding),
            self.end_of_row.eq(walker.end_of_row),
            self.leaves_line.eq(walker.end_of_line & walker.line_in_memory),
            self.place.eq(places.place),
        ]
        refused = Signal()
        m.d.sync += refused.eq(self._wrong_operands())
        m.d.comb += self.wrong.eq(refused | self._large(m))
        return m

    def _wrong_operands(self) -> Value:
        """Whether the operands are invalid for `load_b_conv`, apart from sizes that are too large."""
        op, buffer = self.operation, self._buffer
        zero = Cat(getattr(op, f"conv_{name}") == 0 for name in NONZERO).any()
        shift, bank_bits = log2(self._width), log2(buffer.banks)
        unaligned = op.load_stride[:shift].any() | op.conv_line[:shift].any()
        return zero | unaligned | (op.load_pitch[:bank_bits] != buffer.lanes % buffer.banks)

    def _large(self, m: Module) -> Value:
        """Whether the tile or its depth is too large."""
        op = self.operation
        tile, kernel, depth = (Signal(2 * isa.SIZE_BITS, name=n) for n in ("tile", "kernel", "depth"))
        m.d.sync += [
            depth.eq(op.outer * kernel[: isa.SIZE_BITS]),
            tile.eq(op.conv_out_rows * op.conv_out_cols),
            kernel.eq(op.conv_kernel_h * op.conv_kernel_w),
        ]
        return (tile | depth)[isa.SIZE_BITS :].any()
