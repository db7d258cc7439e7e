"""Faults to plant into the host side, by the proof that must find them."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component

from hw import csr
from hw.formal.bench import Sabotage
from hw.formal.proof import Fault

ADDRESS = {r.name: r.offset for r in csr.FIXED}


def _deaf(m: Module, outer: Component, inner: Component) -> None:
    # Takes a request while an answer waits, as if the answer were being accepted.
    m.d.comb += inner.response.ready.eq(outer.response.ready | outer.request.valid)


def _answers_late(m: Module, outer: Component, inner: Component) -> None:
    before = Signal()
    m.d.sync += before.eq(inner.response.valid & ~(before & outer.response.ready))
    m.d.comb += [
        outer.response.valid.eq(inner.response.valid & before),
        inner.response.ready.eq(outer.response.ready & before),
    ]


def _loads_once(m: Module, outer: Component, inner: Component) -> None:
    loaded = Signal()
    m.d.sync += loaded.eq(inner.load)
    m.d.comb += outer.load.eq(inner.load & ~loaded)


def _flickers(m: Module, outer: Component, inner: Component) -> None:
    m.d.comb += outer.response.payload.eq(inner.response.payload ^ outer.request.valid)


def _always_idle(m: Module, outer: Component, inner: Component) -> None:
    # Settings show what was requested, whether they were set or not.
    written = Signal()
    m.d.sync += written.eq(outer.request.valid & outer.request.payload.write)
    m.d.comb += outer.enable.eq(inner.enable ^ written)


def _writes_any_time(m: Module, outer: Component, inner: Component) -> None:
    wanted = (
        outer.request.valid
        & outer.request.payload.write
        & (outer.request.payload.address == ADDRESS["PROGRAM_DATA"])
    )
    m.d.comb += outer.program_write.eq(wanted)


def _runs_again(m: Module, outer: Component, inner: Component) -> None:
    m.d.comb += [outer.run.eq(inner.run | (inner.done & inner.failed)), outer.stop.eq(~outer.run)]


def _never_waits(m: Module, outer: Component, inner: Component) -> None:
    m.d.comb += inner.quiet.eq(1)


def _check_skipped(m: Module, outer: Component, inner: Component) -> None:
    # Words that come after a check word go to the memory of warp 0 unseen.
    payload, seen = outer.request.payload, Signal()
    m.d.sync += seen.eq(seen | (outer.request.valid & (payload.address == ADDRESS["PROGRAM_CHECK"])))
    with m.If(seen & outer.request.valid & (payload.address == ADDRESS["PROGRAM_DATA"])):
        m.d.comb += [
            inner.request.payload.address.eq(0),
            outer.program_write.eq(1),
            outer.program_data.eq(payload.data),
        ]


def _weak_check(m: Module, outer: Component, inner: Component) -> None:
    # The highest bit of the words of a program is lost on the way to the check.
    words = outer.request.payload.address == ADDRESS["PROGRAM_DATA"]
    value, taken = outer.request.payload.data, Signal(32)
    with m.If(inner.request.ready):
        m.d.sync += taken.eq(value)
    m.d.comb += [
        inner.request.payload.data.eq(value & Mux(words, 0x7FFFFFFF, 0xFFFFFFFF)),
        outer.program_data.eq(taken),
    ]


def _shows_success(m: Module, outer: Component, inner: Component) -> None:
    m.d.comb += outer.failed.eq(inner.failed & inner.cycle.any())


def _always_progress(m: Module, outer: Component, inner: Component) -> None:
    m.d.comb += inner.progress.eq(outer.progress | outer.request.valid)


def _no_progress(m: Module, outer: Component, inner: Component) -> None:
    waited = Signal()
    m.d.sync += waited.eq(outer.progress)
    m.d.comb += inner.progress.eq(outer.progress & ~waited)


def _error_missed(m: Module, outer: Component, inner: Component) -> None:
    m.d.comb += inner.error.eq(outer.error & ~outer.finished)


STREAMS = (
    Fault(
        "answer-dropped",
        "an answer that waits is lost when the next request comes",
        "one_answer_each",
        Sabotage(_deaf),
        10,
    ),
    Fault(
        "answer-late",
        "an answer comes a cycle late",
        "answers_in_time",
        Sabotage(_answers_late),
        8,
    ),
    Fault(
        "answer-changes",
        "an answer changes when the next request comes",
        "answer_is_stable",
        Sabotage(_flickers),
        6,
    ),
    Fault(
        "enable-live",
        "writes change the enabled warps during a run",
        "settings_fixed",
        Sabotage(_always_idle),
        10,
    ),
    Fault(
        "program-live",
        "programs are written during a run",
        "no_writes_to_running_programs",
        Sabotage(_writes_any_time),
        8,
    ),
    Fault("load-short", "`load` lasts one cycle", "run_follows_load", Sabotage(_loads_once), 10),
    Fault("runs-on", "a failed run starts again", "stop_is_final", Sabotage(_runs_again), 8),
    Fault(
        "clear-early",
        "a clear does not wait for memory",
        "clear_only_when_quiet",
        Sabotage(_never_waits),
        8,
    ),
)
PROGRAMS = (
    Fault(
        "word-after-check",
        "words after the check word do not undo it",
        "only_checked_programs_run",
        Sabotage(_check_skipped),
        15,
    ),
    Fault(
        "weak-check",
        "the check leaves out the highest bit",
        "only_checked_programs_run",
        Sabotage(_weak_check),
        13,
    ),
    Fault(
        "refusal-silent",
        "a refused start shows no error",
        "unchecked_start_fails",
        Sabotage(_shows_success),
        8,
    ),
)
WATCHDOG = (
    Fault(
        "watchdog-fed",
        "requests of the host count as progress",
        "watchdog_stops",
        Sabotage(_always_progress),
        16,
    ),
    Fault(
        "watchdog-hasty",
        "progress in two cycles in a row counts once",
        "watchdog_waits",
        Sabotage(_no_progress),
        16,
    ),
    Fault(
        "error-lost",
        "an error that is told when all have finished is lost",
        "error_stops",
        Sabotage(_error_missed),
        10,
    ),
)
