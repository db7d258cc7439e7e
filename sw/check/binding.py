"""Checks warps for one choice of parameter values: statistics, or a counterexample (docs/check.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.check.dependences import TooLargeError, distinct, pairs
from sw.check.explore import explore
from sw.check.order import Finding, Order, SharedError, channels, most, order, overflow, sides, stuck
from sw.check.schedule import Narrator
from sw.check.streams import SIGNAL, WAIT, Compiled, Stream, compile_warp, run
from sw.check.text import parse
from sw.check.trace import Trace, columns_of, stated_operands, trace
from sw.ir.program import Program, While
from sw.ir.walk import instructions, statements

Ints = npt.NDArray[np.int64]
#: Most states of the warps explored if reasoning about the order of events does not suffice.
STATES = 100_000


@dataclass(frozen=True)
class Limits:
    """The machine's limits: channels, tokens per channel, registers."""

    channels: int = 16
    depth: int = 8
    registers: int = 32


@dataclass(frozen=True)
class Flow:
    """The flow through a channel: signalling and waiting warps, number of tokens, and the most it ever holds.

    Over several parameter values, `tokens` and `most` are the largest.
    """

    source: tuple[int, ...]
    sink: tuple[int, ...]
    tokens: int
    most: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON; a single warp becomes a number."""
        ends = [w[0] if len(w) == 1 else list(w) or None for w in (self.source, self.sink)]
        return {"from": ends[0], "to": ends[1], "tokens": self.tokens, "most": self.most}


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    `method` says how it was obtained: "exact" (every instance, for all parameter values), "explored" (also
    every schedule for some channels), or "sampled" (some parameter values only). If `ok` is False, `reason`
    is one sentence. If the warps are to blame, `schedule` is a schedule that shows the error, `values` are
    the parameter values, and `turns` is the schedule as numbers: a warp, and the event up to which it runs.
    `deadlock` marks a schedule that stops.
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

    @property
    def failure(self) -> tuple[str, ...]:
        """Lines for people: reason, parameter values, schedule. Without a schedule nothing is known wrong."""
        values = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        reason = f"{'wrong: ' if self.schedule else ''}{self.reason}"
        return (reason, *([f"with {values}"] if values else ()), *(f"  {line}" for line in self.schedule))

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

    Raises `InputError` for a malformed text, and for a program that cannot be checked: an instruction without
    a warp, a `while`, waits and signals of its own.
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
    made: Trace | None = None,
) -> Verdict:
    """The verdict for one choice of parameter values; `made` is the program's trace, if it is known.

    Raises `IRError` if the program itself fails for these values, and `InputError` if a warp does.
    """
    made = made or trace(program, values)
    streams = {w: run(code, values) for w, code in warps.items()}
    narrator = Narrator(made, streams)
    bad = Verdict(False, "exact", values=dict(values), instances=made.count)
    said = _difference(narrator)
    if said is not None:
        return replace(bad, reason=said, schedule=(said,))
    event = np.zeros(made.count, np.int64)
    for w, times in made.by_warp.items():
        event[times] = streams[w].operations
    used, shared = sides(streams), ""
    try:
        try:
            found, count = _concluded(order(streams, channels(used)), made, event, limits.depth)
        except SharedError as error:
            bad = replace(bad, method="explored")
            shared = f"{error}, so it is unknown which warp gave a token, and there are "
            found, count = _explored(streams, made, event, limits.depth)
    except TooLargeError as error:
        return replace(bad, reason=f"cannot be shown: {shared}{error}")
    if found.kind is not None:
        reason, lines = narrator.finding(found, limits.depth, givers=not shared)
        turns = found.turns[:-1] if found.kind == "conflict" else found.turns
        stops = found.kind == "deadlock"
        return replace(bad, reason=reason, schedule=tuple(lines), turns=tuple(turns), deadlock=stops)
    flows = {}
    for c, ends in used.items():
        source, sink = (tuple(sorted(ends[kind])) for kind in (SIGNAL, WAIT))
        tokens = sum(events.size for events in ends[SIGNAL].values())
        flows[c] = Flow(source, sink, tokens, found.most[c])
    return Verdict(True, bad.method, dependences=count, instances=made.count, channels=flows)


def _difference(narrator: Narrator) -> str | None:
    """The first difference of the lowest warp that deviates from the program, in one sentence."""
    made = narrator.made
    none = np.empty(0, np.int64)
    for w, s in sorted(narrator.streams.items()):
        times, found = made.by_warp.get(w, none), s.operations
        both = min(times.size, found.size)
        rows, sites = made.row[times[:both]], s.events[found[:both]]
        first: tuple[int, str] = (both, "")
        together = rows.astype(np.int64) * len(s.sites) + sites
        for pair in np.flatnonzero(np.bincount(together)).tolist():
            row, number = divmod(pair, len(s.sites))
            site, instruction = s.sites[number], made.rows[row].instruction
            here = np.flatnonzero(together == pair)
            if site.name != (instruction.label if site.generic else instruction.name):
                first = min(first, (int(here[0]), ""))
            elif not site.generic:
                columns = list(stated_operands(instruction))
                given = s.values[number][np.searchsorted(np.flatnonzero(s.events == number), found[here])]
                expected = made.rows[row].operands[:, np.searchsorted(made.rows[row].time, times[here])].T
                wrong = np.argwhere(given[:, columns] != expected)
                if wrong.size:
                    n, k = wrong[0].tolist()
                    name = columns_of(instruction.name)[columns[k]]
                    text = f"{name} = {given[n, columns[k]]}, not {expected[n, k]}"
                    first = min(first, (int(here[n]), text))
        at, value = first
        if at < max(times.size, found.size):
            return narrator.unlike(w, at, value)
    return None


def _concluded(found: Order, made: Trace, event: Ints, depth: int) -> tuple[Finding, int]:
    """The conclusion from the order of events, and the number of pairs of instances that it orders."""
    whole = {w: s.events.size for w, s in found.streams.items()}
    turns = found.turns(whole) if stuck(found) else None
    full = overflow(found, depth, whole if turns is None else dict.fromkeys(whole, 0) | dict(turns))
    if full is not None:
        return Finding("overflow", found.up_to(full)), 0
    if turns is not None:
        return Finding("deadlock", turns), 0
    count, broken = _enforced(found, made, event)
    if broken is not None:
        earlier, later = ((int(made.warp[t]), int(event[t])) for t in broken)
        return Finding("dependence", found.up_to(later), earlier), 0
    return Finding(most=most(found)), count


def _enforced(found: Order, made: Trace, event: Ints) -> tuple[int, tuple[int, int] | None]:
    """How many pairs of instances are ordered, and the first pair that is not, by its later instance."""
    streams = found.streams
    count, keys, worst = made.count, [], None
    for earlier, later in pairs(made):
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


def _explored(streams: Mapping[int, Stream], made: Trace, event: Ints, depth: int) -> tuple[Finding, int]:
    """The result of all schedules, and how many pairs of instances depend on each other directly."""
    linked: set[tuple[int, int]] = set()
    for earlier, later in pairs(made):
        linked.update(zip(earlier.tolist(), later.tolist(), strict=True))
    events = [*zip(made.warp.tolist(), event.tolist(), strict=True)]
    found = explore(streams, [(events[a], events[b]) for a, b in linked], depth, states=STATES)
    return found, len(linked)
