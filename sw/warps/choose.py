"""Choose where to signal and where to wait so that every dependence edge is enforced.

The choice is made on bounded runs (`sw.warps.sample`); the same places serve however long loops run.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from sw.codegen.loops import trip_count
from sw.ir.expression import Apply
from sw.ir.program import For, Program
from sw.ir.vector import Array
from sw.ir.walk import Body
from sw.warps.candidates import sites
from sw.warps.compose import fit
from sw.warps.listing import BoundedRuns, SampleEdges
from sw.warps.sites import Path, SyncSite, spots
from sw.warps.tokens import Demand, Pair, Sync, World

#: Tokens in advance that let the other side go on while a place is in use.
_SPARE = 2


def world_of(bounded: BoundedRuns, depth: int) -> tuple[World, list[Demand]]:
    """The samples of bounded runs on one line of time, and what its kept edges demand; channels hold `depth`.

    Runs that pass the same places in the same order, only with other regions, are one.
    """
    flows: dict[bytes, list[SampleEdges]] = {}
    for run in bounded.runs:
        flows.setdefault(run.sample.flow(), []).append(run)
    world = World(bounded.program, [runs[0].sample for runs in flows.values()], depth)
    places = {s.instruction.label: n for n, s in enumerate(spots(bounded.program))}
    found: defaultdict[tuple[int, int], list[Array]] = defaultdict(list)
    data: set[tuple[int, int]] = set()
    for number, runs in enumerate(flows.values()):
        here: defaultdict[tuple[int, int], list[Array]] = defaultdict(list)
        for o in (o for run in runs for o in run.ordered if o.kept.any()):
            pair = places[o.edge.source], places[o.edge.sink]
            here[pair].append(o.pairs[o.kept])
            if o.edge.data:
                data.add(pair)
        for pair, parts in here.items():
            found[pair].append(world.placed(number, np.unique(np.concatenate(parts), axis=0)))
    every = list(bounded.runs[0].sample.spots.values())
    demands = [
        Demand(every[a], every[b], np.concatenate(parts), (a, b) in data)
        for (a, b), parts in sorted(found.items())
    ]
    return world, demands


def choose(world: World, demands: Sequence[Demand], release_early: bool = False) -> list[Sync]:
    """For each demand the places that hold up least, as a sync; demands with the same places share one."""
    options = []
    for demand in demands:
        given, taken = sites(demand.source, demand.sink)
        options.append([((s,), (w,)) for s, n in given for w, m in taken if n == m])
    world.add(site for found in options for both in found for (site,) in both)
    best: dict[tuple[Pair, SyncSite, SyncSite], Sync] = {}
    for demand, found in zip(demands, options, strict=True):
        made = [s for pair in found if (s := fit(world, demand.warps, *pair, (demand,))) is not None]
        assert made, "the block around both always serves"
        sync = _best(world, demand, made, release_early)
        key = sync.warps, sync.signals[0], sync.waits[0]
        if key in best:
            wanted = (*best[key].demands, demand)
            lead = world.lead(sync.signals, sync.waits, wanted)
            if lead is not None:
                best[key] = dataclasses.replace(sync, lead=lead, demands=wanted)
                continue
        best.setdefault(key, sync)
    return list(best.values())


def _best(world: World, demand: Demand, syncs: Sequence[Sync], release_early: bool) -> Sync:
    """The one of several syncs for a demand that is least in the way.

    Data is handed on as early as possible, and both sides stand as far in as that goes, so that a warp makes
    its operands before it waits, not behind. A place that is to be used again is given back as seldom as
    possible, as long as there is another one to go on with: both sides at work in the same place get in each
    other's way in its memory. With `release_early`, where some of the places are not used, because what uses
    them has a predicate, each is given back by itself: else what needs one place waits for all.
    """
    if demand.data:
        return min(
            syncs, key=lambda s: (world.held(s), -_depth(world.program, s), _conditions(s), world.events(s))
        )
    spare = [s for s in syncs if s.lead >= _SPARE]
    if not spare:
        return min(syncs, key=lambda s: (world.held(s), _conditions(s), world.events(s)))
    if release_early and demand.source.instruction.when is not None:
        return min(spare, key=lambda s: (_conditions(s), world.held(s), world.events(s)))
    return min(spare, key=lambda s: (_conditions(s), world.events(s), world.held(s)))


def _depth(program: Program, sync: Sync) -> int:
    """How far in the two sides of a sync stand, where loops have known bounds; else nothing is gained.

    The checker follows predicates of such loops whatever the values of parameters.
    """
    gaps = [s.gap for s in (*sync.signals, *sync.waits)]
    return sum(len(g.block) for g in gaps if _is_bounded(program.body, g.block))


def _is_bounded(body: Body, block: Path) -> bool:
    """Whether all that is around a block are loops that run a known number of times."""
    for position, _ in block:
        loop = body[position]
        if not isinstance(loop, For) or trip_count(loop) is None:
            return False
        body = loop.body
    return True


def _conditions(sync: Sync) -> int:
    """How many operators the predicates of a sync take."""
    guards = [s.when for s in (*sync.signals, *sync.waits) if s.when is not None]
    return sum(isinstance(node, Apply) for guard in guards for node in guard.walk())
