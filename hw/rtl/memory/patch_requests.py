"""The asking half of `load_b_conv`: what its steps request, and what is wrong with its operands."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out, Signature

from hw import isa
from hw.config import BufferShape
from hw.rtl.bits import log2, place_bits
from hw.rtl.interfaces import operation
from hw.rtl.memory.patch_places import PatchPlaces, place_layout
from hw.rtl.memory.patches import NONZERO, PatchShape, PatchWalker

#: `load_b_conv` among the instructions of its engine.
VARIANT = isa.of_engine("load_b").index(isa.INSTRUCTIONS["load_b_conv"])


def shape_of(op: Value) -> Value:
    """The geometry in an operation of load_b, as a `PatchShape`."""
    return Cat(getattr(op, f"conv_{name}") for name in PatchShape.members)


def wrong_operands(op: Value, buffer: BufferShape, width: int) -> Value:
    """Whether an operation of load_b would be refused as a `load_b_conv`."""
    zero = Cat(getattr(op, f"conv_{name}") == 0 for name in NONZERO).any()
    shift, bank_bits = log2(width), log2(buffer.banks)
    unaligned = op.load_stride[:shift].any() | op.conv_line[:shift].any()
    return zero | unaligned | (op.load_pitch[:bank_bits] != buffer.lanes % buffer.banks)


def patch_requests(buffer: BufferShape, width: int) -> Signature:
    """The ports of `PatchRequests`."""
    column = place_bits(buffer.columns)
    return Signature(
        {
            "start": In(1),
            "operation": In(operation("load_b")),
            "span": In(isa.SIZE_BITS),
            "target": In(column),
            "pitch": In(column),
            "go": In(1),
            "inside": In(1),  # whether the present row is in a window
            "first": In(32),
            "stride": In(32),
            "next_first": In(32),
            "active": Out(1),
            "enter": Out(1),
            "reads": Out(1),
            "outside": Out(1),
            "wrong": Out(1),
            "base": Out(32),
            "gap": Out(32),
            "new_row": Out(1),
            "first_read": Out(1),
            "placed": Out(1),
            "place": Out(place_layout(buffer, width)),
        }
    )


class PatchRequests(Component):
    """Walks the steps of a `load_b_conv` in time with the request register of its loader.

    The loader keeps the address of the present row (`first`) and computes that of the next, `base + gap`;
    with the step that ends (`enter`), `new_row` says that the next row begins. `first_read` is 1 up to the
    first request of a row. Between operations the next row is `stride` behind the present one.

    **Timing.** `start` with `operation` begins a new operation in the next cycle; it may come while none is
    under way; `span`, `target`, `pitch` must hold from then on. A step ends with each cycle in which `enter`
    is 1, which takes `go`; the request of a step that is the first of a memory beat (`reads`) enters the
    register in that cycle. In the next cycle `placed` says what the writer does in it (`place`).
    """

    def __init__(self, buffer: BufferShape, width: int):
        self._buffer, self._width = buffer, width
        super().__init__(patch_requests(buffer, width))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        setup, op, width = isa.TIMING.conv_setup, self.operation, self._width
        m.submodules.walker = walker = PatchWalker(width, setup)
        m.submodules.places = places = PatchPlaces(self._buffer, width, walker)
        shape = Signal(PatchShape)
        outer = Signal(isa.SIZE_BITS)
        align = Signal(log2(width))
        line = Signal(32)  # address of the image row in the first channel
        line_stride = Signal(32)
        m.d.comb += [
            walker.start.eq(self.start),
            walker.outer.eq(outer),
            walker.span.eq(self.span),
            places.target.eq(self.target),
            places.pitch.eq(self.pitch),
            *[part.advance.eq(self.enter) for part in (walker, places)],
            *[part.shape.eq(shape) for part in (walker, places)],
            *[part.align.eq(align) for part in (walker, places)],
            self.active.eq(walker.active),
            self.wrong.eq(
                self.go & walker.preparing & (walker.number == setup - 1) & self._large(m, shape, outer)
            ),
            self.outside.eq(self.go & walker.first_of_row & walker.line_in_memory & ~self.inside),
            self.enter.eq(self.go & walker.active),
            self.reads.eq(walker.first_of_beat & walker.reads),
            self.base.eq(Mux(walker.end_of_line, line, self.first)),
            self.gap.eq(Mux(walker.end_of_line, Mux(walker.line_in_memory, line_stride, 0), self.stride)),
            # Behind the last row, too: that of the next operation is loaded before anything of it happens.
            self.new_row.eq(walker.end_of_line | walker.end_of_row),
            self.placed.eq(places.valid),
            self.place.eq(places.place),
        ]
        with m.If(self.enter):
            m.d.sync += self.first_read.eq(self.new_row | (self.first_read & ~self.reads))
        with m.If(self.enter & walker.end_of_line):
            m.d.sync += line.eq(self.next_first)
        with m.If(~walker.active):
            m.d.sync += [
                self.first_read.eq(1),
                shape.eq(shape_of(op)),
                outer.eq(op.outer),
                align.eq(op.memory - op.conv_left),
                line.eq(op.memory),
                line_stride.eq(op.conv_line),
            ]
        return m

    def _large(self, m: Module, shape: Value, channels: Value) -> Value:
        """Whether the tile or its depth is too large; there is plenty of time until the last setup step."""
        tile, kernel, depth = (Signal(2 * isa.SIZE_BITS, name=n) for n in ("tile", "kernel", "depth"))
        m.d.sync += [
            tile.eq(shape.out_rows * shape.out_cols),
            kernel.eq(shape.kernel_h * shape.kernel_w),
            depth.eq(channels * kernel[: isa.SIZE_BITS]),
        ]
        return (tile | depth)[isa.SIZE_BITS :].any()
