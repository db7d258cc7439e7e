"""Loader: turns `load_*` operations into memory requests, and answers into buffer writes.

Two halves share a small queue of operations in flight. `LoadRequests` walks the rows and asks;
`LoadWriter` walks the same rows again when the answers come and puts every byte where it belongs. So
nothing has to be stored per request, whatever the latency. im2col addressing will be a second walker
beside the row walker in both halves.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw import isa
from hw.bits import log2, low, range_mask, rotate_left
from hw.config import BufferShape, MachineConfig
from hw.interfaces import (
    INNER_BITS,
    PC_BITS,
    WARP_BITS,
    EngineControl,
    ErrorReport,
    ReadPort,
    ReadRequest,
    operation,
    read_response,
    windows_layout,
)
from hw.memory.buffer import BankedWrite, address_bits

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


class LoadWriter(Component):
    """The answering half of a loader: places bytes into the banks.

    **Timing.** An answer in cycle y is written in y + 2, readable in y + 3; if it was the operation's last
    beat, `complete` is 1 in y + 3. Fill beats follow their predecessor in the next cycle.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._width = config.port_bytes(port)
        self._shape = loader_target(config, port)
        super().__init__(
            {
                "taken": In(stream.Signature(Descriptor)),
                "response": In(stream.Signature(read_response(self._width))),
                "write": Out(BankedWrite(self._shape)),
                "stop": In(1),
                "complete": Out(1),
                "complete_warp": Out(WARP_BITS),
                "error": Out(1),
                "error_report": Out(ErrorReport),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        walk = self._walk(m)
        self._place(m, walk)
        return m

    def _walk(self, m: Module) -> _Beat:
        """The row walker; returns the beat that is processed in this cycle."""
        width, shape = self._width, self._shape
        shift, lane_bits, bank_bits = log2(width), log2(shape.lanes), log2(shape.banks)
        d = Signal(Descriptor)
        active, filling, tail = Signal(), Signal(), Signal()
        rows, tails = Signal(isa.SIZE_BITS), Signal(isa.SIZE_BITS)
        row_low = Signal(shift)  # memory alignment of the current row
        first, left = Signal(shift), Signal(isa.SIZE_BITS + 2)  # valid bytes of the beat: [first, left)
        lane = Signal(max(1, lane_bits))
        base = Signal(INNER_BITS)  # column of element 0 of the row
        column = Signal(INNER_BITS)  # depth-first form: column of byte 0 of the beat
        position = Signal(bank_bits)  # lanes-first form: lane index of byte 0, modulo the banks
        block = Signal(INNER_BITS)  # lanes-first form: column of the block of byte 0

        in_memory, step = Signal(), Signal()
        m.d.comb += [
            in_memory.eq(~filling & ~tail),
            step.eq(active & ~self.stop & (~in_memory | self.response.valid)),
            self.response.ready.eq(self.stop | (active & in_memory)),
        ]
        segment_done, row_done, op_done = Signal(), Signal(), Signal()
        has_fill = in_memory & (d.pad_inner != 0)
        m.d.comb += [
            segment_done.eq(left <= width),
            row_done.eq(segment_done & ~has_fill),
            op_done.eq(step & row_done & Mux(tail, tails == 1, (rows == 1) & (tails == 0))),
        ]
        # Blocks that a beat of successive lanes can touch; a buffer of one lane has no such form.
        spread = max(1, width // shape.lanes) if lane_bits else 0
        blocks = [Signal(INNER_BITS, name=f"block{i}") for i in range(spread + 1)]
        m.d.comb += [value.eq(block + i * d.pitch) for i, value in enumerate(blocks)]
        within = low(position, lane_bits)

        def start_row(row_base: Value, next_lane: Value, align: Value, length: Value, pitch: Value) -> None:
            """Point at the first beat of a row whose byte 0 is `align` bytes into it."""
            ahead = (align + (shape.lanes - 1)) >> lane_bits  # blocks before that of element 0
            m.d.sync += [
                base.eq(row_base),
                lane.eq(next_lane),
                row_low.eq(align),
                first.eq(align),
                left.eq(length + align),
                column.eq(row_base - align),
                position.eq(-align),
                block.eq(row_base - ahead * pitch),
            ]

        with m.If(step):
            m.d.sync += [
                first.eq(0),
                left.eq(left - width),
                column.eq(column + width),
                position.eq(position + width),
            ]
            if lane_bits and width >= shape.lanes:
                m.d.sync += block.eq(blocks[spread])
            elif lane_bits:
                m.d.sync += block.eq(Mux(within + width >= shape.lanes, blocks[1], block))
            with m.If(segment_done & has_fill):
                past = (within + left[: shift + 1]) >> lane_bits
                m.d.sync += [
                    filling.eq(1),
                    left.eq(d.pad_inner),
                    column.eq(base + d.inner),
                    position.eq(d.inner),
                    block.eq(Array(blocks)[past]),
                ]
            with m.Elif(row_done):
                wrap = (lane == shape.lanes - 1) & ~d.lanes_first
                next_lane = Mux(d.lanes_first, 0, lane + 1) if lane_bits else Const(0)
                jump = Mux(d.lanes_first, 1, Mux(wrap, d.pitch, 0))
                to_tail = tail | (rows == 1)
                m.d.sync += [filling.eq(0), tail.eq(to_tail)]
                with m.If(tail):
                    m.d.sync += tails.eq(tails - 1)
                with m.Else():
                    m.d.sync += rows.eq(rows - 1)
                start_row(
                    (base + jump)[:INNER_BITS],
                    next_lane[: len(lane)],
                    Mux(to_tail, 0, (row_low + d.step)[:shift]),
                    Mux(to_tail, d.inner + d.pad_inner, d.inner),
                    d.pitch,
                )

        new = self.taken.payload
        m.d.comb += self.taken.ready.eq(~active | op_done)
        with m.If(self.taken.ready):
            m.d.sync += active.eq(self.taken.valid)
            with m.If(self.taken.valid):
                m.d.sync += [
                    d.eq(new),
                    filling.eq(0),
                    tail.eq(0),
                    rows.eq(new.outer),
                    tails.eq(new.pad_outer),
                ]
                start_row(new.target, Const(0, len(lane)), new.low[:shift], new.inner, new.pitch)

        source = self.response.payload
        return _Beat(
            step=step,
            data=Mux(in_memory, source.data, d.fill.replicate(width)),
            mask=range_mask(first, left, width),
            lanes_first=d.lanes_first,
            rotation=Mux(d.lanes_first, position + base, lane + column)[:bank_bits],
            lane=lane,
            column=column,
            within=within,
            base=base,
            blocks=blocks,
            last=op_done,
            failed=step & in_memory & source.error,
            warp=d.warp,
            pc=d.pc,
        )

    def _place(self, m: Module, beat: _Beat) -> None:
        """Two pipeline stages: keep the beat; rotate it and find each bank's address."""
        width, shape = self._width, self._shape
        lane_bits, bank_bits = log2(shape.lanes), log2(shape.banks)
        high_bits = INNER_BITS - bank_bits
        limit = shape.columns // shape.banks

        valid, last = Signal(), Signal()
        kept, mask, lanes_first = Signal(8 * width), Signal(width), Signal()
        rotation, lane, column = Signal(bank_bits), Signal(len(beat.lane)), Signal(INNER_BITS)
        within, base_low = Signal(max(1, lane_bits)), Signal(max(1, lane_bits))
        highs = [Signal(high_bits, name=f"high{i}") for i in range(len(beat.blocks))]
        who = Signal(ErrorReport)
        failed, bad = Signal(), Signal()
        m.d.sync += [valid.eq(beat.step), last.eq(beat.last), failed.eq(beat.failed)]
        with m.If(beat.step):
            m.d.sync += [
                kept.eq(beat.data),
                mask.eq(beat.mask),
                lanes_first.eq(beat.lanes_first),
                rotation.eq(beat.rotation),
                lane.eq(beat.lane),
                column.eq(beat.column),
                within.eq(beat.within),
                base_low.eq(low(beat.base, lane_bits)),
                who.warp.eq(beat.warp),
                who.pc.eq(beat.pc),
                *[h.eq(b[bank_bits:]) for h, b in zip(highs, beat.blocks, strict=True)],
            ]

        pad = shape.banks - width
        rotated = rotate_left(m, Cat(kept, Const(0, 8 * pad)), rotation)
        enables = rotate_left(m, Cat(mask, Const(0, pad)), rotation, unit=1)
        outside = []
        with m.If(valid):
            m.d.sync += self.write.data.eq(rotated)
        for b in range(shape.banks):
            high, address = (
                Signal(high_bits, name=f"bank{b}_high"),
                Signal(lane_bits + high_bits, name=f"a{b}"),
            )
            turned = (Const(b, bank_bits) - lane)[:bank_bits]  # the column modulo the banks
            m.d.comb += high.eq(column[bank_bits:] + (turned < column[:bank_bits]))
            m.d.comb += address.eq(Cat(turned[:lane_bits], high))
            if lane_bits:
                with m.If(lanes_first):
                    byte = (Const(b, bank_bits) - rotation)[:bank_bits]
                    m.d.comb += [
                        high.eq(Array(highs)[(within + byte) >> lane_bits]),
                        address.eq(Cat(base_low, high)),
                    ]
            outside.append(enables[b] & (high >= limit))
            with m.If(valid):
                m.d.sync += self.write.address[b].eq(address[: address_bits(shape)])

        wrong, done = Signal(), Signal(2)
        m.d.comb += wrong.eq(valid & Cat(*outside).any())
        m.d.sync += self.write.enable.eq(Mux(valid & ~wrong & ~bad & ~failed & ~self.stop, enables, 0))
        with m.If(wrong | failed):
            m.d.sync += bad.eq(1)
        fine = valid & last & ~wrong & ~bad & ~failed & ~self.stop
        warps = [Signal(WARP_BITS, name=f"warp{i}") for i in range(2)]
        m.d.sync += [
            done.eq(Cat(fine, done[0])),
            warps[0].eq(who.warp),
            warps[1].eq(warps[0]),
        ]
        m.d.comb += [
            self.complete.eq(done[1]),
            self.complete_warp.eq(warps[1]),
            self.error.eq(wrong | failed),
            self.error_report.warp.eq(who.warp),
            self.error_report.pc.eq(who.pc),
            self.error_report.cause.eq(Mux(failed, isa.Cause.BUS, isa.Cause.BUFFER_RANGE)),
        ]


@dataclass(frozen=True)
class _Beat:
    """Values of the beat that `LoadWriter` processes in this cycle."""

    step: Value
    data: Value
    mask: Value
    lanes_first: Value
    rotation: Value
    lane: Value
    column: Value
    within: Value
    base: Value
    blocks: list[Signal]
    last: Value
    failed: Value
    warp: Value
    pc: Value


class Loader(Component):
    """A loader engine: queue side, memory port, buffer side.

    **Timing.** docs/machine.md, "Loaders". At most `TIMING.in_flight` operations are taken and not
    complete.
    """

    def __init__(self, config: MachineConfig, port: str):
        self._config, self._port = config, port
        super().__init__(
            {
                "control": Out(EngineControl(port)),
                "memory": Out(ReadPort(config.port_bytes(port))),
                "write": Out(BankedWrite(loader_target(config, port))),
                "windows": In(windows_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        limit = isa.TIMING.in_flight
        m.submodules.requests = requests = LoadRequests(self._config, self._port)
        m.submodules.writer = writer = LoadWriter(self._config, self._port)
        m.submodules.taken = taken = fifo.SyncFIFO(width=Descriptor.size, depth=limit)
        control = self.control
        connect(m, flipped(control.operation), requests.operation)
        connect(m, requests.request, flipped(self.memory.request))
        connect(m, flipped(self.memory.response), writer.response)
        connect(m, writer.write, flipped(self.write))

        in_flight = Signal(range(limit + 1))
        m.d.sync += in_flight.eq(in_flight + taken.w_en - writer.complete)
        outstanding = Signal(16)
        asked = self.memory.request.valid & self.memory.request.ready
        answered = self.memory.response.valid & self.memory.response.ready
        m.d.sync += outstanding.eq(outstanding + asked - answered)
        m.d.comb += [
            requests.room.eq(in_flight != limit),
            requests.windows.eq(self.windows),
            requests.stop.eq(control.stop),
            writer.stop.eq(control.stop),
            taken.w_en.eq(requests.taken.valid),
            taken.w_data.eq(requests.taken.payload),
            writer.taken.valid.eq(taken.r_rdy),
            writer.taken.payload.eq(taken.r_data),
            taken.r_en.eq(writer.taken.ready),
            control.complete.eq(writer.complete),
            control.complete_warp.eq(writer.complete_warp),
            control.error.eq((writer.error | requests.error) & ~control.stop),
            control.error_report.eq(Mux(writer.error, writer.error_report, requests.error_report)),
            control.quiet.eq((outstanding == 0) & ~self.memory.request.valid),
            control.busy.eq(requests.busy),
            control.stall_memory.eq(requests.stall_memory),
            control.progress.eq(requests.busy | answered),
        ]
        return m
