"""Why a run takes its cycles: the critical path, with each cycle charged to one cause.

The path goes back from the last event to what that event waited for. An operation waits for the one before it
on its engine or for its own issue; an issue for a token, an operation or the previous instruction; a signal
for the operation that it reports. The cycles between two events are charged to the engine that works, or to
the warps if none does. Causes therefore add up to all cycles, and work hidden behind other work costs
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cosim.job import EventKind, Job, Outcome
from cosim.lanes import Columns, LaneName, Program, lanes_of, table
from hw.config import ENGINES, MachineConfig
from hw.isa import TIMING

#: What cycles can be charged to: a short name, and the explanation.
CAUSES = {
    "gemm": ("array", "the array multiplies at its peak"),
    "edges": ("array not full", "the array multiplies blocks that are smaller than it"),
    "drain": ("drain and fill", "the array starts or drains and multiplies nothing"),
    "cgra": ("CGRA", "the CGRA executes steps of its loops"),
    "setup": ("CGRA set-up", "the CGRA loads and checks a configuration"),
    "conflicts": ("bank conflicts", "the CGRA waits for a memory bank that is in use"),
    "load_a": ("load A", "everything waits for load A"),
    "load_b": ("load B", "everything waits for load B"),
    "load_c": ("load C", "everything waits for load C"),
    "store": ("store", "everything waits for the store"),
    "warps": ("issue and sync", "everything waits for warps: instructions, waits, signals"),
}


class Bottleneck(NamedTuple):
    """The dominant cause of cycles (a key of `CAUSES`), and its share of them."""

    cause: str
    share: float

    def __str__(self) -> str:
        return f"{CAUSES[self.cause][0]} {100 * self.share:.0f} %"


def bottleneck(causes: Mapping[str, int]) -> Bottleneck | None:
    """The dominant cause, or None if there are no cycles."""
    total = sum(causes.values())
    name = max(causes, key=lambda c: causes[c], default="")
    return Bottleneck(name, causes[name] / total) if total else None


class _Event(NamedTuple):
    """Event number `at` of its kind: of warp `lane`, or the end of an operation of engine `lane`.

    `end` is the cycle after the event. For an operation still in progress, it is the end of the cycles that
    count.
    """

    kind: EventKind
    lane: int
    at: int
    end: int


@dataclass(frozen=True)
class CriticalPath:
    """The critical path of an outcome; `predicted` is the cycle model's outcome of the same job."""

    config: MachineConfig
    job: Job
    outcome: Outcome
    predicted: Outcome

    def causes(self, first: int, last: int) -> dict[str, int]:
        """The cycles from `first` to `last` by cause, followed back from the latest event before `last`."""
        found: Counter[str] = Counter()
        event, cut = self._latest(last), last
        if event is not None and event.end < cut:
            found["warps"] += cut - max(event.end, first)
            cut = event.end
        while cut > first:
            before = self._before(event) if event is not None else None
            begin = before.end if before is not None else 0
            cycles = cut - max(begin, first)
            if event is not None and event.kind is EventKind.COMPLETE:
                found.update(self._spent(event, begin, cycles))
            else:
                found["warps"] += cycles
            event, cut = before, begin
        return {name: found[name] for name in CAUSES if found[name] > 0}

    # Events by warp and engine

    @cached_property
    def _program(self) -> Program:
        return Program.of(self.job, self.config)

    @cached_property
    def _lanes(self) -> Mapping[LaneName, Columns]:
        return lanes_of(self._program, self.outcome)

    @cached_property
    def _engines(self) -> dict[int, Columns]:
        """Operations by engine, in the order of completion."""
        return {name.number: lane for name, lane in self._lanes.items() if name.kind == 1}

    @cached_property
    def _warps(self) -> dict[int, Columns]:
        """Instructions by warp."""
        return {name.number: lane for name, lane in self._lanes.items() if name.kind == 0}

    @cached_property
    def _signals(self) -> dict[int, Columns]:
        """Signals that fired, by warp: `cycle`, `channel`, and the index of the `instruction`."""
        rows, found = table(self.outcome.events), {}
        channel = np.array(
            [c.fields["channel"] if c and c.name == "signal" else -1 for c in self._program.codes]
        )
        for warp, lane in self._warps.items():
            cycle = rows[(rows[:, 1] == warp) & (rows[:, 2] == EventKind.SIGNAL), 0]
            issued = np.flatnonzero((channel[lane["code"] >> 1] >= 0) & (lane["code"] & 1 == 0))[: len(cycle)]
            own = channel[lane["code"][issued] >> 1]
            found[warp] = {"cycle": cycle[: len(issued)], "channel": own, "instruction": issued}
        return found

    def _latest(self, last: int) -> _Event | None:
        """The last event that ends by cycle `last`; an engine's if several end at once."""
        found = []
        for kind, lanes, key in (
            (EventKind.ISSUE, self._warps, "end"),
            (EventKind.SIGNAL, self._signals, "cycle"),
            (EventKind.COMPLETE, self._engines, "end"),
        ):
            more = int(key == "cycle")
            for number, lane in lanes.items():
                index = int(np.searchsorted(lane[key], last - more, "right")) - 1
                if index >= 0:
                    found.append(_Event(kind, number, index, int(lane[key][index]) + more))
        return max(found, key=lambda e: (e.end, e.kind is EventKind.COMPLETE), default=None)

    def _working(self, engine: int, end: int) -> _Event | None:
        """The operation that an engine executes in the cycle before `end`, or None if it is idle."""
        lane = self._engines.get(engine)
        index = int(np.searchsorted(lane["end"], end)) if lane is not None else 0
        if lane is None or index == len(lane["end"]) or lane["start"][index] >= end:
            return None
        return _Event(EventKind.COMPLETE, engine, index, end)

    # What an event waited for

    def _before(self, event: _Event) -> _Event | None:
        """The event that `event` waited for; the cycles between the two are charged to `event`."""
        if event.kind is EventKind.COMPLETE:
            return self._before_completion(event)
        if event.kind is EventKind.SIGNAL:
            return self._before_signal(event.lane, event.at)
        return self._before_issue(event.lane, event.at)

    def _before_completion(self, event: _Event) -> _Event:
        """An operation waits for the previous one, unless that left its engine before this one issued."""
        lane, index = self._engines[event.lane], event.at
        issued = int(lane["issued"][index])
        if index:
            end = int(lane["end"][index - 1])
            if end - self._tail[ENGINES[event.lane]] > issued:
                return event._replace(at=index - 1, end=end)
        warp = int(lane["warp"][index])
        return self._issue(warp, issued)

    @cached_property
    def _tail(self) -> Mapping[str, int]:
        """Cycles, by engine, from when it can start its next operation to the completion of this one."""
        ports = self.job.settings.ports
        loads = {name: ports[name].latency + TIMING.load_write for name in ("load_a", "load_b", "load_c")}
        drain = TIMING.gemm_drain + self.config.rows - 1 + TIMING.acc_write
        store = ports["store"].latency + TIMING.store_response
        return loads | {"gemm": drain, "cgra": 0, "store": store}

    def _issue(self, warp: int, cycle: int) -> _Event:
        index = int(np.searchsorted(self._warps[warp]["end"], cycle + 1))
        return _Event(EventKind.ISSUE, warp, index, cycle + 1)

    def _before_issue(self, warp: int, index: int) -> _Event | None:
        """An instruction waits for what held it, or else for the previous instruction."""
        lane = self._warps[warp]
        cycle, code = int(lane["end"][index]) - 1, int(lane["code"][index])
        what = self._program.codes[code >> 1]
        if cycle > lane["start"][index] and what is not None and not code & 1:
            held = None
            if what.name == "wait":
                held = self._fired(what.fields["channel"], cycle)
            elif what.name == "signal":
                held = self._fired_by(warp, cycle)
            elif what.spec.engine is not None:
                held = self._holding(warp, ENGINES.index(what.spec.engine), cycle)
            if held is not None:
                return held
        return self._issue(warp, int(lane["end"][index - 1]) - 1) if index else None

    # A held warp resumes in its first turn after the release, so the release came after its previous turn.

    def _fired(self, channel: int, cycle: int) -> _Event | None:
        """The signal to a channel that ended a wait in `cycle`."""
        found = (self._fired_by(warp, cycle, channel) for warp in self._signals)
        return min((event for event in found if event), key=lambda e: e.end, default=None)

    def _fired_by(self, warp: int, cycle: int, channel: int | None = None) -> _Event | None:
        """The signal of a warp (to `channel` if given) that fired since the warp's turn before `cycle`."""
        lane = self._signals[warp]
        first, end = np.searchsorted(lane["cycle"], (cycle - self.config.derived.period, cycle))
        for index in range(first, end):
            if channel is None or lane["channel"][index] == channel:
                return _Event(EventKind.SIGNAL, warp, index, int(lane["cycle"][index]) + 1)
        return None

    def _ended(self, warp: int, cycle: int) -> _Event | None:
        """The last operation of a warp that completed since the warp's turn before `cycle`."""
        found = []
        for engine, lane in self._engines.items():
            first, end = np.searchsorted(lane["end"], (cycle - self.config.derived.period + 1, cycle + 1))
            own = np.flatnonzero(lane["warp"][first:end] == warp)
            if len(own):
                index = int(first + own[-1])
                found.append(_Event(EventKind.COMPLETE, engine, index, int(lane["end"][index])))
        return max(found, key=lambda e: e.end, default=None)

    def _holding(self, warp: int, engine: int, cycle: int) -> _Event | None:
        """What held an operation that issued in `cycle`: another operation of its warp, or a full queue."""
        other = self._ended(warp, cycle)
        if other is not None and other.lane != engine:
            return other
        lane = self._engines.get(engine)
        if lane is None:
            return None
        before = cycle - self.config.derived.period
        open_ = np.searchsorted(lane["issued"], before) - np.searchsorted(lane["end"], before)
        return self._working(engine, cycle) if open_ >= self.config.queue_depth else None

    def _before_signal(self, warp: int, index: int) -> _Event:
        """A signal waits for an operation or signal of its warp; otherwise it fires as it issues."""
        lane = self._signals[warp]
        cycle, issued = int(lane["cycle"][index]), int(lane["instruction"][index])
        if int(self._warps[warp]["end"][issued]) <= cycle:
            awaited = self._ended(warp, cycle) or self._fired_by(warp, cycle)
            if awaited is not None:
                return awaited
        return _Event(EventKind.ISSUE, warp, issued, int(self._warps[warp]["end"][issued]))

    # What an engine does

    def _spent(self, event: _Event, begin: int, cycles: int) -> dict[str, int]:
        """What an engine spends the last `cycles` cycles on; the operation's first cycle is `begin`."""
        engine, lane = ENGINES[event.lane], self._engines[event.lane]
        work = self.predicted.work.get(int(lane["warp"][event.at]), ())
        ordinal = int(lane["ordinal"][event.at])
        known = work[ordinal] if ordinal < len(work) else None
        if known is None:
            return {engine: cycles}
        if engine == "gemm":
            busy = min(cycles, known.busy)
            full = -(-busy * known.full // known.busy) if busy else 0
            return {"gemm": full, "edges": busy - full, "drain": cycles - busy}
        # It starts when it is taken, and completes in the cycle after its last step.
        taken = TIMING.enqueue if begin == lane["issued"][event.at] + 1 else 1
        setup = min(cycles, taken + known.setup)
        busy = min(cycles - setup, known.busy)
        return {"setup": setup, "cgra": busy, "conflicts": cycles - setup - busy}
