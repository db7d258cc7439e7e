"""Proofs of the storer: it never leaves its windows, and completes when all writes are answered."""

from __future__ import annotations

from functools import partial

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw.config import MachineConfig
from hw.formal import engines
from hw.formal.bench import Bench, blinking, past
from hw.formal.proof import Proof, planted
from hw.rtl.bits import log2, range_mask
from hw.rtl.memory.storer import Storer

WINDOWS = {
    "writes_stay_in_windows": "all bytes that a presented beat writes lie in one open window that "
    "permits writing",
    "beats_write_something": "every beat writes at least one byte, and its bytes are contiguous",
    "addresses_aligned": "every address is a multiple of the port's width",
    **engines.REQUESTS,
}


def _pieces(strobe: Value) -> Value:
    """Number of contiguous runs of strobed bytes."""
    return sum((strobe[i] & ~(strobe[i - 1] if i else 0))[0] for i in range(len(strobe)))


def _fits(row: Value, align: Value, rows: Value, width: int) -> Value:
    """Whether the prepared values of a row are right, if it begins at `align`."""
    over = Value.cast(align + rows.rest)
    more = Mux(over > width, 2, over != 0)
    return (
        (row.align == align)
        & (row.extra == more)
        & (row.end == over[: log2(width)])
        & (row.single == (rows.whole + more == 1))
    )


def _known(rows: Value, following: Value) -> Value:
    """Whether the prepared values of an operation's rows are right; `following` is the next row's address."""
    align = following[: len(rows.next)]
    words = (rows.no_word == (rows.whole == 0)) & (rows.one_word == (rows.whole == 1))
    return words & (rows.next == align) & (rows.over == align + rows.rest)


def _prepared(bench: Bench, dut: Component, width: int) -> Value:
    """Whether a prepared operation is right, unless it is refused."""
    coming, shift = bench.view(dut, "coming"), log2(width)
    rows = coming.rows
    size = Value.cast((rows.whole << shift) + rows.rest)
    return (
        (coming.bad | ((size != 0) & (coming.last == (coming.memory + size - 1)[:32])))
        & (coming.stride[:shift] == rows.step)
        & _fits(rows.first, coming.memory[:shift], rows, width)
        & _known(rows, coming.memory + coming.stride)
    )


def _walked(bench: Bench, dut: Component, width: int) -> Value:
    """Whether walker, addresses and the window check agree about the current row."""
    shift = log2(width)
    names = ("address", "following", "following_last", "stride", "permitted")
    first, following, following_last, stride, inside = (bench.register(dut, n) for n in names)
    active, begins, start, beats, extra, ends, last_row, renews = (
        bench.register(dut, f"walker/{n}")
        for n in ("active", "first_of_row", "first", "beats", "extra", "ends", "last_row", "renews")
    )
    walk, present = bench.view(dut, "walker/d"), bench.view(dut, "walker/present")
    size = Value.cast((walk.whole << shift) + walk.rest)
    span = Value.cast(size - 1)[:16]
    last = Value.cast(first + span)
    permitted = Cat((first >= w.first) & (last[:32] <= w.last) & w.write for w in dut.windows).any()
    # Bytes of the row left from the start of the current beat's word, and the address of that word.
    left = Value.cast(((beats + extra) << shift) - Mux(present.end == 0, 0, width - present.end))
    word = Mux(begins, first[shift:], bench.view(dut, "read").beat + 1)[: 32 - shift] << shift
    row = (
        (size != 0)
        & (inside == (permitted & ~last[32]))
        & (begins | inside)
        & (following == (first + stride)[:32])
        & (following_last == (last + stride)[:32])
        & (stride[:shift] == walk.step)
        & _known(walk, following)
        & (start == Mux(begins, first[:shift], 0))
        & (ends == (beats + extra == 1))
        & (extra <= 2)
        & ((word + left)[:32] == (first + span + 1)[:32])
        & (left > start)
        & (left[16:] < 4)
        & (begins | ((word > first) & (word <= (first + span))))
    )
    return (~active | row) & (renews == (~active | (ends & last_row)))


