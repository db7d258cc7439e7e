"""Storer: writes rows of accumulator, scratchpad or output buffer to memory, at any alignment."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.rtl.bits import from_mask, log2, low, one_of, place, place_bits, range_mask, reaches, rotate_left
from hw.rtl.interfaces import (
    ADDRESS_BITS,
    PC_BITS,
    WARP_BITS,
    EngineControl,
    WritePort,
    report_of,
    windows_layout,
)
from hw.rtl.memory.accumulator import AccumulatorRead
from hw.rtl.memory.buffer import BankedRead
from hw.rtl.memory.store_rows import StoreRows, row_at, store_layout

#: Source spaces, by variant of the store instructions.
ACC, SCRATCH, OUT = 0, 1, 2


def beat_layout(width: int) -> data.StructLayout:
    """The metadata that accompanies a beat through the pipeline."""
    return data.StructLayout(
        {
            "beat": ADDRESS_BITS - log2(width),
            "strobe": width,
            "align": log2(width),
            "last": 1,
        }
    )


def prepared_layout(width: int, chunks: int) -> data.StructLayout:
    """An operation, prepared before it is taken.

    `bad`: its operands are invalid. `rows`: its rows. `memory`, `last`: first and last byte of the first row.
    `chunk`, `next_chunk`: chunks at which the first and second row start, counted from the start of a space
    of `chunks` (a power of two). `pitch`: chunks from one row to the next.
    """
    chunk = place_bits(chunks)
    return data.StructLayout(
        {
            "bad": 1,
            "rows": store_layout(width),
            "memory": ADDRESS_BITS,
            "last": ADDRESS_BITS,
            "stride": ADDRESS_BITS,
            "chunk": chunk,
            "next_chunk": chunk,
            "pitch": chunk,
            "variant": 2,
            "warp": WARP_BITS,
            "pc": PC_BITS,
        }
    )


class Storer(Component):
    """The storer engine: a pipeline (read, choose, align, output) that stalls as a whole.

    **Timing.** docs/machine.md, "Storer". An operation that is offered is prepared in one cycle and taken in
    the next. A beat that leaves the read stage in cycle g is presented in g + 3; an operation completes one
    cycle after the answer to its last beat.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        self._ratio = log2(config.derived.acc_word_bytes // config.store_bytes)  # log2 of chunks per word
        # Number of chunks of each space, and of the largest.
        sizes = (config.acc_bytes, config.scratch_bytes, config.out_bytes)
        self._chunks = [size // config.store_bytes for size in sizes]
        self._most = max(self._chunks)
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
        control, request = self.control, self.memory.request
        m.submodules.walker = self._walker = walker = StoreRows(width)
        take, takes, leave, move = (Signal(name=n) for n in ("take", "takes", "leave", "move"))
        offered, coming = self._prepare(m, take)
        d = Signal(coming.shape())
        output_valid = Signal()
        m.d.comb += [
            walker.start.eq(takes & ~coming.bad),
            walker.coming.eq(coming.rows),
            walker.advance.eq(leave),
            move.eq(~output_valid | request.ready),
        ]

        # Read stage.
        new_row = ~walker.active | (leave & walker.end_of_row)
        address, permitted = self._row_address(m, coming, new_row)
        at, ranged = self._chunk_number(m, coming, d.variant, ~walker.active | leave)
        needs = walker.reads
        fits, ready, held = Signal(), Signal(), Signal()
        m.d.comb += [
            fits.eq(permitted & (ranged | ~needs)),
            # State after a stop is don't-care, because nothing is presented. A beat that fails the check also
            # reads, perhaps outside its space, and the data is not used: other readers need to know early
            # that the bank is taken.
            ready.eq(walker.active & move),
            self.acc.valid.eq(ready & needs & (d.variant == ACC)),
            self.acc.address.eq(at >> self._ratio),
            held.eq(needs & (d.variant == ACC) & ~self.acc.ready),
            leave.eq(ready & fits & ~held),
            control.stall_bank.eq(ready & fits & held),
        ]
        for space, port in ((SCRATCH, self.scratch), (OUT, self.out)):
            m.d.comb += [
                port.enable.eq(ready & needs & (d.variant == space)),
                port.address.eq(at >> log2(len(port.data) // (8 * width))),
            ]

        sent = self._pipeline(m, leave, move, output_valid, address, self._chunk(m, leave, d.variant, at))
        bad, took = Signal(), Signal()
        room, oldest = self._answers(m, output_valid & request.ready, sent, took & ~bad, d)
        op_done = leave & walker.last
        # `stop` is a late input, so it is registered; nothing of an operation taken in its cycle is
        # presented.
        halted = Signal(init=1)
        m.d.sync += halted.eq(control.stop)
        m.d.comb += [
            takes.eq(offered & room & ~halted),  # takes an operation if the walker is free
            take.eq(takes & (~walker.active | op_done)),
            control.operation.ready.eq(take),
        ]
        # The operation's data is loaded whenever one could be taken, so that it does not depend on `take`.
        with m.If(~walker.active | op_done):
            m.d.sync += d.eq(coming)
        m.d.sync += [took.eq(take), bad.eq(take & coming.bad)]
        self._report(m, bad, walker.active & ~fits, permitted, d, oldest)
        return m

    def _prepare(self, m: Module, take: Value) -> tuple[Signal, data.View]:
        """Prepares the offered operation; returns whether one is prepared, and its data."""
        op, width = self.control.operation.payload, self._config.store_bytes
        shift = log2(width)
        offered, coming = Signal(), Signal(prepared_layout(width, self._most), reset_less=True)
        align, step, rows = op.memory[:shift], op.store_stride[:shift], Signal(store_layout(width))
        first, pitch = (Signal(place_bits(self._most), name=n) for n in ("first_chunk", "pitch"))

        def chunks(units: Value) -> Value:
            """Converts words or bytes to chunks."""
            number = Mux(op.variant == ACC, units << self._ratio, units >> shift)
            return place(number, self._most)

        span = Signal(isa.SIZE_BITS)  # offset of a row's last byte
        misaligned = (op.variant != ACC) & ((op.source[:shift] != 0) | (op.store_pitch[:shift] != 0))
        m.d.comb += [
            rows.step.eq(step),
            rows.rest.eq(op.bytes),
            rows.whole.eq(op.bytes[shift:]),
            rows.no_word.eq(rows.whole == 0),
            rows.one_word.eq(rows.whole == 1),
            rows.rows.eq(op.rows),
            rows.one.eq(op.rows == 1),
            rows.first.eq(row_at(m, width, align, (align + rows.rest)[: shift + 1], rows)),
            rows.next.eq(align + step),
            rows.over.eq(rows.next + rows.rest),
        ]
        m.d.comb += [first.eq(chunks(op.source)), pitch.eq(chunks(op.store_pitch)), span.eq(op.bytes - 1)]
        m.d.sync += [
            offered.eq(self.control.operation.valid & ~take),
            *[coming[name].eq(op[name]) for name in ("memory", "variant", "warp", "pc")],
            coming.bad.eq((op.rows == 0) | (op.bytes == 0) | misaligned),
            coming.last.eq(op.memory + span),
            coming.stride.eq(op.store_stride),
            coming.chunk.eq(first),
            coming.pitch.eq(pitch),
            coming.next_chunk.eq(place(first + pitch, self._most)),
            coming.rows.eq(rows),
        ]
        return offered, coming

    def _row_address(self, m: Module, coming: data.View, new_row: Value) -> tuple[Value, Value]:
        """The address of the current row; whether the row lies entirely in one window that permits writing.

        A row that does not is never left. Both are computed when the previous row ends (`new_row`), or while
        there is none, from the first and last byte of the next row, which are known by then.
        """
        renews = self._walker.renews
        address, permitted = Signal(ADDRESS_BITS), Signal()
        following, following_last, stride = (
            Signal(ADDRESS_BITS, name=n) for n in ("following", "following_last", "stride")
        )
        first, last, step = (Signal(ADDRESS_BITS, name=n) for n in ("first_byte", "last_byte", "step"))
        m.d.comb += [
            first.eq(Mux(renews, coming.memory, following)),
            last.eq(Mux(renews, coming.last, following_last)),
            step.eq(Mux(renews, coming.stride, stride)),
        ]
        inside = Cat(reaches(first, w.first) & reaches(w.last, last) & w.write for w in self.windows).any()
        wraps = first[-1] & ~last[-1]  # a row is much shorter than half of the address range
        with m.If(new_row):
            m.d.sync += [
                address.eq(first),
                permitted.eq(inside & ~wraps),
                following.eq(first + step),
                following_last.eq(last + step),
                stride.eq(step),
            ]
        return address, permitted

    def _chunk_number(self, m: Module, coming: data.View, space: Value, moves: Value) -> tuple[Value, Value]:
        """The chunk that the current beat reads, counted from the start of its space; whether it exists.

        With `moves` another beat begins.
        """
        renews, begins = self._walker.renews, self._walker.renews | self._walker.end_of_row
        at, next_row, pitch = (
            Signal(place_bits(self._most), name=n) for n in ("chunk", "next_row", "row_pitch")
        )
        next_at, ranged = Signal(place_bits(self._most)), Signal()
        m.d.comb += next_at.eq(Mux(begins, Mux(renews, coming.chunk, next_row), at + 1))
        of = Mux(renews, coming.variant, space)
        with m.If(moves):
            m.d.sync += [
                at.eq(next_at),
                ranged.eq(
                    Cat((of == i) & ~next_at[log2(n) :].any() for i, n in enumerate(self._chunks)).any()
                ),
            ]
            with m.If(begins):
                m.d.sync += next_row.eq(Mux(renews, coming.next_chunk, place(next_row + pitch, self._most)))
            with m.If(renews):
                m.d.sync += pitch.eq(coming.pitch)
        return at, ranged

    def _chunk(self, m: Module, leave: Value, space: Value, at: Value) -> Value:
        """The chunk read in the previous cycle; it holds until another one is read."""
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

    def _pipeline(
        self, m: Module, leave: Value, move: Value, output_valid: Signal, address: Value, chunk: Value
    ) -> data.View:
        """Rotates chunks to the row's alignment and joins each with the rest of the previous one.

        A chunk may have to wait where it arrives, while another reader uses the bank. Returns the metadata of
        the beat in the output stage.
        """
        walker, request, width = self._walker, self.memory.request, self._config.store_bytes
        shift = log2(width)
        read, meta, sent = (Signal(beat_layout(width), name=n) for n in ("read", "meta", "sent"))
        read_valid, align_valid = Signal(), Signal()
        arrived, rest, joined_out = (
            Signal(8 * width, reset_less=True, name=n) for n in ("arrived", "rest", "joined_out")
        )
        turned = rotate_left(m, arrived, meta.align)
        of_turned = from_mask(meta.align, width)
        joined = Cat(
            Mux(of_turned[i], turned.word_select(i, 8), rest.word_select(i, 8)) for i in range(width)
        )
        with m.If(leave):
            m.d.sync += [
                read.beat.eq(Mux(walker.first_of_row, address[shift:], read.beat + 1)),
                read.strobe.eq(range_mask(walker.first, walker.end, width)),
                read.align.eq(address[:shift]),
                read.last.eq(walker.last),
            ]
        with m.If(move):
            m.d.sync += [
                read_valid.eq(leave),
                align_valid.eq(read_valid),
                output_valid.eq(align_valid & ~self.control.stop),
                meta.eq(read),
                arrived.eq(chunk),
                sent.eq(meta),
                joined_out.eq(joined),
            ]
            with m.If(align_valid):
                m.d.sync += rest.eq(turned)
        m.d.comb += [
            request.valid.eq(output_valid),
            request.payload.address.eq(sent.beat << shift),
            request.payload.data.eq(joined_out),
            request.payload.strobe.eq(sent.strobe),
            self.control.stall_memory.eq(output_valid & ~request.ready),
            self.control.busy.eq(output_valid & request.ready),
        ]
        return sent

    def _report(
        self, m: Module, bad: Value, failing: Value, permitted: Value, d: Value, oldest: Value
    ) -> None:
        """Reports the error of this cycle."""
        control, report = self.control, self.control.error_report
        failed = self.memory.response.valid & self.memory.response.payload.error
        with m.If(failed):
            m.d.comb += report_of(report, isa.Cause.BUS, oldest)
        with m.Else():
            cause = Mux(permitted, isa.Cause.BUFFER_RANGE, isa.Cause.WINDOW)
            m.d.comb += report_of(report, Mux(bad, isa.Cause.OPERAND, cause), d)
        m.d.comb += control.error.eq((failed | bad | failing) & ~control.stop)

    def _answers(
        self, m: Module, sent_beat: Value, sent: Value, taken: Value, op: Value
    ) -> tuple[Value, Value]:
        """Counts beats out and answers in; returns (room for another operation, the oldest operation).

        `taken` means that `op` was taken in the previous cycle; operations are never taken in successive
        cycles.
        """
        limit = isa.TIMING.in_flight
        control, response = self.control, self.memory.response
        # Numbers of the next beat out and of the next answer.
        sent_count, answered = Signal(16, init=1), Signal(16, init=1)
        # For each operation in flight: who issued it, and the number of its last beat once that is out.
        owner, end = Signal(data.StructLayout({"warp": WARP_BITS, "pc": PC_BITS})), Signal(16)
        newest, sent_last, oldest = (
            Signal(range(2 * limit), name=n) for n in ("newest", "sent_last", "oldest")
        )
        in_flight = Signal(range(limit + 1))
        arrived, ends, ended = Signal(), Signal(), Signal()
        for name, value, enters, at, found in (
            ("owners", Cat(op.warp, op.pc), taken, newest, owner),
            ("ends", sent_count, ends, sent_last, end),
        ):
            m.submodules[name] = kept = memory.Memory(shape=len(value), depth=limit, init=[])
            write, read = kept.write_port(), kept.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(enters),
                write.addr.eq(at),
                write.data.eq(value),
                read.addr.eq(oldest),
                found.eq(read.data),
            ]
        m.d.comb += [
            response.ready.eq(1),
            arrived.eq(response.valid),
            ends.eq(sent_beat & sent.last),
            ended.eq(arrived & (oldest != sent_last) & (end == answered)),
            control.quiet.eq((sent_count == answered) & ~self.memory.request.valid),
            control.progress.eq(Cat(sent_beat, arrived)),
        ]
        with m.If(ended):
            m.d.sync += oldest.eq(oldest + 1)
        m.d.sync += [
            newest.eq(newest + taken),
            sent_last.eq(sent_last + ends),
            sent_count.eq(sent_count + sent_beat),
            answered.eq(answered + arrived),
            control.complete.eq(ended),
            control.complete_warp.eq(owner.warp),
            in_flight.eq(in_flight + taken - control.complete),
        ]
        return in_flight != limit, owner
