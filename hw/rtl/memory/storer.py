"""Storer: rows of the accumulator, the scratchpad or the output buffer to memory, at any alignment."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.rtl.bits import from_mask, log2, low, one_of, place, place_bits, range_mask, rotate_left
from hw.rtl.interfaces import EngineControl, ErrorReport, WritePort, report_of, windows_layout
from hw.rtl.memory.accumulator import AccumulatorRead
from hw.rtl.memory.buffer import BankedRead
from hw.rtl.memory.row_walker import RowWalker

#: Spaces by variant of the store instructions.
ACC, SCRATCH, OUT = 0, 1, 2


def beat_layout(width: int) -> data.StructLayout:
    """What travels beside a beat through the pipeline."""
    return data.StructLayout(
        {
            "beat": 32 - log2(width),
            "strobe": width,
            "align": log2(width),
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
        self._ratio = log2(config.derived.acc_word_bytes // config.store_bytes)  # chunks of a word, log2
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
        m.submodules.walker = walker = RowWalker(width)
        take, bad, begins = Signal(), Signal(), Signal()
        leave, move = Signal(), Signal()
        align_valid, output_valid = Signal(), Signal()
        m.d.comb += [
            begins.eq(take & ~bad),
            walker.start.eq(begins),
            walker.rows.low.eq(op.memory[:shift]),
            walker.rows.step.eq(op.store_stride[:shift]),
            walker.rows.outer.eq(op.rows),
            walker.rows.inner.eq(op.bytes),
            walker.advance.eq(leave),
            move.eq(~output_valid | request.ready),
        ]

        # Read stage.
        row_address, permitted, more_beats = self._row_address(
            m, ~walker.active | (leave & walker.end_of_row), ~(walker.active & walker.more_rows)
        )
        renews = Signal()  # if there is another row, it is that of another operation
        m.d.comb += renews.eq(~walker.active | walker.last)
        at, ranged = self._chunk_number(m, d, renews, ~walker.active | leave, walker.new_row)
        needs = Signal()
        m.d.comb += needs.eq(~(walker.end_of_row & more_beats))
        ready, conflict = Signal(), Signal()
        m.d.comb += [
            # What moves on behind a stop does not matter, for nothing is presented.
            ready.eq(walker.active & move & permitted & (ranged | ~needs)),
            self.acc.valid.eq(ready & needs & (d.variant == ACC)),
            self.acc.address.eq(at >> self._ratio),
            conflict.eq(self.acc.valid & ~self.acc.ready),
            leave.eq(ready & ~conflict),
            control.stall_bank.eq(conflict),
        ]
        for space, port in ((SCRATCH, self.scratch), (OUT, self.out)):
            m.d.comb += [
                port.enable.eq(leave & needs & (d.variant == space)),
                port.address.eq(at >> log2(len(port.data) // (8 * width))),
            ]

        # Align stage: the chunk arrives, is turned to the row's alignment, and joined with what the
        # chunk before it left over. It may have to wait here while another reader uses the bank.
        chosen = self._chunk(m, leave, d.variant, at)
        meta = Signal(beat_layout(width))
        turned = rotate_left(m, chosen, meta.align)
        rest = Signal(8 * width, reset_less=True)
        of_turned = from_mask(meta.align, width)
        joined = Cat(
            Mux(of_turned[i], turned.word_select(i, 8), rest.word_select(i, 8)) for i in range(width)
        )
        with m.If(move):
            m.d.sync += align_valid.eq(leave)
            with m.If(leave):
                m.d.sync += [
                    meta.beat.eq(Mux(walker.first_of_row, row_address[shift:], meta.beat + 1)),
                    meta.strobe.eq(range_mask(walker.first, walker.end, width)),
                    meta.align.eq(row_address[:shift]),
                    meta.last.eq(walker.last),
                ]
            with m.If(align_valid):
                m.d.sync += rest.eq(turned)

        # Output stage.
        sent = Signal(beat_layout(width))
        joined_out = Signal(8 * width, reset_less=True)
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

        room, oldest = self._answers(m, output_valid & request.ready, sent, begins, op)
        misaligned = (op.variant != ACC) & ((op.source[:shift] != 0) | (op.store_pitch[:shift] != 0))
        op_done = leave & walker.last
        m.d.comb += [
            take.eq(control.operation.valid & (~walker.active | op_done) & room & ~control.stop),
            control.operation.ready.eq(take),
            bad.eq(take & ((op.rows == 0) | (op.bytes == 0) | misaligned)),
        ]
        # What the operation needs is loaded whenever one could be taken: nothing waits for whether it is.
        with m.If(~walker.active | op_done):
            m.d.sync += d.eq(op)
        failing = walker.active & ~(permitted & (ranged | ~needs)) & ~bad
        self._report(m, bad, failing, permitted, d, oldest)
        return m

    def _row_address(self, m: Module, new_row: Value, new_operation: Value) -> tuple[Value, Value, Value]:
        """The address of the current row, and what follows from it.

        That is whether it lies wholly in one window that permits writing (a row that does not is never left),
        and whether it has a beat more than chunks. All are found when the row before it ends (`new_row`), and
        whenever there is none: reads must not wait for comparisons. `new_operation` says early whether the
        row that begins then would be that of another operation.
        """
        op = self.control.operation.payload
        shift = log2(self._config.store_bytes)
        address, following, permitted, more_beats = Signal(32), Signal(32), Signal(), Signal()
        stride, span = Signal(32), Signal(isa.SIZE_BITS)  # span: bytes - 1
        new_stride, new_span = Signal(32), Signal(isa.SIZE_BITS)
        first, last, align, spare = Signal(32), Signal(33), Signal(shift), Signal(shift)
        m.d.comb += [
            first.eq(Mux(new_operation, op.memory, following)),
            new_stride.eq(Mux(new_operation, op.store_stride, stride)),
            new_span.eq(Mux(new_operation, op.bytes - 1, span)),
            last.eq(first + new_span),
            align.eq(first),
            spare.eq(new_span + 1),  # bytes beyond whole chunks
        ]
        inside = Cat((first >= w.first) & (last[:32] <= w.last) & w.write for w in self.windows).any()
        with m.If(new_row):
            m.d.sync += [
                address.eq(first),
                following.eq(first + new_stride),
                permitted.eq(inside & ~last[32]),
                more_beats.eq(Mux(spare.any(), align + spare > self._config.store_bytes, align.any())),
                stride.eq(new_stride),
                span.eq(new_span),
            ]
        return address, permitted, more_beats

    def _chunk_number(
        self, m: Module, d: Value, renews: Value, moves: Value, new_row: Value
    ) -> tuple[Value, Value]:
        """The chunk that the present beat reads, counted from the start of its space; whether it exists.

        With `moves` another beat begins; if `renews`, that of an operation that could be taken.
        """
        op, shift = self.control.operation.payload, log2(self._config.store_bytes)
        sizes = [self._config.acc_bytes, self._config.scratch_bytes, self._config.out_bytes]
        bits = [log2(size) - shift for size in sizes]
        most = 1 << max(bits)

        def chunks(units: Value) -> Value:
            """Words or bytes as a number of chunks."""
            return place(Mux(op.variant == ACC, units << self._ratio, units >> shift), most)

        row, at, pitch = (Signal(place_bits(most), name=n) for n in ("row_chunk", "chunk", "chunk_pitch"))
        next_row, next_at, ranged = Signal(place_bits(most)), Signal(place_bits(most)), Signal()
        m.d.comb += [
            next_row.eq(place(row + pitch, most)),
            next_at.eq(Mux(renews, chunks(op.source), Mux(new_row, next_row, at + 1))),
        ]
        space = Mux(renews, op.variant, d.variant)
        with m.If(moves):
            m.d.sync += [
                at.eq(next_at),
                ranged.eq(Cat((space == i) & ~next_at[n:].any() for i, n in enumerate(bits)).any()),
            ]
        with m.If(moves & (renews | new_row)):
            m.d.sync += row.eq(Mux(renews, chunks(op.source), next_row))
        with m.If(moves & renews):
            m.d.sync += pitch.eq(chunks(op.store_pitch))
        return at, ranged

    def _chunk(self, m: Module, leave: Value, space: Value, at: Value) -> Value:
        """The chunk that the read of the previous cycle brought, for as long as no other is read."""
        width = 8 * self._config.store_bytes
        chosen, kept, old = Signal(width), Signal(width, reset_less=True), Signal()
        m.d.sync += [kept.eq(chosen), old.eq(~leave)]
        sources = [kept]
        selects = [old]
        for number, port in ((ACC, self.acc), (SCRATCH, self.scratch), (OUT, self.out)):
            parts = len(port.data) // width
            for part in range(parts):
                select = Signal(name=f"select{number}_{part}")
                m.d.sync += select.eq(leave & (space == number) & (low(at, log2(parts)) == part))
                sources.append(port.data.word_select(part, width))
                selects.append(select)
        m.d.comb += chosen.eq(one_of(Cat(selects), sources))
        return chosen

    def _report(
        self, m: Module, bad: Value, failing: Value, permitted: Value, d: Value, oldest: Value
    ) -> None:
        """The error of this cycle."""
        control, op = self.control, self.control.operation.payload
        report = control.error_report
        failed = self.memory.response.valid & self.memory.response.payload.error
        with m.If(failed):
            m.d.comb += [report.eq(oldest), report.cause.eq(isa.Cause.BUS)]
        with m.Elif(bad):
            m.d.comb += report_of(report, isa.Cause.OPERAND, op)
        with m.Else():
            m.d.comb += report_of(report, Mux(permitted, isa.Cause.BUFFER_RANGE, isa.Cause.WINDOW), d)
        m.d.comb += control.error.eq((failed | bad | failing) & ~control.stop)

    def _answers(
        self, m: Module, sent_beat: Value, sent: Value, taken: Value, op: Value
    ) -> tuple[Value, Value]:
        """Count beats out and answers in; returns (room for another operation, the oldest operation)."""
        limit = isa.TIMING.in_flight
        control, response = self.control, self.memory.response
        # Numbers of the next beat out and of the next answer.
        sent_count, answered = Signal(16, init=1), Signal(16, init=1)
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
            ends.w_data.eq(sent_count),
            ends.r_en.eq(ended),
            ended.eq(arrived & ends.r_rdy & (ends.r_data == answered)),
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
