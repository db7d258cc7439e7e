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
