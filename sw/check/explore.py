"""Explores every schedule of a few short warps: broken dependences, deadlocks, channel overflows.

It does not reason about the order of events, but steps through the schedules one event at a time. So it
serves as a reference for the checker's reasoning, and it decides where that does not apply: on channels that
several warps signal or await.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from sw.check.dependences import TooLargeError
from sw.check.order import Event, Finding, Turns
from sw.check.streams import OP, SIGNAL, WAIT, Stream

#: Most states before the search is given up.
STATES = 1_000_000


def explore(
    streams: Mapping[int, Stream],
    dependences: Iterable[tuple[Event, Event]],
    depth: int,
    *,
    states: int = STATES,
) -> Finding:
    """Explore all schedules; `dependences` are pairs of events (earlier, later) of different warps."""
    return _Search(streams, dependences, depth, states).run()


#: Number of events that have happened in each warp.
_State = tuple[int, ...]
#: An event, the error it causes, and the other event involved.
_Move = tuple[Event, str | None, Event | None]


class _Search:
    """A breadth-first search; warps are identified by their index in `warps`."""

    def __init__(
        self,
        streams: Mapping[int, Stream],
        dependences: Iterable[tuple[Event, Event]],
        depth: int,
        states: int,
    ):
        self.warps = sorted(streams)
        self.kinds = [streams[w].kinds.tolist() for w in self.warps]
        self.channels = [streams[w].channels.tolist() for w in self.warps]
        place = {w: n for n, w in enumerate(self.warps)}
        self.needs: dict[Event, list[Event]] = {}
        self.sources: set[Event] = set()
        for (x, s), (y, t) in dependences:
            self.needs.setdefault((place[y], t), []).append((place[x], s))
            self.sources.add((place[x], s))
        self.depth, self.states = depth, states
        #: By channel and warp, the tokens held after the warp's first events: signals minus waits.
        self.held = {
            c: [_added(streams[w], c) for w in self.warps]
            for c in sorted({c for row in self.channels for c in row if c >= 0})
        }

    def run(self) -> Finding:
        start: _State = (0,) * len(self.warps)
        parents: dict[_State, tuple[_State, Event] | None] = {start: None}
        most = dict.fromkeys(self.held, 0)
        todo = deque([start])
        while todo:
            state = todo.popleft()
            moves = self.moves(state)
            if not moves and any(at < len(self.kinds[n]) for n, at in enumerate(state)):
                return Finding("deadlock", self.path(parents, state), None, most)
            for (n, at), bad, other in moves:
                if bad is not None:
                    path = [*self.path(parents, state), (self.warps[n], at + 1)]
                    return Finding(bad, path, other and (self.warps[other[0]], other[1]), most)
                following = (*state[:n], at + 1, *state[n + 1 :])
                if following not in parents:
                    if len(parents) >= self.states:
                        raise TooLargeError(f"more than {self.states:,} states of the warps")
                    parents[following] = (state, (n, at))
                    todo.append(following)
                    if self.kinds[n][at] == SIGNAL:
                        c = self.channels[n][at]
                        most[c] = max(most[c], self.tokens(following, c))
        return Finding(most=most)

    def path(self, parents: Mapping[_State, tuple[_State, Event] | None], state: _State) -> Turns:
        """The events up to a state, a turn each."""
        found: Turns = []
        step = parents[state]
        while step is not None:
            state, (n, at) = step
            found.append((self.warps[n], at + 1))
            step = parents[state]
        return found[::-1]

    def tokens(self, state: _State, channel: int) -> int:
        return sum(added[at] for added, at in zip(self.held[channel], state, strict=True))

    def moves(self, state: _State) -> list[_Move]:
        found: list[_Move] = []
        conflict: list[_Move] = []
        used: dict[tuple[int, int], Event] = {}
        for n, at in enumerate(state):
            if at == len(self.kinds[n]):
                continue
            event, kind, channel = (n, at), self.kinds[n][at], self.channels[n][at]
            if kind == OP:
                broken = next((e for e in self.needs.get(event, ()) if state[e[0]] <= e[1]), None)
                if broken or event not in self.sources:
                    # Nothing waits for this event and delaying it gains nothing, so other moves need no
                    # exploration.
                    return [(event, "dependence" if broken else None, broken)]
                found.append((event, None, None))
                continue
            tokens = self.tokens(state, channel)
            if kind == WAIT and not tokens:
                continue
            found.append((event, "overflow" if kind == SIGNAL and tokens >= self.depth else None, None))
            # Two warps use the same side of a channel at once.
            other = used.setdefault((kind, channel), event)
            if other != event and not conflict:
                conflict = [(event, "conflict", other)]
        return conflict or found


def _added(stream: Stream, channel: int) -> list[int]:
    """Tokens that the first events of a warp add to a channel."""
    change = 1 * (stream.kinds == SIGNAL) - (stream.kinds == WAIT)
    return [0, *np.cumsum(change * (stream.channels == channel)).tolist()]
