"""Which accesses to one array may overlap, within or across iterations, and the order that follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from hw.fabric.operations import STORES
from sw.dfg.values import COUNTER, Item, Values

#: Strides up to this are taken apart by iteration; with fewer than 2^24 iterations they cannot wrap around.
_WIDEST = 128

#: Earlier and later access, and the distance at which, and at every greater one, their order counts.
Order = tuple[int, int, int]


def may_meet(values: Values, a: Item, b: Item) -> bool:
    """Whether two accesses of one array and iteration may have an element in common."""
    apart = values.difference(a.args[0], b.args[0])
    return apart is None or -values.elements(a) < apart < values.elements(b)


def later_distance(values: Values, a: Item, b: Item) -> int | None:
    """The least number of iterations, at least 1, after which `b` may meet `a` of now; None: never."""
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
    # b at iteration t + d meets a at iteration t: -below < gap - stride * d < above.
    below, above = values.elements(a), values.elements(b)
    if stride < 0:
        gap, stride, below, above = -gap, -stride, above, below
    if stride == 0:
        return 1 if -below < gap < above else None
    distance = max(1, (gap - above) // stride + 1)
    return distance if stride * distance < gap + below else None


def orders(values: Values, accesses: Iterable[int], loop: bool) -> list[Order]:
    """What must come before what; without what follows from other orders.

    Accesses that can never meet are in no order, nor are loads.
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
    """Whether one of two accesses is a store."""
    return a.op in STORES or b.op in STORES


def _inside(values: Values, items: Sequence[Item]) -> tuple[list[Order], list[int]]:
    """Orders of one iteration, and for every access the set (bits) of those before it, itself included."""
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
    """Orders of an access and one of a later iteration, from the last to the first."""
    found: list[Order] = []
    for i in range(len(items) - 1, -1, -1):
        for j, b in enumerate(items):
            # In the order of one iteration it holds for later ones too.
            if before[j] >> i & 1 or not _changes(items[i], b):
                continue
            distance = later_distance(values, items[i], b)
            if distance is not None and not any(
                before[k] >> i & 1 and before[j] >> m & 1 and d <= distance for k, m, d in found
            ):
                found.append((i, j, distance))
    return found
