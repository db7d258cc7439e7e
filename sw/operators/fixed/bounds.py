"""Bounds of real numbers: their range, and their distance from exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sw.frontend.values import Constant, Dequantised, FixedPoint, Real, Reals
from sw.graph.requantise import LIMITS

#: Attribute of a `Real` that holds its `Bound`, if that is not derived from the operands.
KNOWN = "known"
#: Relative rounding error of the scales of other sums, which are float32.
_SCALE = 2.0**-24


@dataclass(frozen=True)
class Bound:
    """Numbers from `low` to `high`, each within `error` of the exact one."""

    low: float
    high: float
    error: float = 0.0

    @property
    def reach(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def bits(self) -> int:
        """Fractional bits with which every magnitude stays below 2^30, even after a few roundings."""
        return 30 - max(math.frexp((self.reach + self.error) * (1 + 2.0**-24))[1], -15)


def _added(parts: Sequence[Bound]) -> Bound:
    return Bound(*(sum(ends) for ends in zip(*((p.low, p.high, p.error) for p in parts), strict=True)))


def _times(parts: Sequence[Bound]) -> Bound:
    a, b = parts
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Bound(min(ends), max(ends), a.reach * b.error + b.reach * a.error + a.error * b.error)


def _extreme(choose: Callable[..., float]) -> Callable[[Sequence[Bound]], Bound]:
    return lambda parts: Bound(
        choose(p.low for p in parts), choose(p.high for p in parts), max(p.error for p in parts)
    )


def _divided(parts: Sequence[Bound]) -> Bound:
    a, b = parts
    if b.low <= 0 <= b.high or b.error:
        return Bound(-math.inf, math.inf, math.inf)
    return _times((a, Bound(*sorted((1 / b.low, 1 / b.high)))))


def _chosen(parts: Sequence[Bound]) -> Bound:
    low, high = (f(p.low if f is min else p.high for p in parts[1:]) for f in (min, max))
    return Bound(low, high, max(p.error for p in parts[1:]))


_RULES: dict[str, Callable[[Sequence[Bound]], Bound]] = {
    "Add": _added,
    "Sum": _added,
    "Sub": lambda p: _added((p[0], Bound(-p[1].high, -p[1].low, p[1].error))),
    "Neg": lambda p: Bound(-p[0].high, -p[0].low, p[0].error),
    "Mul": _times,
    "Div": _divided,
    "Max": _extreme(max),
    "Min": _extreme(min),
    "Relu": lambda p: Bound(max(p[0].low, 0.0), max(p[0].high, 0.0), p[0].error),
    "Where": _chosen,
}


def bound(value: Reals) -> Bound:
    """The bound of a real value; operators without a rule are unbounded."""
    match value:
        case Constant(array):
            return Bound(float(array.min()), float(array.max()))
        case FixedPoint():
            return Bound(value.low, value.high, value.error)
        case Dequantised():
            scale = float(value.scale.max())
            if value.element == "int32":
                reach, mantissas = value.reach * scale, np.frexp(value.scale)[0]
                exact = value.scale.dtype == np.float64 or np.all(mantissas == 0.5)
                return Bound(-reach, reach, 0.0 if exact else _SCALE * reach)
            low, high = LIMITS[value.element]
            ends = (low - int(value.zero.max())) * scale, (high - int(value.zero.min())) * scale
            return Bound(min(ends[0], 0.0), max(ends[1], 0.0))
    known = value.attributes.get(KNOWN)
    if isinstance(known, Bound):
        return known
    rule = _RULES.get(value.op)
    if rule is None:
        return Bound(-math.inf, math.inf, math.inf)
    return rule([bound(x) for x in value.inputs])


def is_fixed(value: Reals) -> bool:
    """Whether a value contains numbers in fixed point."""
    if isinstance(value, Real):
        return KNOWN in value.attributes or any(is_fixed(x) for x in value.inputs)
    return isinstance(value, FixedPoint)


def is_wide(value: Reals) -> bool:
    """Whether a value contains computed 32-bit numbers."""
    if isinstance(value, Real):
        return any(is_wide(x) for x in value.inputs)
    return isinstance(value, Dequantised) and value.element == "int32"
