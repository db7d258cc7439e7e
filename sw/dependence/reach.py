"""Which iterations of a loop can touch an element."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sw.dependence.cases import Case
from sw.dependence.forms import Value, add, whole


@dataclass(frozen=True)
class Reach:
    """The iterations in which an access can touch the element: those `low` to `high` before `anchor`.

    `repeats`: what it touches depends on the iteration by remainders alone, which come again after `period`.
    """

    anchor: Value
    low: int
    high: int
    repeats: bool = False
    period: int = 1


def together(reaches: list[Reach], case: Case) -> Reach:
    """All iterations that some accesses can touch the element in, counted from one anchor.

    Where their anchors do not differ by constants these are all iterations from the last one on.
    """
    first = min(reaches, key=lambda r: r.high - r.low)
    shifts = [add(first.anchor, r.anchor, -1) for r in reaches]
    lows = [r.low + n for r, n in zip(reaches, shifts, strict=True) if isinstance(n, int)]
    highs = [r.high + n for r, n in zip(reaches, shifts, strict=True) if isinstance(n, int)]
    anchor, low, high = first.anchor, min(lows), max(highs)
    if len(lows) < len(reaches):
        anchor, low = case.kept[-1], 0
        high = whole(anchor, case.facts)[1]
    return Reach(anchor, low, high, all(r.repeats for r in reaches), math.lcm(*(r.period for r in reaches)))
