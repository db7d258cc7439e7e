"""Storer: rows of the accumulator, the scratchpad or the output buffer to memory, at any alignment."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.bits import log2, range_mask, rotate_left
from hw.config import MachineConfig
from hw.interfaces import INNER_BITS, EngineControl, ErrorReport, WritePort, windows_layout
from hw.memory.accumulator import AccumulatorRead
from hw.memory.buffer import BankedRead

#: Spaces by variant of the store instructions.
ACC, SCRATCH, OUT = 0, 1, 2


def beat_layout(width: int) -> data.StructLayout:
    """What travels beside a beat through the pipeline."""
    return data.StructLayout(
        {
            "beat": 32 - log2(width),
            "strobe": width,
            "align": log2(width),
            "space": 2,
            "select": isa.SIZE_BITS,
            "byte": INNER_BITS,
            "last": 1,
        }
    )


class Storer(Component):
    """The storer engine: a three-stage pipeline (read, align, output) that stands still as a whole.

    **Timing.** docs/machine.md, "Storer". A beat that leaves the read stage in cycle g is presented in
    g + 2; an operation completes one cycle after the answer to its last beat.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "control": Out(EngineControl("store")),
                "memory": Out(WritePort(config.store_bytes)),
                "acc": Out(AccumulatorRead(config)),
                "scratch": Out(BankedRead(config.derived.scratch)),
                "out": Out(BankedRead(config.derived.out)),
                "windows": In(windows_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._config.store_bytes
        shift = log2(width)
        control, request = self.control, self.memory.request
        op = control.operation.payload
        d = Signal(op.shape())
        size = isa.SIZE_BITS

        active, row_start = Signal(), Signal()
        first, last = Signal(32), Signal(32)
        beat = Signal(32 - shift)
        rows, left = Signal(size), Signal(size + 1)  # rows; bytes to go in this row, alignment included
        skip = Signal(shift)  # bytes of the beat before the row's first one
        source = Signal(INNER_BITS)  # word (accumulator) or byte (other spaces) of the row
        chunk, data_left = Signal(size), Signal(size)

        align_valid, output_valid, move = Signal(), Signal(), Signal()
        m.d.comb += move.eq(~output_valid | request.ready)

        # Read stage.
        ratio = log2(self._config.derived.acc_word_bytes) - shift
        needs = data_left != 0
        word = (source + (chunk >> ratio))[:INNER_BITS]
        byte = (source + (chunk << shift))[:INNER_BITS]
        inside = Cat(
            (first >= w.first) & (last <= w.last) & (last >= first) & w.write for w in self.windows
        ).any()
        windowed, ranged = Signal(), Signal()
        limits = [
            self._config.derived.acc_words,
            self._config.scratch_bytes,
            self._config.out_bytes,
        ]
        place = Mux(d.variant == ACC, word, byte)
        m.d.comb += [
            windowed.eq(~row_start | inside),
            ranged.eq(~needs | (place < Array(limits)[d.variant])),
        ]
        ready, conflict, leave = Signal(), Signal(), Signal()
        m.d.comb += [
            ready.eq(active & move & windowed & ranged & ~control.stop),
            self.acc.valid.eq(ready & needs & (d.variant == ACC)),
            self.acc.address.eq(word),
            conflict.eq(self.acc.valid & ~self.acc.ready),
            leave.eq(ready & ~conflict),
            control.stall_bank.eq(conflict),
        ]
        for space, port in ((SCRATCH, self.scratch), (OUT, self.out)):
            m.d.comb += [
                port.enable.eq(leave & needs & (d.variant == space)),
                port.address.eq(byte >> log2(len(port.data) // 8)),
            ]

        row_done, op_done = Signal(), Signal()
        m.d.comb += [row_done.eq(left <= width), op_done.eq(leave & row_done & (rows == 1))]
        next_first = (first + d.store_stride)[:32]

        def start_row(start: Value, row_source: Value, length: Value) -> None:
            m.d.sync += [
                first.eq(start),
                last.eq(start + length - 1),
                beat.eq(start[shift:]),
                left.eq(start[:shift] + length),
                skip.eq(start[:shift]),
                source.eq(row_source),
                chunk.eq(0),
                data_left.eq(length),
                row_start.eq(1),
            ]

        with m.If(leave):
            m.d.sync += [
                beat.eq(beat + 1),
                left.eq(left - width),
                skip.eq(0),
                chunk.eq(chunk + 1),
                data_left.eq(Mux(data_left > width, data_left - width, 0)),
                row_start.eq(0),
            ]
            with m.If(row_done):
                m.d.sync += rows.eq(rows - 1)
                start_row(next_first, (source + d.store_pitch)[:INNER_BITS], d.bytes)

        # Align stage: the chunk arrives, is turned to the row's alignment, and joined with what the
        # chunk before it left over. It may have to wait here while another reader uses the bank.
        chosen, kept, fresh = Signal(8 * width), Signal(8 * width), Signal()
        meta = Signal(beat_layout(width))
        m.d.sync += fresh.eq(leave)
        m.d.comb += chosen.eq(Mux(fresh, self._chunk(m, meta, ratio), kept))
        m.d.sync += kept.eq(chosen)
        turned = rotate_left(m, chosen, meta.align)
        rest = Signal(8 * width)
        joined = Cat(
            Mux(meta.align > i, rest.word_select(i, 8), turned.word_select(i, 8)) for i in range(width)
        )
        with m.If(move):
            m.d.sync += align_valid.eq(leave)
            with m.If(leave):
                m.d.sync += [
                    meta.beat.eq(beat),
                    meta.strobe.eq(range_mask(skip, left, width)),
                    meta.align.eq(first[:shift]),
                    meta.space.eq(d.variant),
                    meta.select.eq(chunk if ratio else 0),
                    meta.byte.eq(byte),
                    meta.last.eq(op_done),
                ]
            with m.If(align_valid):
                m.d.sync += rest.eq(turned)

        # Output stage.
        sent = Signal(beat_layout(width))
        joined_out = Signal(8 * width)
        with m.If(move):
            m.d.sync += output_valid.eq(align_valid & ~control.stop)
            with m.If(align_valid):
                m.d.sync += [sent.eq(meta), joined_out.eq(joined)]
        m.d.comb += [
            request.valid.eq(output_valid),
            request.payload.address.eq(sent.beat << shift),
            request.payload.data.eq(joined_out),
            request.payload.strobe.eq(sent.strobe),
            control.stall_memory.eq(output_valid & ~request.ready),
            control.busy.eq(output_valid & request.ready),
        ]

        take, bad = Signal(), Signal()
        room, oldest = self._answers(m, output_valid & request.ready, sent, take & ~bad, op)
        misaligned = (op.variant != ACC) & ((op.source[:shift] != 0) | (op.store_pitch[:shift] != 0))
        m.d.comb += [
            take.eq(control.operation.valid & (~active | op_done) & room & ~control.stop),
            control.operation.ready.eq(take),
            bad.eq(take & ((op.rows == 0) | (op.bytes == 0) | misaligned)),
        ]
        with m.If(take):
            m.d.sync += [active.eq(~bad), d.eq(op), rows.eq(op.rows)]
            start_row(op.memory, op.source, op.bytes)
        with m.Elif(op_done):
            m.d.sync += active.eq(0)

        report = control.error_report
        failed = self.memory.response.valid & self.memory.response.payload.error
        with m.If(failed):
            m.d.comb += [report.eq(oldest), report.cause.eq(isa.Cause.BUS)]
        with m.Elif(bad):
            m.d.comb += [report.cause.eq(isa.Cause.OPERAND), report.warp.eq(op.warp), report.pc.eq(op.pc)]
        with m.Else():
            m.d.comb += [
                report.cause.eq(Mux(windowed, isa.Cause.BUFFER_RANGE, isa.Cause.WINDOW)),
                report.warp.eq(d.warp),
                report.pc.eq(d.pc),
            ]
        m.d.comb += control.error.eq((failed | bad | (active & ~(windowed & ranged) & ~bad)) & ~control.stop)
        return m

    def _chunk(self, m: Module, meta: Value, ratio: int) -> Value:
        """The chunk that the read of the previous cycle brought."""
        width = self._config.store_bytes
        chunk = Signal(8 * width)
        with m.Switch(meta.space):
            for space, port in ((SCRATCH, self.scratch), (OUT, self.out)):
                with m.Case(space):
                    banks = len(port.data) // 8
                    at = meta.byte[log2(width) : log2(banks)]
                    m.d.comb += chunk.eq(port.data.word_select(at, 8 * width) if banks > width else port.data)
            with m.Default():
                at = meta.select[:ratio]
                m.d.comb += chunk.eq(self.acc.data.word_select(at, 8 * width) if ratio else self.acc.data)
        return chunk

    def _answers(
        self, m: Module, sent_beat: Value, sent: Value, taken: Value, op: Value
    ) -> tuple[Value, Value]:
        """Count beats out and answers in; returns (room for another operation, the oldest operation)."""
        limit = isa.TIMING.in_flight
        control, response = self.control, self.memory.response
        sent_count, answered = Signal(16), Signal(16)
        ends = fifo.SyncFIFO(width=16, depth=limit)
        owners = fifo.SyncFIFO(width=ErrorReport.size, depth=limit)
        m.submodules.ends, m.submodules.owners = ends, owners
        owner, new = Signal(ErrorReport), Signal(ErrorReport)
        in_flight = Signal(range(limit + 1))
        arrived, ended = Signal(), Signal()
        m.d.comb += [
            response.ready.eq(1),
            arrived.eq(response.valid),
            new.warp.eq(op.warp),
            new.pc.eq(op.pc),
            owner.eq(owners.r_data),
            owners.w_en.eq(taken),
            owners.w_data.eq(new),
            owners.r_en.eq(ended),
            ends.w_en.eq(sent_beat & sent.last),
            ends.w_data.eq((sent_count + 1)[:16]),
            ends.r_en.eq(ended),
            ended.eq(arrived & ends.r_rdy & (ends.r_data == (answered + 1)[:16])),
            control.quiet.eq((sent_count == answered) & ~self.memory.request.valid),
            control.progress.eq(sent_beat | arrived),
        ]
        m.d.sync += [
            sent_count.eq(sent_count + sent_beat),
            answered.eq(answered + arrived),
            control.complete.eq(ended),
            control.complete_warp.eq(owner.warp),
            in_flight.eq(in_flight + taken - control.complete),
        ]
        return in_flight != limit, owner
