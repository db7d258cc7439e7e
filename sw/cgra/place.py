"""Placement of operations in time and space: cost, moves, and initial placements.

Every PE always has at most one operation per context. Dependences that are too short cost most, then hops,
then the steps in which values wait.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sw.cgra.compiled import NONE, ZERO, Array, below, compiled, generator, inner
from sw.cgra.problem import Arrays, Problem

#: Costs of a missing step, of a hop, and of a step of waiting.
SHORT, HOP, HOLD = 6.0, 0.3, 0.05


class Spots(NamedTuple):
    """The placement: step and PE by node, and the node (or -1) by PE and context."""

    step: Array
    pe: Array
    taken: Array


@inner
def hops(f: Arrays, e: int, p: int, q: int) -> int:
    """Hops of an edge's value from one PE to another."""
    return int(f.on.distance[f.wide[f.source[e]], p, q])


@compiled
def spare(f: Arrays, e: int, spots: Spots) -> int:
    """Slack of an edge in steps; negative if it is too short."""
    u, v = f.source[e], f.target[e]
    needed = max(1, hops(f, e, spots.pe[u], spots.pe[v])) if f.routed[e] else 1
    return int(spots.step[v] - spots.step[u] + f.wait[e] - needed)


@inner
def edge_cost(f: Arrays, e: int, spots: Spots) -> float:
    """The cost of one edge."""
    left = spare(f, e, spots)
    cost = -left * SHORT if left < 0 else 0.0
    if f.routed[e]:
        cost += hops(f, e, spots.pe[f.source[e]], spots.pe[f.target[e]]) * HOP + max(left, 0) * HOLD
    return float(cost)


@inner
def node_cost(f: Arrays, n: int, other: int, spots: Spots) -> float:
    """The cost of the edges at a node (-1: none), except those that connect it to `other`."""
    total = 0.0
    if n < 0:
        return total
    for i in range(f.at[n], f.at[n + 1]):
        e = f.edges[i]
        if f.source[e] != other and f.target[e] != other:
            total += edge_cost(f, e, spots)
    return total


@inner
def nearest(step: int, context: int, ii: int, low: int, high: int) -> int:
    """The step of a context that is nearest to another step and within limits, or -1."""
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
    """Another step and PE for a node: near one that it exchanges values with, near its own, or any."""
    at, t = spots.pe[n], spots.step[n] + below(rng, 5) - 2
    e = NONE
    if f.at[n + 1] > f.at[n] and below(rng, 3) > 0:
        e = f.edges[f.at[n] + below(rng, f.at[n + 1] - f.at[n])]
        at = spots.pe[f.source[e] + f.target[e] - n]
    p = at
    anywhere = e < 0 and below(rng, 4) == 0
    for _ in range(4):
        if anywhere:
            p = below(rng, f.on.pes)
        else:
            p = f.on.near[f.on.near_at[at] + below(rng, f.on.near_at[at + 1] - f.on.near_at[at])]
            if e < 0 and below(rng, 2) == 0:
                p = f.on.near[f.on.near_at[p] + below(rng, f.on.near_at[p + 1] - f.on.near_at[p])]
        if f.allowed[n, p]:
            break
    if not f.allowed[n, p]:
        p = spots.pe[n]
    if e >= 0 and below(rng, 2) == 0 and hops(f, e, at, p) < f.on.pes:
        # As early, or as late, as the value allows.
        needed = max(1, hops(f, e, at, p)) if f.routed[e] else 1
        other = spots.step[f.source[e] + f.target[e] - n]
        t = other + (needed - f.wait[e] if f.target[e] == n else f.wait[e] - needed)
    return min(max(t, f.low[n]), f.high[n]), p


@inner
def partner(f: Arrays, n: int, t: int, p: int, spots: Spots) -> tuple[int, int, bool]:
    """The node (or -1) that must make way for node n, its step in n's place, and whether that is possible."""
    m = spots.taken[p, t % f.ii]
    if m < 0 or m == n:
        return NONE, ZERO, True
    if not f.allowed[m, spots.pe[n]]:
        return m, ZERO, False
    step = nearest(spots.step[m], spots.step[n] % f.ii, f.ii, f.low[m], f.high[m])
    return m, step, step >= 0


