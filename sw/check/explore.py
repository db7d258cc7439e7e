"""Every schedule of a few short warps: whether any breaks a dependence, stops, or overflows a channel.

Nothing is concluded from an order of events here; the schedules are gone through one step at a time. So this
is what the checker's conclusions are compared with, and what decides where they do not apply: channels that
several warps signal or await.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sw.check.dependences import TooLargeError
from sw.check.streams import OP, SIGNAL, WAIT, Stream

#: States after which the search is given up.
STATES = 1_000_000
#: An event: warp and place in its stream.
Event = tuple[int, int]


@dataclass(frozen=True)
class Exploration:
    """What a search found.

    `kind` is None where nothing can go wrong, else "dependence", "deadlock", "overflow", or "conflict": two
    warps signal a channel in one cycle, or two take a token, which the machine does not allow. `path` are the
    events up to there in a shortest schedule, the bad one last (none of a deadlock). `broken` is the event
    that should have been over before it, or that happens with it. `most` is the most tokens that a channel
    held.
    """

    kind: str | None
    states: int
    path: tuple[Event, ...] = ()
    broken: Event | None = None
    most: Mapping[int, int] = field(default_factory=dict)


def explore(
    streams: Mapping[int, Stream],
    dependences: Iterable[tuple[Event, Event]],
    depth: int,
    *,
    pending: int | None = None,
    states: int = STATES,
) -> Exploration:
    """Go through all schedules; `dependences` are pairs of events (earlier, later) of different warps.

    Without `pending` an event is one step. With it the machine is followed more closely: an operation begins
    and completes in two steps, with others of its warp begun in between, and a signal happens when all before
    it in its warp is complete, of which at most `pending` may be outstanding.

    Raises `TooLargeError` after `states` states.
    """
    return _Search(streams, dependences, depth, pending, states).run()


#: For each warp how many events have begun and how many are complete.
_State = tuple[tuple[int, int], ...]
#: An event, the state after it, what is wrong with it, and the other event that is concerned.
_Move = tuple[Event, _State, str | None, Event | None]


class _Search:
    def __init__(
        self,
        streams: Mapping[int, Stream],
        dependences: Iterable[tuple[Event, Event]],
        depth: int,
        pending: int | None,
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
        self.depth, self.pending, self.states = depth, pending, states
        used = sorted({c for row in self.channels for c in row if c >= 0})
        #: Signals and waits on each channel among the first events of each warp.
        self.signals = {c: [self.prefix(n, c, SIGNAL) for n in range(len(self.warps))] for c in used}
        self.waits = {c: [self.prefix(n, c, WAIT) for n in range(len(self.warps))] for c in used}

    def prefix(self, warp: int, channel: int, kind: int) -> list[int]:
        """Counts of events of a kind."""
        counts = [0]
        for k, c in zip(self.kinds[warp], self.channels[warp], strict=True):
            counts.append(counts[-1] + (k == kind and c == channel))
        return counts

    def run(self) -> Exploration:
        """A search in breadth."""
        start: _State = ((0, 0),) * len(self.warps)
        parents: dict[_State, tuple[_State, Event] | None] = {start: None}
        most = dict.fromkeys(self.signals, 0)
        todo = deque([start])
        while todo:
            state = todo.popleft()
            moves = self.moves(state)
            if not moves and any(
                issued < len(self.kinds[n]) or done < issued for n, (issued, done) in enumerate(state)
            ):
                return Exploration("deadlock", len(parents), self.path(parents, state), None, most)
            for event, following, bad, broken in moves:
                if bad is not None:
                    path = (*self.path(parents, state), self.named(event))
                    return Exploration(bad, len(parents), path, broken and self.named(broken), most)
                if following not in parents:
                    if len(parents) >= self.states:
                        raise TooLargeError(f"more than {self.states:,} states of the warps")
                    parents[following] = (state, event)
                    todo.append(following)
                    if self.kinds[event[0]][event[1]] == SIGNAL:
                        c = self.channels[event[0]][event[1]]
                        most[c] = max(most[c], self.tokens(following, c))
        return Exploration(None, len(parents), (), None, most)

    def named(self, event: Event) -> Event:
        return self.warps[event[0]], event[1]

    def path(self, parents: Mapping[_State, tuple[_State, Event] | None], state: _State) -> tuple[Event, ...]:
        """The events up to a state; one that takes two steps counts when it begins."""
        found: list[Event] = []
        step = parents[state]
        while step is not None:
            state, event = step
            if state[event[0]][0] == event[1]:
                found.append(self.named(event))
            step = parents[state]
        return tuple(reversed(found))

    def tokens(self, state: _State, channel: int) -> int:
        """What a channel holds."""
        signals, waits = self.signals[channel], self.waits[channel]
        return sum(signals[n][done] - waits[n][issued] for n, (issued, done) in enumerate(state))

    def conflict(self, moves: list[_Move]) -> _Move | None:
        """Two warps that use the same side of a channel at once: one, with the event of the other."""
        used: dict[tuple[int, int], Event] = {}
        for event, following, _, _ in moves:
            n, at = event
            kind = self.kinds[n][at]
            # A signal that is only issued takes effect later.
            if kind == OP or (kind == SIGNAL and following[n][1] <= at):
                continue
            other = used.setdefault((kind, self.channels[n][at]), event)
            if other[0] != n:
                return event, following, "conflict", other
        return None

    def moves(self, state: _State) -> list[_Move]:
        """What can happen next."""
        found: list[_Move] = []
        for n, (issued, done) in enumerate(state):
            if self.pending is not None and done < issued:
                event = (n, done)
                full = self.kinds[n][done] == SIGNAL and self.full(state, self.channels[n][done])
                found.append(
                    (event, self.after(state, n, issued, done + 1), "overflow" if full else None, None)
                )
            if issued == len(self.kinds[n]):
                continue
            event, kind = (n, issued), self.kinds[n][issued]
            following = self.after(state, n, issued + 1, done if self.pending is not None else issued + 1)
            if kind == WAIT:
                if self.tokens(state, self.channels[n][issued]) > 0:
                    found.append((event, following, None, None))
            elif kind == SIGNAL:
                if self.pending is None:
                    full = self.full(state, self.channels[n][issued])
                    found.append((event, following, "overflow" if full else None, None))
                elif sum(k == SIGNAL for k in self.kinds[n][done:issued]) < self.pending:
                    found.append((event, following, None, None))
            else:
                assert kind == OP
                broken = next((e for e in self.needs.get(event, ()) if state[e[0]][1] <= e[1]), None)
                move = (event, following, "dependence" if broken else None, broken)
                if broken or (self.pending is None and event not in self.sources):
                    # Nothing waits for it, and nothing is gained by delaying it: no need to look at others.
                    return [move]
                found.append(move)
        wrong = self.conflict(found)
        return found if wrong is None else [wrong]

    def after(self, state: _State, warp: int, issued: int, done: int) -> _State:
        """The state in which one warp has moved; waits have no completion of their own."""
        while done < issued and self.kinds[warp][done] == WAIT:
            done += 1
        return (*state[:warp], (issued, done), *state[warp + 1 :])

    def full(self, state: _State, channel: int) -> bool:
        return self.tokens(state, channel) >= self.depth
