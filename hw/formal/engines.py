"""What all engines share: assumptions about their surroundings, and statements."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw import isa
from hw.formal.bench import Bench

COMMON = {
    "no_start_after_stop": "no operation is taken from the cycle after the stop on",
    "complete_once": "no more operations complete than were taken, and until the machine stops, at most "
    "`in_flight` are outstanding",
    "completes_in_order": "a completion names the warp of the oldest outstanding operation",
}
REQUESTS = {
    "request_is_stable": "a request stays unchanged until it is accepted",
    "no_request_after_stop": "no new request is presented once the machine has stopped",
    "quiet_tells": "`quiet` is 1 if and only if no request is presented and every accepted request has "
    "been answered",
}


@dataclass(frozen=True)
class Operations:
    """Events of an engine's operations, as seen by a bench.

    `taken`: an operation is taken. `picked`: it is the one to be watched. `turn`: the watched operation
    completes.
    """

    taken: Value
    picked: Value
    turn: Value


def surroundings(bench: Bench, control: Component, windows: Value | None = None) -> Value:
    """Assumes a queue with stable offers, one run that ends for good after an error, and fixed windows.

    Before the run, the machine is stopped for any number of cycles. Returns whether the run has begun.
    """
    operation = control.operation
    bench.assume(bench.keeps(operation, "operation"))
    ran = Signal(name="ran")
    bench.m.d.sync += ran.eq(ran | ~control.stop)
    bench.assume(~bench.past(control.error, "error_past") | control.stop)
    bench.assume(~(ran & bench.past(control.stop, "stop_past")) | control.stop)
    if windows is not None:
        windows = Value.cast(windows)
        bench.assume(~bench.started | (windows == bench.past(windows, "windows_past")))
    return ran


def operations(bench: Bench, control: Component) -> Operations:
    """Counts operations taken and completed, follows one, and requires what all engines share."""
    most = isa.TIMING.in_flight
    operation, sync = control.operation, bench.m.d.sync
    taken = bench.value(operation.valid & operation.ready, "taken")
    under_way = Signal(range(most + 2), name="under_way")
    sync += under_way.eq(under_way + taken - control.complete)
    stopped = bench.past(control.stop, "stopped_before") & control.stop
    bench.require("no_start_after_stop", ~(stopped & taken))
    few = under_way <= Mux(stopped, most + 1, most)
    bench.require("complete_once", (~control.complete | (under_way != 0)) & few)

    pick, watching = bench.free(1, "pick"), Signal(name="watching")
    ahead, warp = Signal(range(most + 2), name="ahead"), Signal(4, name="watched_warp")
    picked = bench.value(taken & pick & ~watching, "picked")
    turn = bench.value(watching & (ahead == 0) & control.complete, "turn")
    with bench.m.If(picked):
        sync += [watching.eq(1), ahead.eq(under_way - control.complete), warp.eq(operation.payload.warp)]
    with bench.m.Elif(watching):
        sync += [ahead.eq(ahead - (control.complete & (ahead != 0))), watching.eq(~turn)]
    bench.require("completes_in_order", ~turn | (control.complete_warp == warp))
    return Operations(taken, picked, turn)


def requests(bench: Bench, control: Component, port: Component) -> Value:
    """Counts requests and answers, and requires what all memory ports share.

    Assumes that memory answers only accepted requests, in a later cycle, and holds an answer until it is
    accepted. Returns the number of outstanding answers.
    """
    request, response, sync = port.request, port.response, bench.m.d.sync
    asked = bench.value(request.valid & request.ready, "asked")
    answered = bench.value(response.valid & response.ready, "answered")
    owed = Signal(16, name="owed_answers")
    bench.assume(~response.valid | (owed != 0))
    bench.assume(owed < (1 << 16) - 1)
    bench.assume(bench.keeps(response, "answer"))
    sync += owed.eq(owed + asked - answered)
    bench.require("request_is_stable", bench.keeps(request, "request"))
    stopped = bench.past(control.stop & ~(request.valid & ~request.ready), "stopped_past")
    bench.require("no_request_after_stop", ~stopped | ~request.valid)
    bench.require("quiet_tells", control.quiet == ((owed == 0) & ~request.valid))
    return owed


#: Maximum number of rows, and of bytes per row, of operations whose beats are counted.
ROWS, BYTES = 2, 8


def beats(bench: Bench, rows: Value, length: Value, memory: Value, stride: Value, width: int) -> Signal:
    """Number of `width`-byte beats of an operation: `rows` rows of `length` bytes from `memory` on."""
    starts = [bench.value((memory + i * stride)[:32], f"start{i}") for i in range(ROWS)]
    counts = [Mux(rows > i, _row_beats(start, length, width), 0) for i, start in enumerate(starts)]
    return bench.value(sum(counts), "beats")


def _row_beats(start: Value, length: Value, width: int) -> Value:
    """Number of `width`-byte beats of a row of `length` bytes at address `start`."""
    shift = width.bit_length() - 1
    return Value.cast((start[:shift] + length + (width - 1)) >> shift)
