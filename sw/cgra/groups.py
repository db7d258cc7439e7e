"""Places operations through groups of PEs: clusters to groups, then operations inside and beside them.

Every two PEs of a group are at most a threshold apart, and every PE is in one group. There are several
partitions of each threshold, each a candidate. Distances of groups are those of their middles in rows and
columns; the schedule is left open, so a group holds as many operations as it has PEs times contexts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hw.fabric import Fabric
from sw.cgra.attempt import Effort, cool
from sw.cgra.compiled import Array
from sw.cgra.place import Spots, start
from sw.cgra.problem import Problem
from sw.cgra.resources import resources

Groups = tuple[tuple[int, ...], ...]
#: PEs of a group, about, groups at least and at most, and the clusters that each gets on average.
PES, LEAST_GROUPS, MOST_GROUPS, CLUSTERS = 4, 16, 64, 5
#: Parts of rows and columns in which distances count.
_SCALE = 4
#: How full a group may become, of what it has; a full one leaves no way to improve the details.
FULL = 0.97
#: What a hop away from its group costs an operation when it gets its first place.
FAR = 0.5
#: Share of an effort's proposals for each phase: from good groups on fewer do.
SHARE = 4
#: Temperatures inside of the groups, and after that everywhere.
INSIDE_HEAT, EVERYWHERE_HEAT = (1.5, 0.8), (0.8, 0.2)


def place_in_groups(
    problem: Problem, seed: tuple[int, ...], effort: Effort, late: Callable[[], bool]
) -> tuple[Spots, int]:
    """Steps and PEs by groups: assigned cluster by cluster and refined by annealing; with the proposals made.

    The seed chooses the partition. Every operation stays in its group, and beside it, until the places are
    good; then it may leave, because groups can be wrong in detail. Raises `NoPlaceError`.
    """
    number = seed[-1]
    count = min(max(problem.fabric.size // PES, LEAST_GROUPS), MOST_GROUPS)
    groups = partition(problem.fabric, threshold_for(problem.fabric, count), number)
    most = max(1, problem.size // (CLUSTERS * len(groups)))
    of = assign(problem, groups, clusters(problem, most, seed))
    spots = start(problem, seed, FAR * _orders(problem, groups, of))
    proposals = effort.proposals * problem.size // SHARE
    inside = replace(problem, allowed=_allowed(problem, groups, of))
    made = cool(inside, spots, seed, proposals // 2, INSIDE_HEAT, late)
    return spots, made + cool(problem, spots, (*seed, 0), proposals - proposals // 2, EVERYWHERE_HEAT, late)


def _orders(problem: Problem, groups: Groups, of: np.ndarray) -> np.ndarray:
    """By operation and PE: how far the PE is from the operation's group."""
    hops = problem.resources.distance
    to_group = np.array([hops[list(group)].min(axis=0) for group in groups])
    return np.asarray(to_group[of])


def _allowed(problem: Problem, groups: Groups, of: np.ndarray) -> np.ndarray:
    """By operation and PE: whether the PE executes it and lies in its group or beside it."""
    near = problem.allowed & (_orders(problem, groups, of) <= 1)
    lost = ~near.any(axis=1)
    near[lost] = problem.allowed[lost]
    return np.asarray(near)


@lru_cache(maxsize=64)
def partition(fabric: Fabric, threshold: int, variant: int = 0) -> Groups:
    """PEs in groups of pairwise distance (in both directions) of at most `threshold`.

    Groups grow from the first PE that is free, in an order that `variant` gives: by row, by column, and
    both from the other end. A group takes the PE that is nearest to it in total.
    """
    hops = np.maximum(resources(fabric).distance, resources(fabric).distance.T)
    order = list(range(fabric.size))
    if variant % 2:
        order.sort(key=lambda pe: fabric.at(pe)[::-1])
    if variant // 2 % 2:
        order.reverse()
    free = dict.fromkeys(order)
    groups = []
    while free:
        first = next(iter(free))
        group = [first]
        del free[first]
        near = np.array([pe for pe in free if hops[first, pe] <= threshold], dtype=np.int64)
        far = total = hops[first, near]
        while len(near):
            i = int(np.lexsort((total, far))[0])
            best = int(near[i])
            group.append(best)
            del free[best]
            kept = hops[best, near] <= threshold
            kept[i] = False
            near = near[kept]
            far = np.maximum(far[kept], hops[best, near])
            total = total[kept] + hops[best, near]
        groups.append(tuple(sorted(group)))
    return tuple(groups)


