"""Repairs a routed placement: moves operations near an overused resource and reroutes their nets.

It anneals placements and routes every proposal, so it sees the real resource use (as in B. Mei et al.,
"DRESC", 2002). Unlike that method, it starts from an annealed placement and targets the overused resources.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sw.cgra.compiled import ONE, ZERO, Array, below, compiled, inner, unit
from sw.cgra.place import Spots, partner, propose, put, spare
from sw.cgra.problem import Arrays, Problem
from sw.cgra.route import Routes, Scratch, last_step, negotiate, route_net, use_net

#: Costs of each use beyond one, and of each missing step or unreached user.
OVER, SHORT = 6.0, 8.0


@inner
def _bad(f: Arrays, r: Routes, spots: Spots, e: int) -> bool:
    """Whether an edge has no route, or one through an overused resource."""
    if not f.routed[e]:
        return spare(f, e, spots) < 0
    if r.length[e] == 0:
        return True
    start = last_step(f, spots.step, f.source[e])
    file = f.on.links + f.on.pes
    for k in range(1, r.length[e] + 1):
        x = r.path[e, k]
        if r.used[x, (start + k) % f.ii] > 1:
            return True
        if x >= file:
            port = f.on.registers + f.on.head[x]
            if r.used[port, (start + k - 1) % f.ii] > 1 or r.used[port + f.on.pes, (start + k) % f.ii] > 1:
                return True
    return False


@inner
def _gather(f: Arrays, n: int, mark: Array, stamp: int, list_: Array, count: int) -> int:
    """Adds the sources of the nets at a node to a list."""
    for i in range(f.at[n], f.at[n + 1]):
        u = f.source[f.edges[i]]
        if mark[u] != stamp:
            mark[u] = stamp
            list_[count] = u
            count += 1
    return count


@inner
def _lacks(f: Arrays, r: Routes, spots: Spots, e: int) -> int:
    """Steps by which an edge is too short, plus one if its user is not reached."""
    return max(0, -spare(f, e, spots)) + (1 if f.routed[e] and r.length[e] == 0 else 0)


@inner
def _broken(f: Arrays, r: Routes, spots: Spots, nets: Array, count: int, n: int, m: int) -> int:
    """The missing steps of all edges of some nets, and of the access orders at nodes n and m."""
    total = 0
    for j in range(count):
        for i in range(f.net_at[nets[j]], f.net_at[nets[j] + 1]):
            total += _lacks(f, r, spots, f.nets[i])
    for i in range(f.at[n], f.at[n + 1]):
        if not f.routed[f.edges[i]]:
            total += _lacks(f, r, spots, f.edges[i])
    if m >= 0:
        for i in range(f.at[m], f.at[m + 1]):
            e = f.edges[i]
            if not f.routed[e] and f.source[e] != n and f.target[e] != n:
                total += _lacks(f, r, spots, e)
    return total


@inner
def _copy_nets(
    f: Arrays, nets: Array, count: int, path: Array, length: Array, to: Array, to_length: Array
) -> None:
    """Copies the routes of some nets."""
    for j in range(count):
        for i in range(f.net_at[nets[j]], f.net_at[nets[j] + 1]):
            e = f.nets[i]
            to_length[e] = length[e]
            for k in range(1, length[e] + 1):
                to[e, k] = path[e, k]


class Before(NamedTuple):
    """Working arrays of the repair: nets that a proposal changes, and their previous routes."""

    mark: Array
    nets: Array
    path: Array
    length: Array


def before(problem: Problem, routes: Routes) -> Before:
    """Empty working arrays."""
    return Before(
        np.zeros(problem.size, dtype=np.int64),
        np.zeros(problem.size, dtype=np.int64),
        np.zeros_like(routes.path),
        np.zeros_like(routes.length),
    )


@compiled
def settle(
    f: Arrays, rng: Array, r: Routes, s: Scratch, b: Before, spots: Spots, rounds: int,
    moves: int, hot: float, cold: float,
) -> int:  # fmt: skip
    """Routes all nets in this many rounds, then moves operations until nothing is overused.

    Returns the number of moves, or -1 minus the least sum of excess uses and missing steps.
    """
    nodes, total = spots.step.shape[0], f.source.shape[0]
    negotiate(f, r, s, spots.step, spots.pe, rounds)
    # Marks are move numbers, which restart at 0 in every call.
    b.mark[:] = 0
    broken = ZERO
    for e in range(total):
        broken += _lacks(f, r, spots, e)
    best = broken + r.over[0]
    r.price[0] = OVER
    heat, factor = hot, math.exp(math.log(cold / hot) / max(1, moves))
    for move in range(moves):
        if best == 0:
            return move
        heat *= factor
        n = below(rng, nodes)
        if below(rng, 8) > 0:
            offset = below(rng, total)
            for i in range(total):
                e = (offset + i) % total
                if _bad(f, r, spots, e):
                    n = f.source[e] if below(rng, 2) == 0 else f.target[e]
                    break
        t, p = propose(f, n, rng, spots)
        t0, p0 = spots.step[n], spots.pe[n]
        m, s1, possible = partner(f, n, t, p, spots)
        if not possible:
            continue
        count = _gather(f, n, b.mark, move + 1, b.nets, ZERO)
        s0 = ZERO
        if m >= 0:
            s0 = spots.step[m]
            count = _gather(f, m, b.mark, move + 1, b.nets, count)
        was = _broken(f, r, spots, b.nets, count, n, m)
        paid = r.cost[0] + OVER * r.over[0]
        _copy_nets(f, b.nets, count, r.path, r.length, b.path, b.length)
        for j in range(count):
            use_net(f, r, s, b.nets[j], last_step(f, spots.step, b.nets[j]), -ONE)
        put(spots, n, t, p, m, s1, p0)
        for j in range(count):
            route_net(f, r, s, b.nets[j], spots.step, spots.pe)
        now = _broken(f, r, spots, b.nets, count, n, m)
        change = r.cost[0] + OVER * r.over[0] - paid + SHORT * (now - was)
        if change <= 0 or unit(rng) < math.exp(-change / heat):
            broken += now - was
            spots.taken[p0, t0 % f.ii] = m
            spots.taken[p, t % f.ii] = n
            best = min(best, broken + r.over[0])
            continue
        for j in range(count):
            use_net(f, r, s, b.nets[j], last_step(f, spots.step, b.nets[j]), -ONE)
        put(spots, n, t0, p0, m, s0, p)
        _copy_nets(f, b.nets, count, b.path, b.length, r.path, r.length)
        for j in range(count):
            use_net(f, r, s, b.nets[j], last_step(f, spots.step, b.nets[j]), ONE)
    return moves if best == 0 else -1 - best
