"""The asking half of a loader: walks the rows of an operation and requests their words."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.bits import log2
from hw.config import BufferShape, MachineConfig
from hw.interfaces import PC_BITS, WARP_BITS, ErrorReport, ReadRequest, operation, windows_layout

#: What the writer needs of an operation.
Descriptor = data.StructLayout(
    {
        "low": 7,  # memory address modulo the port's bytes
        "step": 7,  # load_stride modulo the port's bytes
        "target": isa.BUFFER_BITS,
        "outer": isa.SIZE_BITS,
        "inner": isa.SIZE_BITS,
        "pitch": isa.BUFFER_BITS,
        "fill": 8,
        "pad_outer": isa.SIZE_BITS,
        "pad_inner": isa.SIZE_BITS,
        "lanes_first": 1,  # the `_t` form
        "warp": WARP_BITS,
        "pc": PC_BITS,
    }
)


def loader_target(config: MachineConfig, port: str) -> BufferShape:
    """The buffer that a loader writes."""
    d = config.derived
    return {"load_a": d.buffer_a, "load_b": d.buffer_b, "load_c": d.scratch}[port]


class LoadRequests(Component):
    """The asking half of a loader.

    **Timing.** Takes an operation in cycle s; its first beat enters the request register in s + 1 at the
    earliest and is presented one cycle later. One beat per cycle, no bubble between operations.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._config, self._port = config, port
        self._width = config.port_bytes(port)
        self._shape = loader_target(config, port)
        super().__init__(
            {
                "operation": In(stream.Signature(operation(port))),
                "request": Out(stream.Signature(ReadRequest)),
                "taken": Out(stream.Signature(Descriptor, always_ready=True)),
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
        in_memory = Signal()
        m.d.comb += [
            in_memory.eq(~filling & ~tail),
            outside.eq(active & in_memory & row_start & ~inside & ~self.stop),
            advance.eq(active & free & ~outside & ~self.stop),
            enter.eq(advance),
        ]
        with m.If(free):
            m.d.sync += [valid.eq(enter), is_fill.eq(~in_memory), address.eq(beat)]

        # What the beat that enters is the last of.
        row_done, op_done = Signal(), Signal()
        end_of_segment = Mux(in_memory, beat == last[shift:], fills == 1)
        has_fill = in_memory & (fill_beats != 0)
        m.d.comb += row_done.eq(end_of_segment & ~has_fill)
        last_row = Mux(tail, tails == 1, (rows == 1) & (tails == 0))
        m.d.comb += op_done.eq(advance & row_done & last_row)
        next_first = (first + stride)[:32]
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
                        last.eq(next_first + span),
                        beat.eq(next_first[shift:]),
                        row_start.eq(1),
                    ]

        # Taking an operation: the walker is idle, or its last beat just enters.
        take, bad = Signal(), Signal()
        reach = op.inner + op.load_pad_inner
        m.d.comb += [
            take.eq(self.operation.valid & (~active | op_done) & self.room & ~self.stop),
            self.operation.ready.eq(take),
        ]
        conflict = (
            op.variant[0]
            & (reach > shape.lanes)
            & (op.load_pitch[: log2(shape.banks)] != shape.lanes % shape.banks)
        )
        m.d.comb += bad.eq(take & ((op.outer == 0) | (op.inner == 0) | conflict))
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
        return m
