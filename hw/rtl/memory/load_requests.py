"""The asking half of a loader: walks the rows of an operation and requests their words."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import BufferShape, MachineConfig
from hw.rtl.bits import at_most, log2, place, place_bits
from hw.rtl.interfaces import (
    PC_BITS,
    WARP_BITS,
    ErrorReport,
    ReadRequest,
    operation,
    report_of,
    windows_layout,
)
from hw.rtl.memory.patch_requests import VARIANT, PatchRequests, shape_of, wrong_operands
from hw.rtl.memory.patches import PatchShape
from hw.rtl.memory.row_walker import RowWalker, rows_layout


def forms_patches(config: MachineConfig, port: str) -> bool:
    """Whether a loader has the hardware of `load_b_conv`."""
    return port == "load_b" and config.convolutions


def loader_target(config: MachineConfig, port: str) -> BufferShape:
    """The buffer that a loader writes."""
    d = config.derived
    return {"load_a": d.buffer_a, "load_b": d.buffer_b, "load_c": d.scratch}[port]


def descriptor(config: MachineConfig, port: str) -> data.StructLayout:
    """What the writer of a loader needs of an operation.

    Of patches `rows` has the alignment of pixel 0, channels and pixels of an image row. A target or pitch
    beyond the buffer is known as such (`hw.rtl.bits.place`).
    """
    bits = place_bits(loader_target(config, port).columns)
    members = {
        "rows": rows_layout(config.port_bytes(port)),
        "target": bits,
        "pitch": bits,
        "fill": 8,
        "lanes_first": 1,  # the bytes of a beat are successive lanes: the `_t` form and patches
        "warp": WARP_BITS,
        "pc": PC_BITS,
    }
    return data.StructLayout(
        members | ({"patches": 1, "geometry": PatchShape} if forms_patches(config, port) else {})
    )


class LoadRequests(Component):
    """The asking half of a loader.

    **Timing.** Takes an operation in cycle s; its first beat enters the request register in s + 1 at the
    earliest and is presented one cycle later. One beat per cycle, no bubble between operations. The steps of
    `load_b_conv` pass through the request register like beats, most of them like fill beats; what follows on
    it is taken one cycle behind its last step.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._config, self._port = config, port
        self._width = config.port_bytes(port)
        self._shape = loader_target(config, port)
        super().__init__(
            {
                "operation": In(stream.Signature(operation(port))),
                "request": Out(stream.Signature(ReadRequest)),
                "taken": Out(stream.Signature(descriptor(config, port), always_ready=True)),
                "room": In(1),
                "windows": In(windows_layout(config)),
                "stop": In(1),
                "error": Out(1),
                "error_report": Out(ErrorReport),
                "busy": Out(1),
                "stall_memory": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, shape = self._width, self._shape
        shift = log2(width)
        op = self.operation.payload
        m.submodules.walker = walker = RowWalker(width)

        first = Signal(32)  # first byte of the current row
        stride, span = Signal(32), Signal(isa.SIZE_BITS)  # span: inner - 1
        who = Signal(ErrorReport)
        valid, is_fill, address = Signal(), Signal(), Signal(32 - shift)
        free, enter, reads, starts = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.request.valid.eq(valid & ~is_fill),
            self.request.payload.eq(address << shift),
            free.eq(~valid | is_fill | self.request.ready),
            self.busy.eq(valid & (is_fill | self.request.ready)),
            self.stall_memory.eq(valid & ~is_fill & ~self.request.ready),
        ]

        inside, outside, fails = self._inside(m, first, span), Signal(), Signal()
        m.d.comb += [
            starts.eq(walker.first_of_row),
            reads.eq(walker.in_memory),
            outside.eq(walker.active & walker.in_memory & walker.first_of_row & ~inside),
            # A row that fails moves on too, but is not requested: everything stops in the next cycle. What
            # moves on behind a stop does not matter, for nothing is requested.
            walker.advance.eq(free),
            enter.eq(walker.active & free),
            fails.eq(outside),
        ]
        with m.If(free):
            m.d.sync += [valid.eq(enter & ~fails & ~self.stop), is_fill.eq(~reads)]
        with m.If(enter & reads):
            m.d.sync += address.eq(Mux(starts, first[shift:], address + 1))
        next_first = Signal(32)
        m.d.comb += next_first.eq(first + stride)
        # Taking an operation: nothing walks, or the last beat of plain rows just enters.
        take, bad, idle, refused, by_rows = Signal(), Signal(), Signal(), Signal(), Signal()
        new_first, renews = Signal(), Signal()  # `renews`: if there is another row, it is of an operation
        m.d.comb += [
            new_first.eq(free & walker.new_row & walker.more_rows),
            renews.eq(~walker.active | walker.last),
            idle.eq(~walker.active | (free & walker.last)),
            take.eq(self.operation.valid & idle & self.room & ~self.stop),
            self.operation.ready.eq(take),
        ]
        empty = (op.outer == 0) | (op.inner == 0)
        conflict = (
            op.variant[0]
            & ~at_most(op.inner + op.load_pad_inner, shape.lanes)
            & (op.load_pitch[: log2(shape.banks)] != shape.lanes % shape.banks)
        )
        m.d.comb += [
            refused.eq(empty | conflict),
            bad.eq(take & refused),
            by_rows.eq(take & ~bad),
            walker.start.eq(by_rows),
        ]
        # What it needs is loaded whenever one could be taken: nothing waits for whether it is.
        with m.If(idle | new_first):
            m.d.sync += first.eq(Mux(renews, op.memory, next_first))
        with m.If(idle):
            m.d.sync += [
                stride.eq(op.load_stride),
                span.eq(op.inner - 1),
                who.warp.eq(op.warp),
                who.pc.eq(op.pc),
            ]
        t, columns, banks = self.taken.payload, shape.columns, log2(shape.banks)
        reach = place(op.load_pitch, columns)
        m.d.comb += [
            # One that is bad stops everything before the writer does anything.
            self.taken.valid.eq(take),
            t.rows.low.eq(op.memory[:shift]),
            t.rows.step.eq(op.load_stride[:shift]),
            t.rows.outer.eq(op.outer),
            t.rows.inner.eq(op.inner),
            t.rows.pad_outer.eq(op.load_pad_outer),
            t.rows.pad_inner.eq(op.load_pad_inner),
            t.target.eq(place(op.target, columns)),
            t.pitch.eq(Cat(op.load_pitch[:banks], Mux(reach[-1], columns >> banks, reach[banks:]))),
            t.fill.eq(op.load_fill),
            t.lanes_first.eq(op.variant[0]),
            t.warp.eq(op.warp),
            t.pc.eq(op.pc),
            walker.rows.eq(t.rows),
        ]

        report = self.error_report
        m.d.comb += self.error.eq(bad | fails)
        with m.If(fails):
            m.d.comb += report_of(report, isa.Cause.WINDOW, who)
        with m.Else():
            m.d.comb += report_of(report, isa.Cause.OPERAND, op)
        if not forms_patches(self._config, self._port):
            return m

        # `load_b_conv`: its own walker beside that of the rows, which stays at rest; the request register,
        # the address of the row and the check of windows are shared.
        m.submodules.patches = patches = PatchRequests(width)
        of_patches = op.variant == VARIANT
        m.d.comb += [
            patches.start.eq(take & ~bad & of_patches),
            patches.operation.eq(op),
            patches.go.eq(free),
            patches.inside.eq(inside),
            patches.first.eq(first),
            patches.stride.eq(stride),
            patches.next_first.eq(next_first),
            by_rows.eq(take & ~bad & ~of_patches),
            enter.eq(free & (walker.active | patches.active)),
            reads.eq(Mux(patches.active, patches.reads, walker.in_memory)),
            starts.eq(Mux(patches.active, patches.first_read, walker.first_of_row)),
            next_first.eq(patches.base + patches.gap),
            new_first.eq(free & ((walker.new_row & walker.more_rows) | patches.new_row)),
            fails.eq(outside | patches.outside | patches.wrong),
            # What is behind patches is taken a cycle after their last step, which is known late.
            renews.eq(~patches.active & (~walker.active | walker.last)),
            idle.eq(~patches.active & (~walker.active | (free & walker.last))),
            refused.eq(Mux(of_patches, empty | wrong_operands(op, shape, width), empty | conflict)),
            # No field in a condition of its own: Verilog's writer would make a latch of a part of a signal.
            t.patches.eq(of_patches),
            t.geometry.eq(shape_of(op)),
            t.lanes_first.eq(op.variant != 0),
            t.rows.low.eq((op.memory - Mux(of_patches, op.conv_left, 0))[:shift]),
        ]
        with m.If(patches.wrong):
            m.d.comb += report.cause.eq(isa.Cause.OPERAND)
        return m

    def _inside(self, m: Module, first: Value, span: Value) -> Value:
        """Whether a row lies wholly in one window that permits reading."""
        last = Signal(33)
        m.d.comb += last.eq(first + span)
        within = [(first >= w.first) & (last[:32] <= w.last) & w.read for w in self.windows]
        return Cat(within).any() & ~last[32]
