"""Which accesses of one array may meet, in one iteration or across iterations, and the order that follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sw.dfg.values import COUNTER, Values

#: Strides up to this are taken apart by iteration; with fewer than 2^24 iterations they cannot wrap around.
_WIDEST = 128

#: Earlier and later access, and the distance at which, and at every greater one, their order counts.
Order = tuple[int, int, int]


def may_meet(values: Values, a: int, b: int) -> bool:
    """Whether two indices of one iteration may be equal."""
    return values.difference(a, b) in (None, 0)


def later_distance(values: Values, a: int, b: int) -> int | None:
    """The least number of iterations, at least 1, after which index `b` may equal `a` of now; None: never."""
    first, second = values.linear(a), values.linear(b)
    stride = 0
    for value, factor in {**second.factors, **first.factors}.items():
        if values.items[value].op == COUNTER:
            stride = factor
        elif not values.invariant(value):
            return 1
    gap = (first - second).wrapped().number
    if gap is None or abs(stride) > _WIDEST:
        return 1
    if stride == 0:
        return 1 if gap == 0 else None
    # b at iteration t + d equals a at iteration t: stride * d = gap.
    return gap // stride if gap % stride == 0 and gap // stride >= 1 else None


def orders(values: Values, accesses: Iterable[int], loop: bool) -> list[Order]:
    """What must come before what; without what follows from other orders.

    Accesses that can never meet are in no order, nor are loads.
    """
    by_array: dict[str | None, list[int]] = defaultdict(list)
    for access in accesses:
        by_array[values.items[access].memory].append(access)
    found: list[Order] = []
    for listed in by_array.values():
        indices = [values.items[access].args[0] for access in listed]
        stores = [values.items[access].op == "store" for access in listed]
        inside, before = _inside(values, indices, stores)
        own = inside + (_across(values, indices, stores, before) if loop else [])
        found += [(listed[i], listed[j], distance) for i, j, distance in own]
    return found


def _inside(values: Values, indices: Sequence[int], stores: Sequence[bool]) -> tuple[list[Order], list[int]]:
    """Orders of one iteration, and for every access the set (bits) of those before it, itself included."""
    found: list[Order] = []
    before = [1 << i for i in range(len(indices))]
    for j, b in enumerate(indices):
        for i in range(j - 1, -1, -1):
            apart = before[j] >> i & 1 or not (stores[i] or stores[j])
            if not apart and may_meet(values, indices[i], b):
                found.append((i, j, 0))
                before[j] |= before[i]
    return found, before


def _across(
    values: Values, indices: Sequence[int], stores: Sequence[bool], before: Sequence[int]
) -> list[Order]:
    """Orders of an access and one of a later iteration, from the last to the first."""
    found: list[Order] = []
    for i in range(len(indices) - 1, -1, -1):
        for j, b in enumerate(indices):
            # In the order of one iteration it holds for later ones too.
            if before[j] >> i & 1 or not (stores[i] or stores[j]):
                continue
            distance = later_distance(values, indices[i], b)
            if distance is not None and not any(
                before[k] >> i & 1 and before[j] >> m & 1 and d <= distance for k, m, d in found
            ):
                found.append((i, j, distance))
    return found
