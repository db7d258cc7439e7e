"""Check warps for one choice of parameter values: figures, or a counterexample (docs/check.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.check.dependences import TooLargeError, distinct, pairs
from sw.check.explore import explore
from sw.check.match import difference
from sw.check.order import Order, SharedError, Turns, most, order, overflow, stuck
from sw.check.schedule import Narrator
from sw.check.streams import SIGNAL, STEPS, WAIT, Compiled, EventSite, Stream, compile_warp, run
from sw.check.text import parse
from sw.check.trace import Trace, trace
from sw.ir.program import Program, While
from sw.ir.walk import instructions, statements

Ints = npt.NDArray[np.int64]
#: States of the warps that are gone through where an order of events cannot be concluded.
STATES = 100_000


@dataclass(frozen=True)
class Limits:
    """What the machine has: channels, tokens that one holds, signals that may be outstanding, registers."""

    channels: int = 16
    depth: int = 8
    pending_signals: int = 8
    registers: int = 32


@dataclass(frozen=True)
class Flow:
    """What passes through a channel: who signals, who waits, how many tokens, the most that it ever holds.

    Over several parameter values `tokens` and `most` are the largest.
    """

    source: tuple[int, ...]
    sink: tuple[int, ...]
    tokens: int
    most: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON; a single warp is a number."""
        ends = [w[0] if len(w) == 1 else list(w) or None for w in (self.source, self.sink)]
        return {"from": ends[0], "to": ends[1], "tokens": self.tokens, "most": self.most}


@dataclass(frozen=True)
class Verdict:
    """The answer.

    `method` says how it was found: "exact" (every instance, for all values of the parameters), "explored"
    (all of these, and for some channels every schedule), "sampled" (some values of the parameters only). When
    `ok` is False, `reason` is one sentence, and `schedule` a schedule of the warps that shows it, where the
    warps are to blame; `values` are the parameters' values there, and `turns` the schedule as numbers: warp,
    and the event up to which it goes. `deadlock` tells that a schedule stops.
    """

    ok: bool
    method: str
    reason: str = ""
    schedule: tuple[str, ...] = ()
    values: Mapping[str, int] = field(default_factory=dict)
    turns: tuple[tuple[int, int], ...] = ()
    dependences: int = 0
    instances: int = 0
    bindings: int = 1
    channels: Mapping[int, Flow] = field(default_factory=dict)
    deadlock: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        made: dict[str, Any] = {"ok": self.ok, "method": self.method}
        if not self.ok:
            made |= {"reason": self.reason, "schedule": list(self.schedule)}
            if self.values:
                made["parameters"] = dict(self.values)
        return made | {
            "dependences": self.dependences,
            "instances": self.instances,
            "bindings": self.bindings,
            "channels": {str(c): flow.as_dict() for c, flow in sorted(self.channels.items())},
            "deadlock": self.deadlock,
        }


def compile_all(program: Program, texts: Mapping[int, str], limits: Limits) -> dict[int, Compiled]:
    """The warps' texts, ready to run; a warp of the program without a text does nothing.

    Raises `InputError` for a text that is not well formed, and for a program that is not one to check: an
    instruction without warp, a `while`, waits and signals of its own.
    """
    for s in statements(program.body):
        if isinstance(s, While):
            raise InputError(f"{s.where or program.name}: a while loop cannot run on warps")
    needed = dict.fromkeys(texts, None)
    for i in instructions(program):
        place = i.where or program.name
        if i.warp is None:
            raise InputError(f"{place}: instruction {i.label} must have a warp")
        if i.name in ("wait", "signal"):
            raise InputError(f"{place}: a sequential program must have no {i.name}")
        needed[i.warp] = None
    return {
        w: compile_warp(parse(texts.get(w, "halt"), w, limits.registers, limits.channels), w)
        for w in sorted(needed)
    }


