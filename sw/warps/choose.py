"""The places where tokens are given and taken, for everything that must be ordered.

What must be ordered is found on runs of the program, instance by instance. From that follow the places and
how many tokens are there in advance; the same places serve however long loops run.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from sw.ir.expression import Apply
from sw.ir.program import Program
from sw.ir.trace import Trace
from sw.ir.vector import Array
from sw.warps.candidates import meeting, signals, waits
from sw.warps.compose import fit
from sw.warps.knowledge import Change, Knowledge
from sw.warps.listing import Graph, Run
from sw.warps.sites import Gap, Order, Site, Spot, blocks, passings, spots
from sw.warps.tokens import Demand, Pair, Sync, Wanted, World, warp_of
from sw.warps.trailing import counters

#: Tokens in advance that let the other side go on while a place is in use.
_SPARE = 2


def world_of(graph: Graph, depth: int) -> tuple[World, list[Demand]]:
    """The runs of a graph on one line of time, and what its kept edges demand; channels hold `depth`.

    Runs that pass the same places in the same order, only with other regions, are one.
    """
    program = graph.program
    flows = _flows(program, graph.runs)
    first = [runs[0].trace for runs in flows]
    counts = [None if t.complete else t.count for t in first]
    world = World(program, [t.values for t in first], depth, counts, _by_warp(first))
    return world, _demands(spots(program), flows)


def _flows(program: Program, runs: Sequence[Run]) -> list[list[Run]]:
    starts = [Site(Gap(path, 0), Order.ADVANCE) for path in blocks(program)]
    found: dict[tuple[bytes, ...], list[Run]] = {}
    for run in runs:
        made = run.trace
        passing = passings(program, starts, made.values, None if made.complete else made.count)
        which = [rows.time.tobytes() for rows in made.rows]
        passes = [times.tobytes() for times in passing.passes.values()]
        found.setdefault((passing.times.tobytes(), *which, *passes), []).append(run)
    return list(found.values())


def _by_warp(traces: Sequence[Trace]) -> dict[int, Array]:
    """The numbers of the operations of every warp, counted through all runs."""
    found: defaultdict[int, list[Array]] = defaultdict(list)
    at = 0
    for made in traces:
        for rows in made.rows:
            found[warp_of(rows.instruction)].append(rows.time + at)
        at += made.count
    return {warp: np.sort(np.concatenate(parts)) for warp, parts in found.items()}


def _demands(places: Sequence[Spot], flows: Sequence[Sequence[Run]]) -> list[Demand]:
    """What must be ordered, by pairs of instructions."""
    found: defaultdict[tuple[int, int], list[Array]] = defaultdict(list)
    data: set[tuple[int, int]] = set()
    at = 0
    for runs in flows:
        made = runs[0].trace
        which = np.zeros(made.count, np.int64)
        for n, rows in enumerate(made.rows):
            which[rows.time] = n
        pairs = np.unique(np.concatenate([r.edges.pairs[r.kept] for r in runs]), axis=0)
        for run in runs:
            kinds = np.unique(which[run.edges.pairs[run.kept & run.is_data]], axis=0)
            data |= {(a, b) for a, b in kinds.tolist()}
        codes = which[pairs[:, 0]] * len(places) + which[pairs[:, 1]]
        order = np.argsort(codes, kind="stable")
        ends = np.flatnonzero(np.diff(codes[order])) + 1
        for part in np.split(order, ends) if order.size else []:
            found[divmod(int(codes[part[0]]), len(places))].append(pairs[part] + at)
        at += made.count
    return [
        Demand(places[a], places[b], np.concatenate(p), (a, b) in data) for (a, b), p in sorted(found.items())
    ]


def choose(world: World, demands: Sequence[Demand], early: bool = False) -> list[Sync]:
    """For each demand the places that hold up least, as a sync; demands with the same places share one."""
    options = []
    for demand in demands:
        around = meeting(demand.source, demand.sink)
        given, taken = signals(demand.source, around), waits(demand.sink, around)
        options.append([(s, w) for s, n in given for w, m in taken if n == m])
    world.add(site for found in options for both in found for site in both)
    best: dict[tuple[Pair, Site, Site], Sync] = {}
    for demand, found in zip(demands, options, strict=True):
        made = [s for pair in found if (s := _at(world, demand, *pair)) is not None]
        if not made:
            continue
        sync = _best(world, demand, made, early)
        key = sync.warps, sync.signals[0], sync.waits[0]
        if key in best:
            wanted = (*best[key].demands, demand)
            lead = world.lead(sync.signals, sync.waits, wanted)
            if lead is not None:
                best[key] = dataclasses.replace(sync, lead=lead, demands=wanted)
                continue
        best.setdefault(key, sync)
    return list(best.values())


def _best(world: World, demand: Demand, syncs: Sequence[Sync], early: bool) -> Sync:
    """The one of several syncs for a demand that is least in the way.

    Data is handed on as early as possible, and both sides stand as far in as that goes, so that a warp makes
    its operands before it waits, not behind. A place that is to be used again is given back as seldom as
    possible, as long as there is another one to go on with: both sides at work in the same place get in each
    other's way in its memory. With `early`, where some of the places are not used, because what uses them
    has a predicate, each is given back by itself: else what needs one place waits for all.
    """
    if demand.data:
        return min(
            syncs, key=lambda s: (world.held(s), -_depth(world.program, s), _conditions(s), world.events(s))
        )
    spare = [s for s in syncs if s.lead >= _SPARE]
    if not spare:
        return min(syncs, key=lambda s: (world.held(s), _conditions(s), world.events(s)))
    if early and demand.source.instruction.when is not None:
        return min(spare, key=lambda s: (_conditions(s), world.held(s), world.events(s)))
    return min(spare, key=lambda s: (_conditions(s), world.events(s), world.held(s)))


def _depth(program: Program, sync: Sync) -> int:
    """How far in the two sides of a sync stand, where loops have known bounds; else nothing is gained.

    The checker follows predicates of such loops whatever the values of parameters.
    """
    gaps = [s.gap for s in (*sync.signals, *sync.waits)]
    return sum(len(g.block) for g in gaps if counters(program, g) is not None)


def _conditions(sync: Sync) -> int:
    """How many operators the predicates of a sync take."""
    guards = [s.when for s in (*sync.signals, *sync.waits) if s.when is not None]
    return sum(isinstance(node, Apply) for guard in guards for node in guard.walk())


def _at(world: World, demand: Demand, signal: Site, wait: Site) -> Sync | None:
    """A sync for a demand at one place for each side."""
    return fit(world, demand.warps, (signal,), (wait,), (demand,))


def plain(world: World, demand: Demand) -> Sync:
    """The simplest sync for a demand: in the block around both."""
    around = meeting(demand.source, demand.sink)
    site, other = signals(demand.source, around)[0][0], waits(demand.sink, around)[0][0]
    made = _at(world, demand, site, other)
    assert made is not None
    return made


def reduced(world: World, syncs: Sequence[Sync], demands: Sequence[Wanted]) -> list[Sync]:
    """The syncs without those that others make needless, most tokens first."""
    known = Knowledge(world, syncs, demands, rooms=False)
    gone: set[int] = set()
    for number in sorted(range(len(syncs)), key=lambda n: world.events(syncs[n]), reverse=True):
        change = Change(dict.fromkeys(known.events[number].tolist(), -1))
        outcome = known.follow(change)
        if outcome.ok:
            known.commit(change, outcome)
            gone.add(number)
    return [s for n, s in enumerate(syncs) if n not in gone]
