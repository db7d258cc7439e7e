"""Places operations in time and space at once: annealing of steps and PEs, counted in proposals.

Every PE has at most one operation per context at all times; dependences that are too short cost most, then
hops, then the steps for which values wait.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from sw.cgra.compiled import NONE, ZERO, Array, below, compiled, generator, inner, unit
from sw.cgra.problem import Arrays, Problem


class Weights(NamedTuple):
    """What a step too short, a hop and a step of waiting cost."""

    short: float = 6.0
    hop: float = 0.3
    hold: float = 0.05


class Spots(NamedTuple):
    """Where the operations are: steps and PEs by node; the node (or -1) by PE and context."""

    step: Array
    pe: Array
    taken: Array

    def copy(self) -> Spots:
        """A copy."""
        return Spots(self.step.copy(), self.pe.copy(), self.taken.copy())


@inner
def _edge_cost(f: Arrays, e: int, spots: Spots, w: Weights) -> float:
    """The cost of one edge."""
    u, v = f.source[e], f.target[e]
    steps = spots.step[v] - spots.step[u] + f.wait[e]
    hops = f.distance[spots.pe[u], spots.pe[v]] if f.routed[e] else 0
    spare = steps - max(1, hops)
    if spare < 0:
        return float(-spare * w.short + hops * w.hop)
    return float(hops * w.hop + (spare * w.hold if f.routed[e] else 0.0))


@inner
def _node_cost(f: Arrays, n: int, other: int, spots: Spots, w: Weights) -> float:
    """The cost of the edges at a node, without those that join it to `other`."""
    total = 0.0
    for i in range(f.at[n], f.at[n + 1]):
        e = f.edges[i]
        if f.source[e] != other and f.target[e] != other:
            total += _edge_cost(f, e, spots, w)
    return total


@inner
def nearest(step: int, context: int, ii: int, low: int, high: int) -> int:
    """The step of a context that is nearest to another and within limits, or -1."""
    down = step - (step - context) % ii
    up = down + ii if down < step else down
    if step - down > up - step:
        down, up = up, down
    if low <= down <= high:
        return down
    if low <= up <= high:
        return up
    return -1


@inner
def propose(f: Arrays, n: int, rng: Array, spots: Spots) -> tuple[int, int]:
    """Another step and PE for a node: beside one that it exchanges a value with, beside its own, or any."""
    at, t = spots.pe[n], spots.step[n] + below(rng, 5) - 2
    e = NONE
    if f.at[n + 1] > f.at[n] and below(rng, 3) > 0:
        e = f.edges[f.at[n] + below(rng, f.at[n + 1] - f.at[n])]
        at = spots.pe[f.source[e] + f.target[e] - n]
    p = at
    anywhere = e < 0 and below(rng, 4) == 0
    for _ in range(4):
        if anywhere:
            p = below(rng, f.pes)
        else:
            p = f.near[f.near_at[at] + below(rng, f.near_at[at + 1] - f.near_at[at])]
            if e < 0 and below(rng, 2) == 0:
                p = f.near[f.near_at[p] + below(rng, f.near_at[p + 1] - f.near_at[p])]
        if f.allowed[n, p]:
            break
    if not f.allowed[n, p]:
        p = spots.pe[n]
    if e >= 0 and below(rng, 2) == 0 and f.distance[at, p] < f.pes:
        # As soon, or as late, as the value allows.
        hops = max(1, f.distance[at, p]) if f.routed[e] else 1
        other = spots.step[f.source[e] + f.target[e] - n]
        t = other + (hops - f.wait[e] if f.target[e] == n else f.wait[e] - hops)
    return min(max(t, f.low[n]), f.high[n]), p


@inner
def partner(f: Arrays, n: int, t: int, p: int, spots: Spots) -> tuple[int, int, bool]:
    """The node (or -1) that must make way for node n, its step in n's place, whether that is possible."""
    m = spots.taken[p, t % f.ii]
    if m < 0 or m == n:
        return NONE, ZERO, True
    if not f.allowed[m, spots.pe[n]]:
        return m, ZERO, False
    step = nearest(spots.step[m], spots.step[n] % f.ii, f.ii, f.low[m], f.high[m])
    return m, step, step >= 0


@compiled
def anneal(f: Arrays, rng: Array, spots: Spots, w: Weights, proposals: int, hot: float, cold: float) -> float:
    """Anneal in place from temperature `hot` to `cold`; gives the cost at the end."""
    nodes = spots.step.shape[0]
    heat, factor = hot, math.exp(math.log(cold / hot) / max(1, proposals))
    for _ in range(proposals):
        heat *= factor
        n = below(rng, nodes)
        t, p = propose(f, n, rng, spots)
        t0, p0 = spots.step[n], spots.pe[n]
        m, s, possible = partner(f, n, t, p, spots)
        if not possible or (t == t0 and p == p0):
            continue
        before = _node_cost(f, n, NONE, spots, w)
        s0 = ZERO
        if m >= 0:
            before += _node_cost(f, m, n, spots, w)
            s0 = spots.step[m]
            spots.step[m], spots.pe[m] = s, p0
        spots.step[n], spots.pe[n] = t, p
        after = _node_cost(f, n, NONE, spots, w)
        if m >= 0:
            after += _node_cost(f, m, n, spots, w)
        if after <= before or unit(rng) < math.exp((before - after) / heat):
            spots.taken[p0, t0 % f.ii] = m
            spots.taken[p, t % f.ii] = n
        else:
            spots.step[n], spots.pe[n] = t0, p0
            if m >= 0:
                spots.step[m], spots.pe[m] = s0, p
    total = 0.0
    for e in range(f.source.shape[0]):
        total += _edge_cost(f, e, spots, w)
    return total


