"""Faults to plant in the host side, by the proof that must find them."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component

from hw import csr
from hw.formal.bench import past
from hw.formal.proof import planted

ADDRESS = {r.name: r.offset for r in csr.FIXED}


def _deaf(m: Module, outer: Component, inner: Component) -> None:
    """A waiting answer is lost when the next request comes."""
    m.d.comb += inner.response.ready.eq(outer.response.ready | outer.request.valid)


def _answers_late(m: Module, outer: Component, inner: Component) -> None:
    """An answer comes a cycle late."""
    late = Signal()
    m.d.sync += late.eq(inner.response.valid & ~(late & outer.response.ready))
    m.d.comb += [
        outer.response.valid.eq(inner.response.valid & late),
        inner.response.ready.eq(outer.response.ready & late),
    ]


def _runs_at_once(m: Module, outer: Component, inner: Component) -> None:
    """A run begins one round of turns early."""
    m.d.comb += [outer.run.eq(~inner.clear & ~inner.done & ~inner.failed), outer.stop.eq(~outer.run)]


def _runs_late(m: Module, outer: Component, inner: Component) -> None:
    """A run begins a cycle late."""
    m.d.comb += [outer.run.eq(inner.run & past(m, inner.run)), outer.stop.eq(~outer.run)]


def _executes_on(m: Module, outer: Component, inner: Component) -> None:
    """Warps execute for one cycle too long after an error."""
    m.d.comb += outer.execute.eq(inner.execute | past(m, inner.execute))


def _flickers(m: Module, outer: Component, inner: Component) -> None:
    """An answer changes when the next request comes."""
    m.d.comb += outer.response.payload.eq(inner.response.payload ^ outer.request.valid)


def _always_idle(m: Module, outer: Component, inner: Component) -> None:
    """Writes during a run change the enabled warps."""
    # Settings show what the host wrote, even if the write was ignored.
    written = past(m, outer.request.valid & outer.request.payload.write)
    m.d.comb += outer.enable.eq(inner.enable ^ written)


def _writes_any_time(m: Module, outer: Component, inner: Component) -> None:
    """Programs are written during a run."""
    wanted = (
        outer.request.valid
        & outer.request.payload.write
        & (outer.request.payload.address == ADDRESS["PROGRAM_DATA"])
    )
    m.d.comb += outer.program_write.eq(wanted)


def _runs_again(m: Module, outer: Component, inner: Component) -> None:
    """A failed run starts again."""
    again = inner.done & inner.failed & past(m, inner.done)
    m.d.comb += [outer.run.eq(inner.run | again), outer.stop.eq(~outer.run)]


def _never_waits(m: Module, outer: Component, inner: Component) -> None:
    """A clear does not wait for memory."""
    m.d.comb += inner.quiet.eq(1)


def _check_skipped(m: Module, outer: Component, inner: Component) -> None:
    """Words after the check word do not invalidate the check."""
    # Words that come after a check word are written to the memory of warp 0 without being noticed.
    payload, seen = outer.request.payload, Signal()
    m.d.sync += seen.eq(seen | (outer.request.valid & (payload.address == ADDRESS["PROGRAM_CHECK"])))
    with m.If(seen & outer.request.valid & (payload.address == ADDRESS["PROGRAM_DATA"])):
        m.d.comb += [
            inner.request.payload.address.eq(0),
            outer.program_write.eq(1),
            outer.program_warp.eq(0),
            outer.program_data.eq(payload.data),
        ]


def _weak_check(m: Module, outer: Component, inner: Component) -> None:
    """The check ignores the highest bit."""
    # The highest bit of program words is lost on the way to the check.
    words = outer.request.payload.address == ADDRESS["PROGRAM_DATA"]
    value, taken = outer.request.payload.data, Signal(32)
    with m.If(inner.request.ready):
        m.d.sync += taken.eq(value)
    m.d.comb += [
        inner.request.payload.data.eq(value & Mux(words, 0x7FFFFFFF, 0xFFFFFFFF)),
        outer.program_data.eq(taken),
    ]


def _shows_success(m: Module, outer: Component, inner: Component) -> None:
    """A refused start shows no error."""
    m.d.comb += outer.failed.eq(inner.failed & inner.cycle.any())


def _always_progress(m: Module, outer: Component, inner: Component) -> None:
    """Requests of the host count as progress."""
    m.d.comb += inner.progress.eq(outer.progress | outer.request.valid)


def _no_progress(m: Module, outer: Component, inner: Component) -> None:
    """Progress in two cycles in a row counts once."""
    m.d.comb += inner.progress.eq(outer.progress.any() & ~past(m, outer.progress.any()))


def _error_missed(m: Module, outer: Component, inner: Component) -> None:
    """An error that is reported when all warps have finished is lost."""
    m.d.comb += inner.error.eq(outer.error & ~outer.finished)


def _counts_on(m: Module, outer: Component, inner: Component) -> None:
    """Cycles are counted until the machine notices that all warps have finished."""
    m.d.comb += inner.event.eq(outer.event | inner.run)


STREAMS = (
    planted("answer-dropped", "one_answer_each", _deaf, 16),
    planted("answer-late", "answers_in_time", _answers_late, 12),
    planted("answer-changes", "answer_is_stable", _flickers, 10),
    planted("enable-live", "settings_fixed", _always_idle, 14),
    planted("program-live", "no_writes_to_running_programs", _writes_any_time, 12),
    planted("load-skipped", "run_follows_load", _runs_at_once, 16),
    planted("run-late", "run_follows_load", _runs_late, 20),
    planted("executes-on", "warps_run", _executes_on, 34),
    planted("runs-on", "stop_is_final", _runs_again, 12),
    planted("clear-early", "clear_only_when_quiet", _never_waits, 14),
)
PROGRAMS = (
    planted("word-after-check", "only_checked_programs_run", _check_skipped, 44),
    planted("weak-check", "only_checked_programs_run", _weak_check, 40),
    planted("refusal-silent", "unchecked_start_fails", _shows_success, 12),
)
WATCHDOG = (
    planted("watchdog-fed", "watchdog_stops", _always_progress, 34),
    planted("watchdog-hasty", "watchdog_waits", _no_progress, 34),
    planted("error-lost", "error_stops", _error_missed, 20),
    planted("counts-on", "cycles_counted", _counts_on, 22),
)
