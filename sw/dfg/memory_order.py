"""Which accesses of one array may meet, in one iteration or across iterations, and the order that follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sw.dfg.values import COUNTER, Guard, Values

#: Strides up to this are taken apart by iteration; with fewer than 2^24 iterations they cannot wrap around.
_WIDEST = 128


@dataclass(frozen=True)
class OrderedAccess:
    """A load or a store in the order of the text; `value` is its number among the values."""

    value: int
    array: str
    index: int
    guard: Guard | None
    stores: bool


def may_meet(values: Values, a: int, b: int) -> bool:
    """Whether two indices of one iteration may be equal."""
    return values.difference(a, b) in (None, 0)


def must_meet(values: Values, a: int, b: int) -> bool:
    """Whether two indices of one iteration are equal."""
    return values.difference(a, b) == 0


def later_distance(values: Values, a: int, b: int) -> int | None:
    """The least number of iterations, at least 1, after which index `b` may equal `a` of now; None: never."""
    first, stride_a = _split(values, a)
    second, stride_b = _split(values, b)
    if first is None or second is None or stride_a != stride_b or first[1] != second[1]:
        return 1
    gap = first[0] - second[0]
    if stride_a == 0:
        return 1 if gap == 0 else None
    if abs(stride_a) > _WIDEST:
        return 1
    # b at iteration t + d equals a at iteration t: stride * d = gap.
    return gap // stride_a if gap % stride_a == 0 and gap // stride_a >= 1 else None


def _split(values: Values, index: int) -> tuple[tuple[int, tuple[tuple[int, int], ...]] | None, int]:
    """An index as what does not change and the stride per iteration; None where it changes otherwise."""
    linear, stride = values.linear(index), 0
    rest: list[tuple[int, int]] = []
    for value, factor in sorted(linear.factors.items()):
        if values.items[value].op == COUNTER:
            stride = factor
        elif values.invariant(value):
            rest.append((value, factor))
        else:
            return None, 0
    return (linear.constant, tuple(rest)), stride


def orders(values: Values, accesses: Iterable[OrderedAccess], loop: bool) -> list[tuple[int, int, int]]:
    """What must come before what: earlier and later access, distance; without what follows from other orders.

    A distance stands for every greater one too. Accesses that can never meet are in no order, nor are loads.
    """
    by_array: dict[str, list[OrderedAccess]] = {}
    for access in accesses:
        by_array.setdefault(access.array, []).append(access)
    found: list[tuple[int, int, int]] = []
    for listed in by_array.values():
        inside, before = _inside(values, listed)
        found += inside
        if loop:
            found += _across(values, listed, before)
    return found


def _inside(values: Values, listed: Sequence[OrderedAccess]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Orders of one iteration, and for every access the set (bits) of those before it, itself included."""
    found: list[tuple[int, int, int]] = []
    before = [1 << i for i in range(len(listed))]
    for j, b in enumerate(listed):
        for i in range(j - 1, -1, -1):
            a = listed[i]
            if (a.stores or b.stores) and not before[j] >> i & 1 and may_meet(values, a.index, b.index):
                found.append((a.value, b.value, 0))
                before[j] |= before[i]
    return found, before


def _across(
    values: Values, listed: Sequence[OrderedAccess], before: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Orders of an access and one of a later iteration, from the last to the first."""
    found: list[tuple[int, int, int]] = []
    for i in range(len(listed) - 1, -1, -1):
        for j in range(len(listed)):
            a, b = listed[i], listed[j]
            # In the order of one iteration it holds for later ones too.
            if not (a.stores or b.stores) or before[j] >> i & 1:
                continue
            distance = later_distance(values, a.index, b.index)
            if distance is None:
                continue
            if not any(before[k] >> i & 1 and before[j] >> m & 1 and d <= distance for k, m, d in found):
                found.append((i, j, distance))
    return [(listed[i].value, listed[j].value, distance) for i, j, distance in found]