def check_binding(
    program: Program,
    warps: Mapping[int, Compiled],
    values: Mapping[str, int],
    limits: Limits,
    steps: int = STEPS,
    made: Trace | None = None,
) -> Verdict:
    """The verdict for values of the parameters; `made` is the program's trace, where it is known.

    Raises `IRError` where the program itself fails for these values, and `InputError` where a warp does.
    """
    made = made or trace(program, values)
    streams = {w: run(code, values, steps) for w, code in warps.items()}
    narrator = Narrator(made, streams)
    bad = Verdict(False, "exact", values=dict(values), instances=made.count)
    unlike = difference(made, streams)
    if unlike is not None:
        said = narrator.unlike(unlike)
        return replace(bad, reason=said, schedule=(said,))
    try:
        found = order(streams)
    except SharedError as error:
        return _explored(made, narrator, limits, bad, error)
    stop = found.turns({w: s.events.size for w, s in streams.items()}) if stuck(found) else None
    full = overflow(found, limits.depth, None if stop is None else stop[1])
    if full is not None:
        return _overflows(found, narrator, bad, full, limits.depth)
    if stop is not None:
        turns, cut = stop
        stands = tuple(narrator.standstill(cut, found))
        reason = "the warps come to a stop: " + "; ".join(stands)
        lines = (*narrator.lines(turns), *stands)
        return replace(bad, reason=reason, schedule=lines, turns=tuple(turns), deadlock=True)
    try:
        count, broken = _enforced(found, made)
    except TooLargeError as error:
        return replace(bad, reason=f"cannot be shown: {error}")
    if broken is not None:
        first, second = broken
        earlier, later = (
            (w, narrator.event(w, t))
            for w, t in ((int(made.warp[first]), first), (int(made.warp[second]), second))
        )
        turns, _ = found.turns(found.past(*later))
        return _too_early(narrator, bad, _with(turns, later), earlier)
    held = most(found)
    flows = {
        c.number: Flow(_ends(c.source), _ends(c.sink), c.signals.size, held[c.number])
        for c in found.channels.values()
    }
    return Verdict(True, "exact", dependences=count, instances=made.count, channels=flows)


def _ends(warp: int | None) -> tuple[int, ...]:
    return () if warp is None else (warp,)


def _with(turns: Turns, event: tuple[int, int]) -> Turns:
    """The schedule with one more event."""
    return [*turns, (event[0], event[1] + 1)]


def _too_early(narrator: Narrator, bad: Verdict, turns: Turns, earlier: tuple[int, int]) -> Verdict:
    """A schedule whose last event should come after another that has not happened."""
    later = (turns[-1][0], turns[-1][1] - 1)
    name, line, how = narrator.name(*later), narrator.line(*later), narrator.clash(earlier, later)
    said = f"warp {later[0]}: runs {name} (line {line}), which {how}"
    reason = f"{name} (warp {later[0]}, line {line}) can run too early: it {how}"
    return replace(bad, reason=reason, schedule=(*narrator.lines(turns[:-1]), said), turns=tuple(turns))


def _overflows(found: Order, narrator: Narrator, bad: Verdict, full: tuple[int, int], depth: int) -> Verdict:
    """A schedule that signals a full channel."""
    number, signal = full
    channel = found.channels[number]
    assert channel.source is not None
    event = (channel.source, int(channel.signals[signal]))
    turns, _ = found.turns(found.past(*event))
    said = _full(event[0], narrator.streams[event[0]].site(event[1]), depth)
    return replace(
        bad,
        reason=f"channel {number} can overflow: {said}",
        schedule=(*narrator.lines(turns), said),
        turns=tuple(_with(turns, event)),
    )


def _full(warp: int, site: EventSite, depth: int) -> str:
    return (
        f"warp {warp}: signals channel {site.channel} (line {site.line}), which holds {depth} tokens already"
    )


