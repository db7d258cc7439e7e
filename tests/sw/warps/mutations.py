"""Single changes to correct warps, and whether the results are wrong."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from hw.config import MachineConfig
from sw.check import Limits, check_binding, compile_all
from sw.check.dependences import TooLargeError
from sw.check.explore import explore
from sw.check.order import Event
from sw.check.streams import Stream, run
from sw.check.trace import trace
from sw.ir.program import Program
from tests.sw.check.cases import conflicts, replay

Texts = Mapping[int, str]


class Kind(enum.Enum):
    """What is changed."""

    WAIT = "wait removed"
    SIGNAL = "signal removed"
    TOKEN = "initial token removed"
    SWAP = "channels swapped"


class Fate(enum.Enum):
    """What becomes of a change.

    Rejected: the checker shows a schedule in which something goes wrong. Harmless: the checker accepts, and
    so do all schedules; too many to go through: `UNEXPLORED`. Strict: the checker rejects what all schedules
    accept. Missed: the checker accepts what some schedule breaks.
    """

    REJECTED = "rejected"
    HARMLESS = "harmless"
    UNEXPLORED = "harmless, schedules not gone through"
    STRICT = "rejected though harmless"
    MISSED = "accepted though wrong"


_SYNC = re.compile(r"^(?:@!?r\d+ )?(wait|signal) (\d+)$")


def mutations(texts: Texts) -> Iterator[tuple[Kind, str, Texts]]:
    """Every single change that gives other texts: what, where in words, and the texts.

    Channels are swapped where they are awaited: on both sides that would be no change. What only changes the
    order of waits, or of signals, that stand next to each other is none either.
    """
    seen: set[tuple[str, ...]] = set()
    for warp, text in texts.items():
        lines = text.splitlines()
        body = next((n for n, line in enumerate(lines) if not re.match(r"signal |arg ", line)), len(lines))
        for n, line in enumerate(lines):
            found = _SYNC.match(line)
            if found is None:
                continue
            kind = Kind.WAIT if found[1] == "wait" else Kind.TOKEN if n < body else Kind.SIGNAL
            made = {**texts, warp: "\n".join([*lines[:n], *lines[n + 1 :]]) + "\n"}
            if tuple(made.values()) not in seen:
                seen.add(tuple(made.values()))
                yield kind, f"warp {warp}, line {n + 1}", made
    used = sorted({int(n) for t in texts.values() for n in re.findall(r"wait (\d+)$", t, re.MULTILINE)})
    for a, b in itertools.combinations(used, 2):
        awaited = _swapped(texts, "wait", a, b)
        if all(_sorted(t) != _sorted(texts) for t in (awaited, _swapped(texts, "signal", a, b))):
            yield Kind.SWAP, f"channels {a} and {b} where they are awaited", awaited


def _swapped(texts: Texts, name: str, a: int, b: int) -> Texts:
    """The texts with two channels swapped for waits, or for signals."""
    swap = {str(a): str(b), str(b): str(a)}

    def other(match: re.Match[str]) -> str:
        return f"{name} {swap.get(match[1], match[1])}"

    return {w: re.sub(rf"{name} (\d+)$", other, t, flags=re.MULTILINE) for w, t in texts.items()}


def _sorted(texts: Texts) -> list[str]:
    """The texts with waits, or signals, that stand next to each other in the order of their channels."""
    made = []
    for text in texts.values():
        groups = itertools.groupby(text.splitlines(), lambda line: (_SYNC.match(line) or [line, ""])[1])
        made.append("\n".join(line for syncs, g in groups for line in (sorted(g) if syncs else g)))
    return made


class Judge:
    """Says what becomes of changes to the warps of a program.

    `values` are all values of the parameters for which the program runs. What does not depend on the warps is
    found once.
    """

    def __init__(self, program: Program, config: MachineConfig, values: Sequence[Mapping[str, int]]):
        self.program, self.limits = program, Limits(config.channels, config.channel_depth)
        self.runs = [(dict(v), trace(program, v), conflicts(program, v)) for v in values]

    def fate(self, texts: Texts, states: int = 60_000) -> Fate:
        """What becomes of texts; all schedules are gone through up to so many states."""
        warps = compile_all(self.program, texts, self.limits)
        depth = self.limits.depth
        for given, made, known in self.runs:
            verdict = check_binding(self.program, warps, given, self.limits, made=made)
            if verdict.ok:
                continue
            streams = {w: run(code, given) for w, code in warps.items()}
            if replay(self.program, streams, given, depth, verdict.turns, known):
                return Fate.REJECTED
            shown = _explored(streams, known, depth, states)
            return Fate.REJECTED if shown is Fate.MISSED else Fate.STRICT
        fates = {
            _explored({w: run(code, given) for w, code in warps.items()}, known, depth, states)
            for given, _, known in self.runs
        }
        return next((f for f in (Fate.MISSED, Fate.UNEXPLORED) if f in fates), Fate.HARMLESS)


def _explored(
    streams: Mapping[int, Stream], known: Sequence[tuple[Event, Event]], depth: int, states: int
) -> Fate:
    """What all schedules say of warps that the checker accepts."""
    own = {w: s.operations.tolist() for w, s in streams.items()}
    pairs = [((x, own[x][a]), (y, own[y][b])) for (x, a), (y, b) in known]
    try:
        found = explore(streams, pairs, depth, states=states)
    except TooLargeError:
        return Fate.UNEXPLORED
    return Fate.HARMLESS if found.kind is None else Fate.MISSED
