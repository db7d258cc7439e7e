"""Hierarchical placement: assigns operations to groups of PEs first, then to PEs.

All PEs of a group are within a threshold of each other, and every PE is in one group. There are several
partitions per threshold, each a candidate. The distance of groups is that of their centres. The schedule is
not yet fixed, so a group holds as many operations as it has PEs times contexts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hw.fabric import Fabric
from sw.cgra.attempt import Effort, cool
from sw.cgra.compiled import Array
from sw.cgra.place import Spots, start
from sw.cgra.problem import Problem
from sw.cgra.resources import resources

Groups = tuple[tuple[int, ...], ...]
#: Approximate number of PEs per group, and the minimum and maximum number of groups.
PES, LEAST_GROUPS, MOST_GROUPS = 4, 16, 64
#: Distances are counted in this fraction of a row or column.
_SCALE = 4
#: Maximum fill of a group; a full one leaves no room to improve details.
FULL = 0.97
#: Cost of each hop between an operation and its group in the initial placement.
FAR = 0.5
#: Each phase gets 1/`SHARE` of an effort's proposals: starting from good groups, fewer suffice.
SHARE = 4
#: Start and end temperatures within the groups, and then on the whole fabric.
INSIDE_HEAT, EVERYWHERE_HEAT = (1.5, 0.8), (0.8, 0.2)


def place_in_groups(
    problem: Problem, seed: tuple[int, ...], effort: Effort, late: Callable[[], bool]
) -> tuple[Spots, int]:
    """Places by groups, first one by one, then by annealing; returns the spots and the number of proposals.

    The seed chooses the partition. Every operation stays in or next to its group until the placement is good;
    then it may leave, because groups can be wrong in detail. Raises `NoPlaceError`.
    """
    hops, allowed = problem.arrays.on.distance[0], problem.arrays.allowed
    count = min(max(problem.fabric.size // PES, LEAST_GROUPS), MOST_GROUPS)
    groups = partition(problem.fabric, threshold_for(problem.fabric, count), seed[-1])
    # By operation and PE: the PE's distance from the operation's group.
    far = np.array([hops[list(group)].min(axis=0) for group in groups])[assign(problem, groups)]
    near = allowed & (far <= 1)
    near = np.where(near.any(axis=1, keepdims=True), near, allowed)
    spots = start(problem, seed, FAR * far)
    proposals = effort.proposals * problem.size // SHARE
    inside = replace(problem, arrays=problem.arrays._replace(allowed=near))
    made = cool(inside, spots, seed, proposals // 2, INSIDE_HEAT, late)
    return spots, made + cool(problem, spots, (*seed, 0), proposals - proposals // 2, EVERYWHERE_HEAT, late)


@lru_cache(maxsize=64)
def partition(fabric: Fabric, threshold: int, variant: int = 0) -> Groups:
    """Groups of PEs with a pairwise distance (in both directions) of at most `threshold`.

    Groups grow from the first free PE, in an order that `variant` selects: by row, by column, and both in
    reverse. A group takes the PE with the smallest total distance to it.
    """
    hops = np.maximum(resources(fabric).distance[0], resources(fabric).distance[0].T)
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
    """The smallest threshold that gives at most this many groups."""
    hops = resources(fabric).distance[0]
    for threshold in range(int(hops.max()) + 1):
        if len(partition(fabric, threshold)) <= most:
            return threshold
    return int(hops.max())


def assign(problem: Problem, groups: Groups) -> Array:
    """Assigns each operation in turn to the group that has room and is closest to its neighbours."""
    fabric, f = problem.fabric, problem.arrays
    middles = [tuple(sum(fabric.at(pe)[k] for pe in g) * _SCALE // len(g) for k in (0, 1)) for g in groups]
    near: list[dict[int, int]] = [defaultdict(int) for _ in range(problem.size)]
    for u, v in zip(f.source[f.routed].tolist(), f.target[f.routed].tolist(), strict=True):
        if u != v:
            near[u][v] += 1
            near[v][u] += 1
    used = [0] * len(groups)
    place: dict[int, int] = {}
    waiting = dict.fromkeys(range(problem.size), 0)
    while waiting:
        n = max(waiting, key=lambda n: (waiting[n], -n))
        del waiting[n]

        def cost(g: int, n: int = n) -> tuple[int, int, int]:
            full = used[g] + 1 > len(groups[g]) * f.ii * FULL
            way = sum(
                w * sum(abs(x - y) for x, y in zip(middles[g], middles[place[m]], strict=True))
                for m, w in near[n].items()
                if m in place
            )
            return int(full), way, used[g]

        place[n] = min((g for g in range(len(groups)) if f.allowed[n, list(groups[g])].any()), key=cost)
        used[place[n]] += 1
        for m, w in near[n].items():
            if m in waiting:
                waiting[m] += w
    return np.array([place[n] for n in range(problem.size)], dtype=np.int64)
