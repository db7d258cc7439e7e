"""How many iterations of common loops lie between two instances."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from sw.dependence.cases import consistent, within
from sw.dependence.forms import Facts, Value, add, whole

#: Stands for distances that are not constant or not bounded.
ANY_DISTANCE = "*"
Component = int | str
#: Iterations between two instances, per common loop from the outermost.
Distance = tuple[Component, ...]
#: More distances than this of one loop, and of all together, are not listed.
_LISTED, _LISTED_TOGETHER = 1024, 4096


def listed(
    later: Sequence[Value], earlier: Sequence[Value], facts: Facts, before: bool, tried: int = 0
) -> list[Distance]:
    """All distances that facts allow; `before`: the earlier instance stands before in the text.

    Where there are no more than `tried` of them, each is held against all facts together.
    """
    components: list[list[Component]] = []
    for now, then in zip(later, earlier, strict=True):
        (first, last), (least, most) = whole(now, facts), whole(then, facts)
        low, high = whole(add(now, then, -1), facts)
        low, high = max(low, first - most), min(high, last - least)
        components.append(list(range(low, high + 1)) if high - low < _LISTED else [ANY_DISTANCE])
    for c in sorted(components, key=len, reverse=True):
        if math.prod(map(len, components)) <= _LISTED_TOGETHER:
            break
        c[:] = [ANY_DISTANCE]
    found = [d for d in itertools.product(*components) if _forward(d, before)]
    if 1 < len(found) <= tried:
        return [d for d in found if _possible(d, later, earlier, facts)]
    return found


def _possible(distance: Distance, later: Sequence[Value], earlier: Sequence[Value], facts: Facts) -> bool:
    """Whether all that is known allows a distance."""
    known: Facts | None = facts
    for n, now, then in zip(distance, later, earlier, strict=True):
        if isinstance(n, int) and known is not None:
            known = within(known, add(now, then, -1), n, n)
    return known is not None and consistent(known) is not None


def _forward(distance: Distance, before: bool) -> bool:
    """Whether a distance goes forward in time."""
    for n in distance:
        if isinstance(n, str) or n > 0:
            return True
        if n < 0:
            return False
    return before