@inner
def put(spots: Spots, n: int, t: int, p: int, m: int, s: int, q: int) -> None:
    """Moves node n to step t and PE p, and node m, if it is not -1, to step s and PE q."""
    spots.step[n], spots.pe[n] = t, p
    if m >= 0:
        spots.step[m], spots.pe[m] = s, q


class Scarce(NamedTuple):
    """Sets of PEs that some nodes cannot do without: `inside[k, p]`, PE p is in set k; `bound[k, n]`, node n
    executes nowhere else. `spare[k]` are its slots beyond those that such nodes without a place need.
    """

    inside: Array
    bound: Array
    spare: Array


def scarce(problem: Problem) -> Scarce:
    """All sets of PEs to which some node is restricted, except the whole fabric; no node is placed."""
    rows = np.unique(problem.arrays.allowed, axis=0)
    rows = rows[~rows.all(axis=1)]
    bound = np.array([~(problem.arrays.allowed & ~row).any(axis=1) for row in rows], dtype=np.bool_)
    bound = bound.reshape(len(rows), problem.size)
    return Scarce(rows, bound, rows.sum(axis=1) * problem.arrays.ii - bound.sum(axis=1))


@inner
def _kept(scarce: Scarce, n: int, p: int) -> bool:
    """Whether a slot of PE p is reserved for nodes with fewer choices than node n."""
    for k in range(scarce.spare.shape[0]):
        if scarce.inside[k, p] and not scarce.bound[k, n] and scarce.spare[k] <= 0:
            return True
    return False


@compiled
def _construct(
    f: Arrays, rng: Array, order: Array, far: Array, spots: Spots, placed: Array, kept: Scarce
) -> None:
    """Places the nodes in this order, each where the edges to placed nodes cost least.

    `far[n, p]` is an extra cost of PE p for node n. Nodes without a free slot stay unplaced.
    """
    for n in order:
        best = np.inf
        step, pe = ZERO, NONE
        shift = below(rng, f.on.pes)
        for i in range(f.on.pes):
            p = (i + shift) % f.on.pes
            if not f.allowed[n, p] or _kept(kept, n, p):
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
                        cost += edge_cost(f, e, spots)
                    if cost >= best:
                        break
                if cost < best:
                    best, step, pe = cost, t, p
        if pe >= 0:
            spots.step[n], spots.pe[n] = step, pe
            spots.taken[pe, step % f.ii] = n
            placed[n] = True
            for k in range(kept.spare.shape[0]):
                if kept.inside[k, pe] and not kept.bound[k, n]:
                    kept.spare[k] -= 1


class NoPlaceError(Exception):
    """No PE is free in the steps that an operation may have."""

    def __init__(self, problem: Problem, n: int) -> None:
        node, pes = problem.graph.nodes[n], int(problem.arrays.allowed[n].sum())
        steps = f"{problem.arrays.low[n]} to {problem.arrays.high[n]}"
        super().__init__(f"no free PEs: {node} may run on {pes}, in steps {steps}")


def start(problem: Problem, seed: tuple[int, ...], far: Array | None = None) -> Spots:
    """Places operations one after the other, near those that are already placed.

    `far` is a penalty by operation and PE. Raises `NoPlaceError` if an operation finds no free PE.
    """
    ii, size, pes = problem.arrays.ii, problem.size, problem.fabric.size
    rng = np.random.default_rng(seed)
    spots = Spots(
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        np.full((pes, ii), -1, dtype=np.int64),
    )
    far = np.zeros((size, pes)) if far is None else far.astype(np.float64)
    placed = np.zeros(size, dtype=np.bool_)
    # Nodes that must start first are placed first, so that few find both neighbours already placed.
    order = np.lexsort((rng.random(size), problem.arrays.low, problem.arrays.high)).astype(np.int64)
    _construct(
        problem.arrays, generator((*seed, 2)), order, far, spots, placed,
        scarce(problem),
    )  # fmt: skip
    if not placed.all():
        raise NoPlaceError(problem, int(np.argmin(placed)))
    return spots


def short(problem: Problem, spots: Spots) -> int:
    """The total number of steps by which dependences are too short."""
    f = problem.arrays
    return sum(max(0, -spare(f, e, spots)) for e in range(len(f.source)))
