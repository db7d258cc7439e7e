"""The asking half of a loader: walks the rows of an operation and requests their words."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.bits import log2
from hw.config import BufferShape, MachineConfig
from hw.interfaces import PC_BITS, WARP_BITS, ErrorReport, ReadRequest, operation, windows_layout
from hw.memory.patch_requests import VARIANT, PatchRequests, shape_of, wrong_operands
from hw.memory.patches import PatchShape

#: What the writer needs of an operation.
_PLAIN = {
    "low": 7,  # address of the first byte (of patches: of pixel 0) modulo the port's bytes
    "step": 7,  # load_stride modulo the port's bytes
    "target": isa.BUFFER_BITS,
    "outer": isa.SIZE_BITS,
    "inner": isa.SIZE_BITS,
    "pitch": isa.BUFFER_BITS,
    "fill": 8,
    "pad_outer": isa.SIZE_BITS,
    "pad_inner": isa.SIZE_BITS,
    "lanes_first": 1,  # the bytes of a beat are successive lanes: the `_t` form and patches
    "warp": WARP_BITS,
    "pc": PC_BITS,
}


def forms_patches(port: str) -> bool:
    """Whether a loader has the hardware of `load_b_conv`."""
    return port == "load_b"


def descriptor(port: str) -> data.StructLayout:
    """What the writer of a loader needs of an operation."""
    return data.StructLayout(_PLAIN | ({"patches": 1, "geometry": PatchShape} if forms_patches(port) else {}))


def loader_target(config: MachineConfig, port: str) -> BufferShape:
    """The buffer that a loader writes."""
    d = config.derived
    return {"load_a": d.buffer_a, "load_b": d.buffer_b, "load_c": d.scratch}[port]


class LoadRequests(Component):
    """The asking half of a loader.

    **Timing.** Takes an operation in cycle s; its first beat enters the request register in s + 1 at the
    earliest and is presented one cycle later. One beat per cycle, no bubble between operations. The steps of
    `load_b_conv` pass through the request register like beats, most of them like fill beats.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._config, self._port = config, port
        self._width = config.port_bytes(port)
        self._shape = loader_target(config, port)
        super().__init__(
            {
                "operation": In(stream.Signature(operation(port))),
                "request": Out(stream.Signature(ReadRequest)),
                "taken": Out(stream.Signature(descriptor(port), always_ready=True)),
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

        # The row walker: memory beats of a row, fill beats of a row, fill beats of the rows after the last.
        active, filling, tail = Signal(), Signal(), Signal()
        first, last = Signal(32), Signal(32)  # bytes of the current row
        beat = Signal(32 - shift)
        rows, tails = Signal(isa.SIZE_BITS), Signal(isa.SIZE_BITS)
        fills = Signal(isa.SIZE_BITS + 1)  # fill beats left in this row
        row_start = Signal()
        stride, span = Signal(32), Signal(isa.SIZE_BITS)  # span: inner - 1
        fill_beats, tail_beats = Signal(isa.SIZE_BITS + 1), Signal(isa.SIZE_BITS + 1)
        who = Signal(ErrorReport)

        valid, is_fill, address = Signal(), Signal(), Signal(32 - shift)
        free, enter, advance = Signal(), Signal(), Signal()
        m.d.comb += [
            self.request.valid.eq(valid & ~is_fill),
            self.request.payload.eq(address << shift),
            free.eq(~valid | is_fill | self.request.ready),
            self.busy.eq(valid & (is_fill | self.request.ready)),
            self.stall_memory.eq(valid & ~is_fill & ~self.request.ready),
        ]

        inside = Cat(
            (first >= w.first) & (last <= w.last) & (last >= first) & w.read for w in self.windows
        ).any()
        outside = Signal()
        in_memory, reads = Signal(), Signal()
        m.d.comb += [
            in_memory.eq(~filling & ~tail),
            outside.eq(active & in_memory & row_start & ~inside & ~self.stop),
            advance.eq(active & free & ~outside & ~self.stop),
            enter.eq(advance),
            reads.eq(in_memory),
        ]
        with m.If(free):
            m.d.sync += [valid.eq(enter), is_fill.eq(~reads), address.eq(beat)]

        # What the beat that enters is the last of.
        row_done, op_done = Signal(), Signal()
        end_of_segment = Mux(in_memory, beat == last[shift:], fills == 1)
        has_fill = in_memory & (fill_beats != 0)
        m.d.comb += row_done.eq(end_of_segment & ~has_fill)
        last_row = Mux(tail, tails == 1, (rows == 1) & (tails == 0))
        m.d.comb += op_done.eq(advance & row_done & last_row)
        next_first = Signal(32)
        next_last = (next_first + span)[:32]
        m.d.comb += next_first.eq(first + stride)
        with m.If(advance):
            m.d.sync += [beat.eq(beat + 1), row_start.eq(0)]
            with m.If(~in_memory):
                m.d.sync += fills.eq(fills - 1)
            with m.If(end_of_segment & has_fill):
                m.d.sync += [filling.eq(1), fills.eq(fill_beats)]
            with m.If(row_done):
                m.d.sync += filling.eq(0)
                with m.If(tail):
                    m.d.sync += [tails.eq(tails - 1), fills.eq(tail_beats)]
                with m.Elif(rows == 1):
                    m.d.sync += [tail.eq(1), fills.eq(tail_beats)]
                with m.Else():
                    m.d.sync += [
                        rows.eq(rows - 1),
                        first.eq(next_first),
                        last.eq(next_last),
                        beat.eq(next_first[shift:]),
                        row_start.eq(1),
                    ]

        # Taking an operation: the walker is idle, or its last beat just enters.
        take, bad, idle, refused = Signal(), Signal(), Signal(), Signal()
        reach = op.inner + op.load_pad_inner
        m.d.comb += [
            idle.eq(~active | op_done),
            take.eq(self.operation.valid & idle & self.room & ~self.stop),
            self.operation.ready.eq(take),
        ]
        empty = (op.outer == 0) | (op.inner == 0)
        conflict = (
            op.variant[0]
            & (reach > shape.lanes)
            & (op.load_pitch[: log2(shape.banks)] != shape.lanes % shape.banks)
        )
        m.d.comb += [
            refused.eq(empty | conflict),
            bad.eq(take & refused),
        ]
        with m.If(take):
            m.d.sync += [
                active.eq(~bad),
                filling.eq(0),
                tail.eq(0),
                first.eq(op.memory),
                last.eq(op.memory + op.inner - 1),
                beat.eq(op.memory[shift:]),
                row_start.eq(1),
                rows.eq(op.outer),
                tails.eq(op.load_pad_outer),
                stride.eq(op.load_stride),
                span.eq(op.inner - 1),
                fill_beats.eq((op.load_pad_inner + (width - 1)) >> shift),
                tail_beats.eq((reach + (width - 1)) >> shift),
                who.warp.eq(op.warp),
                who.pc.eq(op.pc),
            ]
        with m.Elif(op_done):
            m.d.sync += active.eq(0)
        t = self.taken.payload
        m.d.comb += [
            self.taken.valid.eq(take & ~bad),
            t.low.eq(op.memory[:shift]),
            t.step.eq(op.load_stride[:shift]),
            t.target.eq(op.target),
            t.outer.eq(op.outer),
            t.inner.eq(op.inner),
            t.pitch.eq(op.load_pitch),
            t.fill.eq(op.load_fill),
            t.pad_outer.eq(op.load_pad_outer),
            t.pad_inner.eq(op.load_pad_inner),
            t.lanes_first.eq(op.variant[0]),
            t.warp.eq(op.warp),
            t.pc.eq(op.pc),
        ]

        report = self.error_report
        with m.If(bad):
            m.d.comb += [
                self.error.eq(1),
                report.cause.eq(isa.Cause.OPERAND),
                report.warp.eq(op.warp),
                report.pc.eq(op.pc),
            ]
        with m.Elif(outside):
            m.d.comb += [
                self.error.eq(1),
                report.cause.eq(isa.Cause.WINDOW),
                report.warp.eq(who.warp),
                report.pc.eq(who.pc),
            ]
        if not forms_patches(self._port):
            return m

        # `load_b_conv`: its own walker beside that of the rows, which stays at rest; the request register,
        # the address of the row and the check of windows are shared.
        m.submodules.patches = patches = PatchRequests(width)
        of_patches = op.variant == VARIANT
        m.d.comb += [
            patches.start.eq(take & ~bad & of_patches),
            patches.operation.eq(op),
            patches.go.eq(free & ~self.stop),
            patches.inside.eq(inside),
            patches.first.eq(first),
            patches.stride.eq(stride),
            patches.next_first.eq(next_first),
            enter.eq(advance | patches.enter),
            reads.eq(Mux(patches.active, patches.reads, in_memory)),
            next_first.eq(patches.base + patches.gap),
            idle.eq((~active & ~patches.active) | op_done | patches.done),
            refused.eq(Mux(of_patches, empty | wrong_operands(op, shape, width), empty | conflict)),
            # No field in a condition of its own: Verilog's writer would make a latch of a part of a signal.
            t.patches.eq(of_patches),
            t.geometry.eq(shape_of(op)),
            t.lanes_first.eq(op.variant != 0),
            t.low.eq((op.memory - Mux(of_patches, op.conv_left, 0))[:shift]),
        ]
        with m.If(take & of_patches):
            m.d.sync += active.eq(0)
        with m.If(patches.enter):
            with m.If(patches.new_beat):
                m.d.sync += beat.eq(beat + 1)
            with m.If(patches.new_row):
                m.d.sync += [
                    first.eq(next_first),
                    last.eq(next_last),
                    beat.eq((next_first - patches.left)[shift:]),
                ]
        with m.If(patches.outside | patches.wrong):
            m.d.comb += [
                self.error.eq(1),
                report.cause.eq(Mux(patches.wrong, isa.Cause.OPERAND, isa.Cause.WINDOW)),
                report.warp.eq(who.warp),
                report.pc.eq(who.pc),
            ]
        return m