def _enforced(found: Order, made: Trace) -> tuple[int, tuple[int, int] | None]:
    """How many pairs of instances are kept in order, and the first that is not, by its later instance."""
    streams = found.streams
    event = np.zeros(made.count, np.int64)
    for w, times in made.by_warp.items():
        event[times] = streams[w].operations
    count, keys, worst = made.count, [], None
    for earlier, later in pairs(made, made.warp):
        ends = made.warp[earlier] * (max(streams) + 1) + made.warp[later]
        for both in np.flatnonzero(np.bincount(ends)).tolist():
            x, y = divmod(both, max(streams) + 1)
            here = np.flatnonzero(ends == both)
            over = found.before(y, x, event[later[here]])
            wrong = here[over <= event[earlier[here]]]
            if wrong.size:
                key = int((later[wrong] * count + earlier[wrong]).min())
                worst = key if worst is None else min(worst, key)
        keys.append(later * count + earlier)
    total = sum(k.size for k in keys) if len(keys) < 2 else int(distinct(np.concatenate(keys)).size)
    return total, None if worst is None else (worst % count, worst // count)


def _explored(made: Trace, narrator: Narrator, limits: Limits, bad: Verdict, shared: SharedError) -> Verdict:
    """The verdict where a channel has several warps on one side: from all schedules, or none."""
    streams = narrator.streams
    linked: set[tuple[int, int]] = set()
    for earlier, later in pairs(made, made.warp):
        linked.update(zip(earlier.tolist(), later.tolist(), strict=True))
    named = [
        tuple((w, narrator.event(w, t)) for w, t in ((int(made.warp[t]), t) for t in pair)) for pair in linked
    ]
    try:
        found = explore(streams, [(a, b) for a, b in named], limits.depth, states=STATES)
    except TooLargeError as error:
        reason = f"cannot be shown: {shared}, so tokens do not tell who gave them, and there are {error}"
        return replace(bad, method="explored", reason=reason)
    bad = replace(bad, method="explored")
    turns: Turns = [(w, e + 1) for w, e in found.path]
    if found.kind is None:
        flows = {c: _shared_flow(streams, c, held) for c, held in found.most.items()}
        return Verdict(True, "explored", dependences=len(linked), instances=made.count, channels=flows)
    if found.kind == "deadlock":
        cut = dict.fromkeys(streams, 0) | dict(turns)
        stops = tuple(narrator.standstill(cut))
        reason = "the warps come to a stop: " + "; ".join(stops)
        return replace(
            bad, reason=reason, schedule=(*narrator.lines(turns), *stops), turns=tuple(turns), deadlock=True
        )
    last = found.path[-1]
    site = streams[last[0]].site(last[1])
    if found.kind == "conflict":
        assert found.broken is not None
        other = (*found.broken, narrator.line(*found.broken))
        what = "signal" if site.kind == SIGNAL else "take a token of"
        said = f"warp {other[0]} (line {other[2]}) and warp {last[0]} (line {site.line}) {what}"
        said = f"{said} channel {site.channel} in one cycle"
        reason = f"{said}, which the machine does not allow"
        lines = (*narrator.lines(turns[:-1]), said)
        return replace(bad, reason=reason, schedule=lines, turns=tuple(turns[:-1]))
    if found.broken is not None:
        return _too_early(narrator, bad, turns, found.broken)
    said = _full(last[0], site, limits.depth)
    reason = f"channel {site.channel} can overflow: {said}"
    return replace(bad, reason=reason, schedule=(*narrator.lines(turns[:-1]), said), turns=tuple(turns))


def _shared_flow(streams: Mapping[int, Stream], channel: int, held: int) -> Flow:
    ends = []
    for kind in (SIGNAL, WAIT):
        counts = {w: int(((s.kinds == kind) & (s.channels == channel)).sum()) for w, s in streams.items()}
        ends.append({w: n for w, n in counts.items() if n})
    return Flow(tuple(ends[0]), tuple(ends[1]), sum(ends[0].values()), held)
