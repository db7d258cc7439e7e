"""Which iterations of a loop can touch an element."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sw.dependence.forms import Value, add


@dataclass(frozen=True)
class Reach:
    """The iterations in which an access can touch the element: `low` to `high` iterations before `anchor`.

    `repeats`: the region depends on the iteration only through remainders, which repeat after `period`.
    """

    anchor: Value
    low: int
    high: int
    repeats: bool = False
    period: int = 1


def together(reaches: list[Reach], upper: Value, most: int) -> Reach:
    """All iterations in which any of some accesses can touch the element, counted from one anchor.

    If their anchors do not differ by constants, or if that is fewer, these are the `most` ones up to `upper`.
    """
    first = min(reaches, key=lambda r: r.high - r.low)
    shifts = [add(first.anchor, r.anchor, -1) for r in reaches]
    lows = [r.low + n for r, n in zip(reaches, shifts, strict=True) if isinstance(n, int)]
    highs = [r.high + n for r, n in zip(reaches, shifts, strict=True) if isinstance(n, int)]
    anchor, low, high = first.anchor, min(lows), max(highs)
    if len(lows) < len(reaches) or most < high - low:
        anchor, low, high = upper, 0, most
    return Reach(anchor, low, high, all(r.repeats for r in reaches), math.lcm(*(r.period for r in reaches)))