@compiled
def _construct(
    f: Arrays, rng: Array, order: Array, far: Array, spots: Spots, w: Weights, placed: Array
) -> None:
    """Put the nodes, in this order, where the edges to those that have a place cost least.

    `far[n, p]` is what PE p costs for node n beside that. Nodes without a free place stay without.
    """
    for n in order:
        best = np.inf
        step, pe = ZERO, NONE
        shift = below(rng, f.pes)
        for i in range(f.pes):
            p = (i + shift) % f.pes
            if not f.allowed[n, p]:
                continue
            spots.pe[n] = p
            for t in range(f.low[n], f.high[n] + 1):
                if spots.taken[p, t % f.ii] >= 0:
                    continue
                cost = far[n, p] + 0.01 * (t - f.low[n])
                spots.step[n] = t
                for j in range(f.at[n], f.at[n + 1]):
                    e = f.edges[j]
                    if placed[f.source[e] + f.target[e] - n] or f.source[e] == f.target[e]:
                        cost += _edge_cost(f, e, spots, w)
                    if cost >= best:
                        break
                if cost < best:
                    best, step, pe = cost, t, p
        if pe >= 0:
            spots.step[n], spots.pe[n] = step, pe
            spots.taken[pe, step % f.ii] = n
            placed[n] = True


def start(problem: Problem, seed: tuple[int, ...], far: Array | None = None) -> Spots | None:
    """Operations one after the other where those that have a place draw them to.

    `far` says by operation and PE how unwelcome a PE is. None where the PEs of all contexts cannot hold the
    operations.
    """
    ii, size, pes = problem.ii, problem.size, problem.fabric.size
    rng = np.random.default_rng(seed)
    spots = Spots(
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        np.full((pes, ii), -1, dtype=np.int64),
    )
    far = np.zeros((size, pes)) if far is None else far.astype(np.float64)
    placed = np.zeros(size, dtype=np.bool_)
    _construct(problem.arrays, generator((*seed, 2)), _order(problem, rng), far, spots, Weights(), placed)
    for n in np.flatnonzero(~placed):
        if not _settle(problem, spots, int(n), rng.permutation(np.flatnonzero(problem.allowed[n])), set()):
            return None
    return spots


def _order(problem: Problem, rng: np.random.Generator) -> Array:
    """Nodes such that each follows others that it exchanges values with, those with most of these first."""
    f, size = problem.arrays, problem.size
    choices = problem.allowed.sum(axis=1)
    rank = np.lexsort((rng.random(size), problem.low, choices))
    number = np.empty(size, dtype=np.int64)
    number[rank] = np.arange(size)
    joined = np.zeros(size, dtype=np.int64)
    heap = [(0, int(number[n]), n) for n in range(size)]
    heapq.heapify(heap)
    done = np.zeros(size, dtype=np.bool_)
    order: list[int] = []
    while heap:
        count, _, n = heapq.heappop(heap)
        if done[n] or -count != joined[n]:
            continue
        done[n] = True
        order.append(n)
        for e in f.edges[f.at[n] : f.at[n + 1]]:
            other = int(f.source[e] + f.target[e]) - n
            if not done[other]:
                joined[other] += 1
                heapq.heappush(heap, (-int(joined[other]), int(number[other]), other))
    return np.array(order, dtype=np.int64)


def _steps(problem: Problem, n: int) -> range:
    """One step of every context, the earliest first."""
    low = int(problem.low[n])
    return range(low, min(low + problem.ii - 1, int(problem.high[n])) + 1)


def _free(problem: Problem, spots: Spots, n: int, order: Array) -> bool:
    """Put a node at the first free place."""
    for step in _steps(problem, n):
        empty = order[spots.taken[order, step % problem.ii] < 0]
        if len(empty):
            spots.step[n], spots.pe[n] = step, empty[0]
            spots.taken[empty[0], step % problem.ii] = n
            return True
    return False


def _settle(problem: Problem, spots: Spots, n: int, order: Array, seen: set[int]) -> bool:
    """Find a place for a node; others move away where nothing is free."""
    if _free(problem, spots, n, order):
        return True
    for step in _steps(problem, n):
        for p in order:
            slot = int(p) * problem.ii + step % problem.ii
            if slot in seen:
                continue
            seen.add(slot)
            other = int(spots.taken[p, step % problem.ii])
            if _settle(problem, spots, other, np.flatnonzero(problem.allowed[other]), seen):
                spots.step[n], spots.pe[n] = step, p
                spots.taken[p, step % problem.ii] = n
                return True
    return False


def short(problem: Problem, spots: Spots) -> int:
    """How many steps all dependences together are too short."""
    hops = problem.resources.distance[spots.pe[problem.source], spots.pe[problem.target]]
    needs = np.where(problem.routed, np.maximum(1, hops), 1)
    spare = spots.step[problem.target] - spots.step[problem.source] + problem.wait - needs
    return int(-spare[spare < 0].sum())
