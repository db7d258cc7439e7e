"""Runs of warps that wait for each other, and throttles: edges that keep a channel from overflowing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hw.errors import InputError
from sw.ir.expression import evaluate
from sw.ir.program import Assign, If, Program, Statement
from sw.warps.reduce import Reduction
from sw.warps.sites import Gap, Path, common
from sw.warps.straight import Sync, in_order, wait_order
from sw.warps.unique import Pair


class DepthError(InputError):
    """Tokens that no edge can hold back, and the edge that was tried."""

    def __init__(self, edge: tuple[str, str], depth: int):
        self.edge, self.depth = edge, depth
        super().__init__(
            f"channel_depth must be more than {depth}: an edge {edge[0]}->{edge[1]} cannot hold back the "
            "tokens of the branches around without blocking the warps"
        )


@dataclass
class TokenRun:
    """One run of the warps: where in its warp every sync's signal and wait come, and what is known there.

    `known` is, by sync, how many operations of each warp happen before its signal for certain, and likewise
    `after` behind its wait.
    """

    order: list[int]
    signal: dict[int, int] = field(default_factory=dict)
    wait: dict[int, int] = field(default_factory=dict)
    known: dict[int, dict[int, int]] = field(default_factory=dict)
    after: dict[int, dict[int, int]] = field(default_factory=dict)
    #: Waits for what is known already.
    idle: set[int] = field(default_factory=set)
    #: Whether the n-th wait of every ordered pair of warps is that of the n-th signal.
    ordered: bool = True
    warps: dict[int, Pair] = field(default_factory=dict)

    def happens(self, edge: int) -> bool:
        """Whether the token of that sync is given."""
        return edge in self.signal

    def over(self, earlier: int, later: int) -> bool:
        """Whether the one's token is known to be taken before that of the other is given."""
        return self.known[later].get(self.warps[earlier][1], 0) > self.wait[earlier]

    def awaits(self, earlier: int, later: int) -> bool:
        """Whether the one's token is taken only after that of the other was given."""
        return self.after[earlier].get(self.warps[later][0], 0) > self.signal[later]


def follow(program: Program, syncs: Sequence[Sync], values: Mapping[str, int]) -> TokenRun | None:
    """A run of the warps with the syncs; None where they block each other."""
    streams: defaultdict[int, list[tuple[bool, int]]] = defaultdict(list)
    given: defaultdict[Pair, list[int]] = defaultdict(list)
    taken: defaultdict[Pair, list[int]] = defaultdict(list)
    run = TokenRun([], warps={n: s.warps for n, s in enumerate(syncs)})
    for is_wait, n in _passed(program, syncs, values):
        warp = syncs[n].warps[is_wait]
        (run.wait if is_wait else run.signal)[n] = len(streams[warp])
        streams[warp].append((is_wait, n))
        if is_wait:
            taken[syncs[n].warps].append(n)
        else:
            given[syncs[n].warps].append(n)
            run.order.append(n)
    run.ordered = given == taken
    now: dict[int, dict[int, int]] = {warp: {} for warp in streams}
    done = dict.fromkeys(streams, 0)
    ready = list(streams)
    blocked: dict[int, int] = {}
    while ready:
        warp = ready.pop()
        stream, clock = streams[warp], now[warp]
        while done[warp] < len(stream):
            is_wait, n = stream[done[warp]]
            source = syncs[n].warps[0]
            if is_wait and n not in run.known:
                blocked[n] = warp
                break
            done[warp] += 1
            clock[warp] = done[warp]
            if not is_wait:
                run.known[n] = dict(clock)
                if n in blocked:
                    ready.append(blocked.pop(n))
                continue
            if clock.get(source, 0) > run.signal[n]:
                run.idle.add(n)
            for other, count in run.known[n].items():
                clock[other] = max(clock.get(other, 0), count)
            run.after[n] = dict(clock)
    return None if blocked else run


def _passed(program: Program, syncs: Sequence[Sync], values: Mapping[str, int]) -> list[tuple[bool, int]]:
    """Signals (False) and waits (True) that control passes, in the order of the text."""
    places: defaultdict[tuple[Gap, bool, bool], list[int]] = defaultdict(list)
    for n, s in sorted(enumerate(syncs), key=lambda item: wait_order(item[1])):
        places[Gap(s.block, s.sink), s.late, True].append(n)
    for n, s in sorted(enumerate(syncs), key=lambda item: item[1].order):
        places[Gap(s.block, s.source), not s.early, False].append(n)
    known = dict(values)
    found: list[tuple[bool, int]] = []

    def pass_by(gap: Gap, behind: bool) -> None:
        for is_wait in (True, False):
            found.extend((is_wait, n) for n in places.get((gap, behind, is_wait), ()))

    def visit(body: tuple[Statement, ...], path: Path) -> None:
        for position, s in enumerate(body):
            gap = Gap(path, position)
            pass_by(gap, False)
            if isinstance(s, If):
                side = 0 if evaluate(s.condition, known) else 1
                visit(s.orelse if side else s.body, (*path, (position, side)))
            elif isinstance(s, Assign):
                known[s.target] = evaluate(s.value, known)
            pass_by(gap, True)

    visit(program.body, ())
    return found