def build_windows(bench: Bench, config: MachineConfig) -> None:
    """Any operations, any fixed windows, any stalls."""
    dut = bench.add(Storer(config), "dut")
    control, request = dut.control, dut.memory.request
    engines.surroundings(bench, control, dut.windows)
    owed = engines.requests(bench, control, dut.memory)
    width, shift = config.store_bytes, log2(config.store_bytes)
    payload = request.payload

    def permitted(address: Value, strobe: Value) -> Value:
        """Whether the strobed bytes of a word lie in one window."""
        return Cat(
            w.write
            & Cat(
                ~strobe[i] | ((address + i >= w.first) & (address + i <= w.last)) for i in range(width)
            ).all()
            for w in dut.windows
        ).any()

    bench.require("writes_stay_in_windows", ~request.valid | permitted(payload.address, payload.strobe))
    bench.require("beats_write_something", ~request.valid | (_pieces(payload.strobe) == 1))
    bench.require("addresses_aligned", payload.address[:shift] == 0)

    def tied() -> Value:
        def travels(valid: str, what: str) -> Value:
            beat = bench.view(dut, what)
            right = permitted(beat.beat << shift, beat.strobe) & (_pieces(beat.strobe) == 1)
            return ~bench.register(dut, valid) | right

        return (
            _walked(bench, dut, width)
            & (~bench.register(dut, "offered") | _prepared(bench, dut, width))
            & travels("read_valid", "read")
            & travels("align_valid", "meta")
            & travels("output_valid", "sent")
        )

    bench.invariant("row", tied)

    def counts() -> Value:
        sent, answered = bench.register(dut, "sent_count"), bench.register(dut, "answered")
        return (sent - answered)[:16] == owed

    bench.invariant("answers", counts)


COMPLETION = {
    **engines.COMMON,
    "completes_after_last_answer": "an operation completes in the cycle after the answer to its last "
    "beat, once all beats of earlier operations are answered too (operations of up to two rows of "
    "eight bytes)",
}


def build_completion(bench: Bench, config: MachineConfig) -> None:
    """Counts the beats that operations must have, and the answers; operations are small."""
    dut = bench.add(Storer(config), "dut")
    control, op, sync = dut.control, dut.control.operation.payload, bench.m.d.sync
    engines.surroundings(bench, control, dut.windows)
    request, response = dut.memory.request, dut.memory.response
    known = engines.operations(bench, control)
    owed = Signal(8, name="owed_answers")
    sync += owed.eq(owed + (request.valid & request.ready) - response.valid)
    bench.assume(~response.valid | (owed != 0))
    bench.assume(~control.operation.valid | ((op.rows <= engines.ROWS) & (op.bytes <= engines.BYTES)))
    beats = engines.beats(bench, op.rows, op.bytes, op.memory, op.store_stride, config.store_bytes)
    total, target, answers = (Signal(8, name=n) for n in ("total", "target", "answers"))
    sync += answers.eq(answers + response.valid)
    with bench.m.If(known.taken):
        sync += total.eq(total + beats)
    with bench.m.If(known.picked):
        sync += target.eq(total + beats)
    bench.require("completes_after_last_answer", ~known.turn | (answers == target))


#: The function with which the storer makes strobes.
MASK = "hw.rtl.memory.storer.range_mask"


def _strobe_shifted(first: Value, end: Value, width: int) -> Value:
    """The byte after the row is written too."""
    return range_mask(first, end + 1, width)


def _last_off_by_one(m: Module, outer: Component, inner: Component) -> None:
    """A window is one byte too long."""
    for own, port in zip(outer.windows, inner.windows, strict=True):
        m.d.comb += port.last.eq(own.last + (own.last != 0xFFFFFFFF))


def _reads_suffice(m: Module, outer: Component, inner: Component) -> None:
    """Windows for reading are accepted too."""
    for own, port in zip(outer.windows, inner.windows, strict=True):
        m.d.comb += port.write.eq(own.write | own.read)


