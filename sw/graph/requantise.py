"""Requantisation as expressions: the exact product of a sum with a float32 scale, rounded once.

A scale s is mantissa * 2^-shift with a 24-bit mantissa, so the product is exact in the 64 bits of
`mul_shift_round_even`. Its result keeps 32 bits. If the sum could exceed them, it is first limited to values
whose result is beyond any 8-bit type anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sw.dtypes import INT8, INT32, UINT8
from sw.graph.expression import Apply, Expression, Lookup, Number

#: Smallest and largest value of each tensor type.
LIMITS = {t.name: t.limits for t in (INT8, UINT8, INT32)}
#: Results of this magnitude exceed every 8-bit type, whatever the zero point.
_BEYOND = 1 << 10
_MOST_RESULT = 1 << 30
_MOST_SHIFT = 63


def apply(operation: str, *operands: Expression | int) -> Expression:
    """Applies an operation to expressions and numbers; folds numbers if that leaves fewer operations."""
    found = tuple(Number(x) if isinstance(x, int) else x for x in operands)
    if operation in ("add", "sub", "shl", "shr") and found[1] == Number(0):
        return found[0]
    return Apply(operation, found)


def lookup_of(words: np.ndarray, operand: Expression, element: str) -> Lookup:
    """The word of a table over all values of an 8-bit type, starting with the smallest."""
    if element == "int8":
        return Lookup(tuple(np.roll(words, 128).tolist()), apply("and", operand, 255))
    return Lookup(tuple(words.tolist()), operand)


def clamped(value: Expression, low: int, high: int) -> Expression:
    """The value limited to `low` to `high`; nested limits are merged."""

    def limited(number: int) -> int:
        return min(max(number, low), high)

    match value:
        case Apply("max", (Apply("min", (inner, Number(above))), Number(below))) if below <= above:
            return clamped(inner, limited(below), limited(above))
        case Apply("min", (inner, Number(above))):
            return clamped(inner, low, limited(above))
        case Apply("max", (inner, Number(below))):
            return clamped(inner, limited(below), high)
    return apply("max", apply("min", value, high), low)


def wrapped(value: Expression, element: str) -> Expression:
    """The value after storing it as a type and reading it back."""
    if element in ("int32", "uint32"):
        return value
    if element == "uint8":
        return apply("and", value, 255)
    return apply("shr", apply("shl", value, 24), 24)


@dataclass(frozen=True)
class Multiplier:
    """Scales as numbers of the machine: mantissas * 2^-shifts, exact; arrays of the scales' shape.

    `limit` is the largest magnitude of a sum for which every result fits in 32 bits.
    """

    mantissa: np.ndarray
    shift: np.ndarray
    limit: np.ndarray


def multiplier(scale: np.ndarray, greatest: int) -> Multiplier:
    """Mantissas and shifts of float32 scales, for sums up to `greatest` in magnitude.

    All shifts are equal if the mantissas then still fit. Scales so large that every nonzero sum exceeds the
    type are replaced by equivalent smaller ones; scales so small that every result is 0 are replaced too.
    """
    fractions, exponents = np.frexp(np.clip(np.asarray(scale, np.float64), -(2.0**20), 2.0**20))
    mantissa = np.rint(np.ldexp(fractions, 24)).astype(np.int64)
    shift = 24 - exponents.astype(np.int64)
    # 2^31 * 2^24 * 2^-63 is 2^-8, which rounds to 0, as everything smaller does.
    mantissa = np.where(shift > _MOST_SHIFT, 0, mantissa)
    shift = np.clip(shift, 0, _MOST_SHIFT)
    common = int(shift[mantissa != 0].max(initial=0))
    more = np.where(mantissa == 0, 0, common - shift)
    # Mantissas have 24 bits, so nothing exceeds 64.
    raised = mantissa << np.minimum(more, 32)
    if np.abs(raised).max(initial=0) < 1 << 31:
        mantissa, shift = raised, np.full_like(shift, common)
    value = np.maximum(np.abs(mantissa) * 2.0**-shift, 2.0**-60)
    limit = np.minimum(np.floor(_MOST_RESULT / value), 2.0**31 - 1).astype(np.int64)
    return Multiplier(*_reduced(mantissa, shift), np.where(limit >= greatest, (1 << 31) - 1, limit))


def _reduced(mantissa: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Removes common powers of two from the mantissas."""
    common = int(np.bitwise_or.reduce(mantissa, axis=None)) if mantissa.size else 0
    twos = min((common & -common).bit_length() - 1, int(shift.min(initial=63))) if common else 0
    return mantissa >> twos, shift - twos


def common_limit(found: Multiplier) -> int | None:
    """One limit for all sums, 2^31 - 1 if none is needed; None if no single limit suits all scales."""
    least = int(found.limit.min())
    if least == (1 << 31) - 1:
        return least
    value = np.abs(found.mantissa) * 2.0**-found.shift
    return least if bool(np.all((value == 0) | (least * value >= _BEYOND))) else None


def requantised(
    total: Expression, mantissa: Expression, shift: Expression, zero: Expression, low: int, high: int
) -> Expression:
    """The sum times the scale, rounded half to even, plus the zero point, limited to `low` to `high`."""
    product = Apply("mul_shift_round_even", (total, mantissa, shift))
    if mantissa == Number(1) and shift == Number(0):
        return clamped(apply("add", total, zero), low, high)
    return clamped(apply("add", product, zero), low, high)
