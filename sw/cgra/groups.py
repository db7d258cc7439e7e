"""Groups of PEs: every two PEs of a group are at most a threshold apart, every PE is in one group.

Source: the levels of detail of hierarchical mappers; there are several partitions of each threshold, each a
candidate.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hw.fabric import Fabric
from sw.cgra.resources import resources

Groups = tuple[tuple[int, ...], ...]


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
        near = [pe for pe in free if hops[first, pe] <= threshold]
        while near:
            best = min(near, key=lambda pe: (int(hops[pe, group].max()), int(hops[pe, group].sum())))
            group.append(best)
            del free[best]
            near = [pe for pe in near if pe != best and hops[best, pe] <= threshold]
        groups.append(tuple(sorted(group)))
    return tuple(groups)


def threshold_for(fabric: Fabric, most: int) -> int:
    """The least threshold with at most so many groups."""
    hops = resources(fabric).distance
    for threshold in range(int(hops.max()) + 1):
        if len(partition(fabric, threshold)) <= most:
            return threshold
    return int(hops.max())