def throttled(
    program: Program,
    syncs: Sequence[Sync],
    values: Sequence[Mapping[str, int]],
    depth: int,
    reduction: Reduction,
) -> list[Sync]:
    """The syncs in order and with throttles: at most `depth` tokens of an ordered pair are under way.

    Where signal n is not known to come after wait n - depth, an edge makes it so. What throttles imply goes.
    Raises `DepthError` where warps would block each other.
    """
    made = in_order(syncs, reduction)
    runs = _checked(program, made, values, depth)
    # Two edges into one instance may imply each other's waits in part; such stay as the reduction left them.
    spared = {made[n] for n in _idle(made, runs)}
    while True:
        needed: dict[tuple[int, int], None] = {}
        for run in runs:
            by_pair: defaultdict[Pair, list[int]] = defaultdict(list)
            for n in run.order:
                earlier = by_pair[made[n].warps]
                if len(earlier) >= depth and not run.over(earlier[-depth], n):
                    needed[earlier[-depth], n] = None
                earlier.append(n)
        if not needed:
            return made
        superfluous = {n for pair in needed for n in _superfluous(made, *pair, runs)}
        if superfluous:
            made = [s for n, s in enumerate(made) if n not in superfluous]
            runs = _checked(program, made, values, depth)
            continue
        added = [_throttle(made[early], made[late]) for early, late in needed]
        together = in_order(sorted({*made, *added}, key=lambda s: s.order), reduction)
        found = _runs(program, together, values)
        if found is None:
            # Together they block each other; the first alone shows which tokens are superfluous.
            together = in_order(sorted({*made, added[0]}, key=lambda s: s.order), reduction)
            found = _checked(program, together, values, depth)
        idle = {n for n in _idle(together, found) if together[n] not in spared}
        before, made = made, [s for n, s in enumerate(together) if n not in idle]
        if made == before:
            raise DepthError(added[0].edges[0], depth)
        runs = _checked(program, made, values, depth)


def _superfluous(syncs: Sequence[Sync], early: int, late: int, runs: Sequence[TokenRun]) -> set[int]:
    """Which of two tokens that are under way together another implies."""
    first, last = syncs[early], syncs[late]
    if (first.block, first.sink) == (last.block, last.sink):
        # The later one is awaited in the same place, and says more.
        return {early}
    # The earlier one is taken behind where the later one is given: its wait knows of both.
    here = [r for r in runs if r.happens(late)]
    return {late} if all(r.happens(early) and r.awaits(early, late) for r in here) else set()


def runs_of(program: Program, syncs: Sequence[Sync], values: Sequence[Mapping[str, int]]) -> list[TokenRun]:
    """All runs with syncs that go on in the text, which never block."""
    runs = _runs(program, syncs, values)
    assert runs is not None
    return runs


def _runs(
    program: Program, syncs: Sequence[Sync], values: Sequence[Mapping[str, int]]
) -> list[TokenRun] | None:
    """All runs; None where warps block each other in one of them."""
    runs = [follow(program, syncs, v) for v in values]
    return None if None in runs else [r for r in runs if r is not None]


def _checked(
    program: Program, syncs: Sequence[Sync], values: Sequence[Mapping[str, int]], depth: int
) -> list[TokenRun]:
    """All runs; raises `DepthError` where warps block each other, or tokens of one channel would cross."""
    runs = _runs(program, syncs, values)
    if runs is None or not all(r.ordered for r in runs):
        last = next((s for s in reversed(syncs) if s.throttle), None)
        assert last is not None, "edges that go on in the text block nobody"
        raise DepthError(last.edges[0], depth)
    return runs


def _idle(syncs: Sequence[Sync], runs: Sequence[TokenRun]) -> set[int]:
    """The syncs whose waits never tell anything new."""
    return {n for n in range(len(syncs)) if all(n in r.idle for r in runs if r.happens(n))}


def _throttle(early: Sync, late: Sync) -> Sync:
    """What makes the signal of the one come after the wait of the other."""
    around = common(early.block, late.block)
    source, sink = (
        block[around][0] if len(block) > around else position
        for block, position in ((early.block, early.sink), (late.block, late.source))
    )
    edge = early.edges[0][1], late.edges[0][0]
    # Both in one statement, a branch: the one in front of it or the other behind it, or both.
    outside = len(early.block) == around
    places = {"early": source == sink and outside, "late": source == sink and not outside}
    warps = early.warps[1], late.warps[0]
    return Sync(early.block[:around], source, sink, warps, False, (edge,), True, **places)