def _joined_windows(m: Module, outer: Component, inner: Component) -> None:
    """A row may reach from one window into another."""
    # The start of the first window is checked together with the end of the second one.
    m.d.comb += inner.windows[0].last.eq(outer.windows[1].last)


def _empty_first(m: Module, outer: Component, inner: Component) -> None:
    """The lowest byte of a beat is never written."""
    own, port = outer.memory.request, inner.memory.request
    m.d.comb += own.payload.strobe.eq(port.payload.strobe & ~1)


def _byte_address(m: Module, outer: Component, inner: Component) -> None:
    """The address is that of the first byte, not of its word."""
    own, port = outer.memory.request, inner.memory.request
    m.d.comb += own.payload.address.eq(port.payload.address | ~port.payload.strobe[0])


def _late_stop(m: Module, outer: Component, inner: Component) -> None:
    """A stop takes effect two cycles late."""
    m.d.comb += inner.control.stop.eq(past(m, past(m, outer.control.stop)))


def _hasty_quiet(m: Module, outer: Component, inner: Component) -> None:
    """Outstanding answers are forgotten."""
    m.d.comb += outer.control.quiet.eq(inner.control.quiet | ~inner.memory.request.valid)


def _completes_twice(m: Module, outer: Component, inner: Component) -> None:
    """A completion lasts two cycles."""
    complete = inner.control.complete
    m.d.comb += outer.control.complete.eq(complete | past(m, complete))


def _completes_early(m: Module, outer: Component, inner: Component) -> None:
    """An operation completes when its last beat is accepted."""
    # Beats count as answered in the cycle after they are accepted.
    accepted = inner.memory.request.valid & outer.memory.request.ready
    m.d.comb += inner.memory.response.valid.eq(past(m, accepted))


def _youngest_warp(m: Module, outer: Component, inner: Component) -> None:
    """A completion names the warp of the operation that was taken last."""
    warp = Signal(4)
    with m.If(outer.control.operation.valid & inner.control.operation.ready):
        m.d.sync += warp.eq(outer.control.operation.payload.warp)
    m.d.comb += outer.control.complete_warp.eq(warp)


COMMON_FAULTS = (
    planted("takes-after-stop", "no_start_after_stop", _late_stop, 6),
    planted("completes-twice", "complete_once", _completes_twice, 11),
    planted("youngest-warp", "completes_in_order", _youngest_warp, 11),
)
_DROPS = blinking("A request that is not accepted disappears for a cycle.", "memory.request")
REQUEST_FAULTS = (
    planted("request-blinks", "request_is_stable", _DROPS, 8),
    planted("stop-late", "no_request_after_stop", _late_stop, 8),
    planted("quiet-hasty", "quiet_tells", _hasty_quiet, 8),
)


def proofs(config: MachineConfig) -> tuple[Proof, ...]:
    """The proofs for the storer, with their faults."""
    windows = (
        planted("window-too-long", "writes_stay_in_windows", _last_off_by_one, 8),
        planted("permission-ignored", "writes_stay_in_windows", _reads_suffice, 8),
        planted("windows-joined", "writes_stay_in_windows", _joined_windows, 8),
        planted("strobe-off-by-one", "writes_stay_in_windows", _strobe_shifted, 8, MASK),
        planted("strobe-empty", "beats_write_something", _empty_first, 8),
        planted("byte-address", "addresses_aligned", _byte_address, 8),
        *REQUEST_FAULTS,
    )
    completion = (
        planted("answer-not-awaited", "completes_after_last_answer", _completes_early, 10),
        *COMMON_FAULTS,
    )
    writes, completes = partial(build_windows, config=config), partial(build_completion, config=config)
    return (
        Proof("storer", "storer: windows and requests", WINDOWS, writes, windows, 2, 12),
        Proof("storer-completion", "storer: operations", COMPLETION, completes, completion, bounded=12),
    )
