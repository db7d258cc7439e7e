"""Which accesses to an array may overlap, within or across iterations, and the order edges that follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from hw.fabric.operations import STORES
from sw.dfg.values import COUNTER, Item, Values

#: Larger strides are not analysed per iteration. Below 2^24 iterations a stride of this size cannot wrap.
_WIDEST = 128

#: Earlier and later access, and the smallest distance from which on their order must be kept.
Order = tuple[int, int, int]


def may_meet(values: Values, a: Item, b: Item) -> bool:
    """Whether two accesses to an array may overlap in the same iteration."""
    apart = values.difference(a.args[0], b.args[0])
    return apart is None or -values.elements(a) < apart < values.elements(b)


def later_distance(values: Values, a: Item, b: Item) -> int | None:
    """Smallest distance d >= 1 at which `b` in iteration t + d may overlap `a` in iteration t, or None."""
    first, second = values.linear(a.args[0]), values.linear(b.args[0])
    stride = 0
    for value, factor in {**second.factors, **first.factors}.items():
        if values.items[value].op == COUNTER:
            stride = factor
        elif not values.invariant(value):
            return 1
    gap = (first - second).wrapped().number
    if gap is None or abs(stride) > _WIDEST:
        return 1
    # b in iteration t + d overlaps a in iteration t if -below < gap - stride * d < above.
    below, above = values.elements(a), values.elements(b)
    if stride < 0:
        gap, stride, below, above = -gap, -stride, above, below
    if stride == 0:
        return 1 if -below < gap < above else None
    distance = max(1, (gap - above) // stride + 1)
    return distance if stride * distance < gap + below else None


def orders(values: Values, accesses: Iterable[int], loop: bool) -> list[Order]:
    """The order edges needed, without those that others imply.

    Accesses that can never overlap have no order; neither have two loads.
    """
    by_array: dict[str | None, list[int]] = defaultdict(list)
    for access in accesses:
        by_array[values.items[access].memory].append(access)
    found: list[Order] = []
    for listed in by_array.values():
        items = [values.items[access] for access in listed]
        inside, before = _inside(values, items)
        own = inside + (_across(values, items, before) if loop else [])
        found += [(listed[i], listed[j], distance) for i, j, distance in own]
    return found


def _changes(a: Item, b: Item) -> bool:
    """Whether at least one of two accesses is a store."""
    return a.op in STORES or b.op in STORES


def _inside(values: Values, items: Sequence[Item]) -> tuple[list[Order], list[int]]:
    """Order edges within an iteration, and for each access the bit set of its predecessors and itself."""
    found: list[Order] = []
    before = [1 << i for i in range(len(items))]
    for j, b in enumerate(items):
        for i in range(j - 1, -1, -1):
            apart = before[j] >> i & 1 or not _changes(items[i], b)
            if not apart and may_meet(values, items[i], b):
                found.append((i, j, 0))
                before[j] |= before[i]
    return found, before


def _across(values: Values, items: Sequence[Item], before: Sequence[int]) -> list[Order]:
    """Order edges between an access and one of a later iteration, from the last to the first."""
    found: list[Order] = []
    for i in range(len(items) - 1, -1, -1):
        for j, b in enumerate(items):
            # The order within an iteration also covers later ones.
            if before[j] >> i & 1 or not _changes(items[i], b):
                continue
            distance = later_distance(values, items[i], b)
            if distance is not None and not any(
                before[k] >> i & 1 and before[j] >> m & 1 and d <= distance for k, m, d in found
            ):
                found.append((i, j, distance))
    return found
