"""Placement by simulated annealing with estimated congestion: every value takes a fixed shortest route.

A route starts as early as possible, so its link uses are known without a search. If no link carries two
values, the router finds the same routes; otherwise, it has little left to negotiate.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hw.fabric import Fabric
from sw.cgra.compiled import NONE, ONE, ZERO, Array, below, compiled, inner, unit
from sw.cgra.place import Spots, hops, node_cost, partner, propose, put
from sw.cgra.problem import Arrays, Problem
from sw.cgra.resources import FAR, resources

#: Cost of each use of a link beyond one.
OVER = 1.0


class Congestion(NamedTuple):
    """Link usage of routes: `first[w, p, q]` is the first link from PE p to q for a value (wide if w = 1),
    `own[n, l]` how many routes of node n's value use link l, `used[l, c]` how many values use link l in
    context c.
    """

    first: Array
    own: Array
    used: Array


@lru_cache(maxsize=8)
def _first(fabric: Fabric) -> Array:
    """The first links of shortest routes, for each distance of `Resources`."""
    return np.stack([_first_of(fabric, hops) for hops in resources(fabric).distance])


def _first_of(fabric: Fabric, hops: Array) -> Array:
    """The first link of a shortest route from every PE to every other; -1 if there is none."""
    found = np.full(hops.shape, -1, dtype=np.int64)
    goals = np.arange(fabric.size)
    for pe, links in enumerate(fabric.outgoing):
        ways = [
            np.flatnonzero((hops[fabric.links[i].target] == hops[pe] - 1) & (hops[pe] < FAR)) for i in links
        ]
        count = np.zeros(fabric.size, dtype=np.int64)
        for link, way in zip(links, ways, strict=True):
            # Alternate between equally short routes, so that values from different PEs spread out.
            new = (count[way] == 0) | ((goals[way] + pe) % 2 == count[way] % 2)
            found[pe, way[new]] = link
            count[way] += 1
    return found


def congestion(problem: Problem) -> Congestion:
    """A congestion table without routes."""
    links = len(problem.fabric.links)
    return Congestion(
        _first(problem.fabric),
        np.zeros((problem.size, links), dtype=np.int32),
        np.zeros((links, problem.arrays.ii), dtype=np.int32),
    )


@inner
def _way(f: Arrays, c: Congestion, e: int, spots: Spots, sign: int) -> int:
    """Adds the route of edge e (sign 1) or removes it (-1); returns the change of excess uses."""
    if not f.routed[e]:
        return 0
    u = f.source[e]
    p, q, step = spots.pe[u], spots.pe[f.target[e]], spots.step[u] + f.latency[u] - 1
    change = 0
    while p != q:
        link = c.first[f.wide[u], p, q]
        if link < 0:
            break
        step += 1
        own = c.own[u, link]
        c.own[u, link] = own + sign
        if own == (0 if sign > 0 else 1):
            context = step % f.ii
            used = c.used[link, context]
            c.used[link, context] = used + sign
            change += sign if used >= (1 if sign > 0 else 2) else 0
        p = f.on.head[link]
    return change


@inner
def _ways(f: Arrays, c: Congestion, n: int, other: int, spots: Spots, sign: int) -> int:
    """The same for all edges at a node (-1: none), except those that connect it to `other`."""
    change = 0
    if n < 0:
        return change
    for i in range(f.at[n], f.at[n + 1]):
        e = f.edges[i]
        if f.source[e] != other and f.target[e] != other:
            change += _way(f, c, e, spots, sign)
    return change


@inner
def _most(f: Arrays, n: int, spots: Spots) -> int:
    """The most links that the routes at a node (-1: none) use."""
    total = 0
    if n < 0:
        return total
    for i in range(f.at[n], f.at[n + 1]):
        e = f.edges[i]
        if f.routed[e]:
            total += min(hops(f, e, spots.pe[f.source[e]], spots.pe[f.target[e]]), f.on.pes)
    return total


@compiled
def spread(
    f: Arrays, rng: Array, spots: Spots, c: Congestion, proposals: int, hot: float, cold: float
) -> None:
    """Anneals in place from temperature `hot` to `cold`."""
    nodes = spots.step.shape[0]
    c.own[:] = 0
    c.used[:] = 0
    for e in range(f.source.shape[0]):
        _way(f, c, e, spots, ONE)
    heat, factor = hot, math.exp(math.log(cold / hot) / max(1, proposals))
    for _ in range(proposals):
        heat *= factor
        n = below(rng, nodes)
        t, p = propose(f, n, rng, spots)
        t0, p0 = spots.step[n], spots.pe[n]
        m, s, possible = partner(f, n, t, p, spots)
        if not possible or (t == t0 and p == p0):
            continue
        s0 = spots.step[m] if m >= 0 else ZERO
        limit = -heat * math.log(1.0 - unit(rng))
        most = _most(f, n, spots) + _most(f, m, spots)
        change = -node_cost(f, n, NONE, spots) - node_cost(f, m, n, spots)
        put(spots, n, t, p, m, s, p0)
        change += node_cost(f, n, NONE, spots)
        change += node_cost(f, m, n, spots)
        if change - OVER * most > limit:
            put(spots, n, t0, p0, m, s0, p)
            continue
        # Undo at the old positions, so that the routes removed are those that were added.
        put(spots, n, t0, p0, m, s0, p)
        uses = _ways(f, c, n, NONE, spots, -ONE) + _ways(f, c, m, n, spots, -ONE)
        put(spots, n, t, p, m, s, p0)
        uses += _ways(f, c, n, NONE, spots, ONE) + _ways(f, c, m, n, spots, ONE)
        if change + OVER * uses <= limit:
            spots.taken[p0, t0 % f.ii] = m
            spots.taken[p, t % f.ii] = n
            continue
        _ways(f, c, n, NONE, spots, -ONE)
        _ways(f, c, m, n, spots, -ONE)
        put(spots, n, t0, p0, m, s0, p)
        _ways(f, c, n, NONE, spots, ONE)
        _ways(f, c, m, n, spots, ONE)
