"""Choose where to signal and where to wait so that every dependence edge is enforced.

The choice is made on bounded runs (`sw.warps.sample`); the same sites work for any trip count.
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

#: Advance tokens with which the other side can continue while a buffer is in use.
_SPARE = 2


def world_of(bounded: BoundedRuns, depth: int) -> tuple[World, list[Demand]]:
    """The samples of bounded runs on one timeline, with the demands of their edges; channels hold `depth`.

    Runs that pass the same sites in the same order, and differ only in their regions, are merged.
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
    """For each demand, the sites that delay least, as a sync; demands with the same sites share one."""
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
    """Of several syncs for a demand, the one that delays least.

    Data is passed on as early as possible. Both sides are placed as deep in the loops as possible, so that a
    warp computes its operands before it waits, not after. A buffer is released as rarely as possible while
    another one is free to continue with, since two warps that work in the same buffer disturb each other.
    With `release_early`, if some buffers are skipped because their user has a predicate, each is released
    separately; otherwise a consumer of one waits for all.
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
    """Loop depth of the two sides of a sync if the loops have known bounds; otherwise 0.

    The checker can follow the predicates of such loops for all parameter values.
    """
    gaps = [s.gap for s in (*sync.signals, *sync.waits)]
    return sum(len(g.block) for g in gaps if _is_bounded(program.body, g.block))


def _is_bounded(body: Body, block: Path) -> bool:
    """Whether every statement around a block is a loop with a known trip count."""
    for position, _ in block:
        loop = body[position]
        if not isinstance(loop, For) or trip_count(loop) is None:
            return False
        body = loop.body
    return True


def _conditions(sync: Sync) -> int:
    """Number of operators in the predicates of a sync."""
    guards = [s.when for s in (*sync.signals, *sync.waits) if s.when is not None]
    return sum(isinstance(node, Apply) for guard in guards for node in guard.walk())