def threshold_for(fabric: Fabric, most: int) -> int:
    """The least threshold with at most so many groups."""
    hops = resources(fabric).distance
    for threshold in range(int(hops.max()) + 1):
        if len(partition(fabric, threshold)) <= most:
            return threshold
    return int(hops.max())


@dataclass(frozen=True)
class Clusters:
    """Clusters of operations: the number of each operation's, members, joined clusters with their edges."""

    of: Array
    members: tuple[tuple[int, ...], ...]
    joined: dict[tuple[int, int], int]


def clusters(problem: Problem, most: int, seed: tuple[int, ...]) -> Clusters:
    """At most `most` operations each, by heaviest edges first; only operations for the same PEs join."""
    size = problem.size
    kinds = [row.tobytes() for row in problem.allowed]
    of, members = list(range(size)), {n: [n] for n in range(size)}
    weights: dict[tuple[int, int], int] = defaultdict(int)
    for u, v, routed in zip(problem.source, problem.target, problem.routed, strict=True):
        if u != v and routed:
            weights[min(u, v), max(u, v)] += 1
    ties = np.random.default_rng(seed).random(len(weights)) if weights else np.zeros(0)
    order = dict(zip(weights, ties, strict=True))
    while weights:
        # Edges between small clusters first, such that all grow alike.
        ranked = sorted(
            weights,
            key=lambda p: (len(members[p[0]]) + len(members[p[1]]), -weights[p], order.get(p, 1.0), p),
        )
        merged: set[int] = set()
        for a, b in ranked:
            if a in merged or b in merged:
                continue
            same = kinds[members[a][0]] == kinds[members[b][0]]
            if same and len(members[a]) + len(members[b]) <= most:
                merged |= {a, b}
                for n in members[b]:
                    of[n] = a
                members[a] += members.pop(b)
        if not merged:
            break
        again: dict[tuple[int, int], int] = defaultdict(int)
        for u, v, routed in zip(problem.source, problem.target, problem.routed, strict=True):
            a, b = of[u], of[v]
            if a != b and routed:
                again[min(a, b), max(a, b)] += 1
        weights = again
    number = {c: i for i, c in enumerate(members)}
    joined = {(number[a], number[b]): w for (a, b), w in weights.items()}
    return Clusters(
        np.array([number[c] for c in of], dtype=np.int64), tuple(tuple(m) for m in members.values()), joined
    )


def assign(problem: Problem, groups: Groups, found: Clusters) -> Array:
    """The group of every operation: clusters in turn, each where it fits and is nearest to its neighbours."""
    fabric = problem.fabric
    middles = [tuple(sum(fabric.at(pe)[k] for pe in g) * _SCALE // len(g) for k in (0, 1)) for g in groups]
    near: list[dict[int, int]] = [{} for _ in found.members]
    for (a, b), weight in found.joined.items():
        near[a][b] = near[b][a] = weight
    used = [0] * len(groups)
    place: dict[int, int] = {}
    waiting = dict.fromkeys(range(len(near)), 0)
    while waiting:
        c = max(waiting, key=lambda c: (waiting[c], -c))
        del waiting[c]
        row = problem.allowed[found.members[c][0]]

        def cost(g: int, c: int = c) -> tuple[int, int, int]:
            full = used[g] + len(found.members[c]) > len(groups[g]) * problem.ii * FULL
            way = sum(
                w * sum(abs(x - y) for x, y in zip(middles[g], middles[place[d]], strict=True))
                for d, w in near[c].items()
                if d in place
            )
            return int(full), way, used[g]

        place[c] = min((g for g in range(len(groups)) if row[list(groups[g])].any()), key=cost)
        used[place[c]] += len(found.members[c])
        for d, w in near[c].items():
            if d in waiting:
                waiting[d] += w
    return np.array([place[c] for c in found.of], dtype=np.int64)
