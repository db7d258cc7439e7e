"""Sums of scaled integers on a quantisation grid, within 32 bits.

Sums of products with one scale are added as integers: directly if every result fits 32 bits, otherwise
limited to 32 bits if the grid's type is exceeded by then anyway. Values with different scales are added in
fixed point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sw.frontend.affine import Summand
from sw.frontend.lowering import Lowering, collapsed
from sw.graph.expression import Expression
from sw.graph.requantise import apply, clamped, common_limit, multiplier, requantised

WORD = (1 << 31) - 1
#: Results of this magnitude exceed every 8-bit type, whatever the zero point.
_BEYOND = 1 << 10
#: Minimum magnitude of a limited sum when the sum overflows 32 bits.
_LIMITED = (1 << 31) - (1 << 16)
#: Scales whose relative difference is below this count as equal if a constant is added to sums of products.
SAME_SCALE = 2.0**-22
#: Largest error of a fixed-point sum, in steps of the result.
_TOLERANCE = 2.0**-12


@dataclass(frozen=True, eq=False)
class Whole:
    """Integers up to `reach` in magnitude, to be multiplied by the factor of `part`."""

    value: Expression
    reach: int
    part: Summand


def wholes(to: Lowering, parts: Sequence[Summand], constant: np.ndarray) -> tuple[list[Whole], np.ndarray]:
    """Parts, with those of one scale added, and the constant with the remaining constant parts."""
    groups: list[list[Summand]] = []
    for part in parts:
        own = next((g for g in groups if _one_scale(to, g[0], part)), None)
        if own is None:
            groups.append([part])
        else:
            own.append(part)
    found = []
    reaches = [sum(p.leaf.reach * np.abs(p.factor(np.float64)) for p in group) for group in groups]
    for number, group in enumerate(groups):
        # A limited sum must stay beyond the type whatever is added to it.
        others = sum(r for other, r in enumerate(reaches) if other != number)
        added = _added(to, group, _BEYOND + np.abs(constant) + others)
        if added is not None:
            found.append(added)
            continue
        for part in group:
            held = _constant(to, part)
            if held is None:
                found.append(_single(to, part))
            else:
                constant = constant + held * part.factor(np.float64)
    return found, constant


def _constant(to: Lowering, part: Summand) -> np.ndarray | None:
    """The elements of a constant 32-bit part; None for others."""
    return to.importer.array(part.leaf.view) if part.leaf.element == "int32" else None


def _one_scale(to: Lowering, a: Summand, b: Summand) -> bool:
    """Whether two 32-bit parts have one scale; that of a constant is often rounded differently."""
    if a.leaf.element != "int32" or b.leaf.element != "int32":
        return False
    one, other = a.factor(np.float64), b.factor(np.float64)
    loose = _constant(to, a) is not None or _constant(to, b) is not None
    return bool(np.all(np.abs(one - other) <= (SAME_SCALE if loose else 0.0) * np.abs(one)))


def _single(to: Lowering, part: Summand) -> Whole:
    """The elements of a part minus the zero point."""
    leaf = part.leaf
    return Whole(apply("sub", to.operand(leaf.view), to.numbers(leaf.zero, "zero")), leaf.reach, part)


def _added(to: Lowering, group: Sequence[Summand], beyond: np.ndarray) -> Whole | None:
    """The sum of 32-bit parts with one scale; None if 32-bit limits would change the result.

    That is so if a limited sum is less than `beyond` in steps of the result.
    """
    first = next((p for p in group if _constant(to, p) is None), None)
    if first is None:
        return None
    singles = [_single(to, part) for part in group]
    reach = sum(x.reach for x in singles)
    if reach <= WORD:
        total = singles[0].value
        for other in singles[1:]:
            total = apply("add", total, other.value)
        return Whole(total, reach, first)
    if not np.all(_LIMITED * np.abs(first.factor(np.float64)) >= beyond):
        return None
    return Whole(_limited([x.value for x in singles]), WORD, first)


def _limited(values: Sequence[Expression]) -> Expression:
    """A sum of words; if it exceeds 32 bits, a number of its sign and at least `_LIMITED` in magnitude."""
    low = apply("and", values[0], 0xFFFF)
    high = apply("shr", values[0], 16)
    for value in values[1:]:
        low = apply("add", low, apply("and", value, 0xFFFF))
        high = apply("add", high, apply("shr", value, 16))
    high = clamped(apply("add", high, apply("shr", low, 16)), -(1 << 15), (1 << 15) - 1)
    return apply("add", apply("shl", high, 16), apply("and", low, 0xFFFF))


def one_part(to: Lowering, whole: Whole, zero: Expression) -> Expression:
    """Integers times their scale: the exact product, rounded once."""
    scale = collapsed(whole.part.factor(np.float32))
    if not np.all(np.isfinite(scale)):
        raise to.node.error("scales must be numbers")
    found, value = multiplier(scale, whole.reach), whole.value
    limit = common_limit(found)
    if limit is None:
        limits = to.numbers(found.limit, "most")
        value = apply("max", apply("min", value, limits), to.numbers(-found.limit, "least"))
    elif limit < WORD:
        value = clamped(value, -limit, limit)
    mantissa, shift = to.numbers(found.mantissa, "mantissa"), to.numbers(found.shift, "shift")
    return requantised(value, mantissa, shift, zero, to.low, to.high)


def several_parts(to: Lowering, parts: Sequence[Whole], constant: np.ndarray, zero: Expression) -> Expression:
    """Several values and a constant, in fixed point with as many fractional bits as fit.

    A value so large that nothing else can bring the result back into its type is limited before scaling.
    """
    factors = [collapsed(p.part.factor(np.float64)) for p in parts]
    constant = collapsed(constant)
    if not all(np.all(np.isfinite(f)) for f in (*factors, constant)):
        raise to.node.error("scales must be numbers")
    reaches = [p.reach * np.abs(f) for p, f in zip(parts, factors, strict=True)]
    reach: np.ndarray = np.asarray(sum(reaches))
    constant = np.clip(constant, -(_BEYOND + reach), _BEYOND + reach)
    most = [_BEYOND + np.abs(constant) + (reach - r) for r in reaches]
    limits = [np.minimum(r, m) for r, m in zip(reaches, most, strict=True)]
    greatest = float((sum(limits) + np.abs(constant)).max())
    bits = min(26, 29 - int(np.frexp(greatest + 1)[1]))
    # Rounding errors of each part and its mantissa, and of the constant.
    if (0.75 * len(parts) + 0.5) * 2.0**-bits > _TOLERANCE:
        raise to.node.error(
            f"the operands are too far apart in magnitude for a sum of 32 bits: they reach {greatest:.4g} "
            f"steps of the result's scale; QuantizeLinear and DequantizeLinear of each operand, or a larger "
            f"scale, are needed"
        )
    total: Expression = to.numbers(np.rint(constant * 2.0**bits).astype(np.int64), "constant")
    for part, factor, r, m in zip(parts, factors, reaches, most, strict=True):
        value, held = part.value, part.reach
        if np.any(r > m):
            ends = np.minimum(np.ceil(m / np.maximum(np.abs(factor), 2.0**-40)), WORD).astype(np.int64)
            value = apply("min", value, to.numbers(ends, "most"))
            value = apply("max", value, to.numbers(-ends, "least"))
            held = int(ends.max())
        total = apply("add", _fixed(to, value, held, factor, bits), total)
    whole = apply("mul_shift_round_even", total, 1, bits)
    return clamped(apply("add", whole, zero), to.low, to.high)


def in_fixed_point(to: Lowering, parts: Sequence[Summand], constant: np.ndarray, bits: int) -> Expression:
    """A sum with this many fractional bits, in which every part fits 32 bits."""
    total: Expression = to.numbers(np.rint(constant * 2.0**bits).astype(np.int64), "constant")
    for part in parts:
        factor = collapsed(part.factor(np.float64))
        total = apply("add", _fixed(to, _single(to, part).value, part.leaf.reach, factor, bits), total)
    return total


def _fixed(to: Lowering, value: Expression, reach: int, factor: np.ndarray, bits: int) -> Expression:
    """A whole number up to `reach` times factors, with fractional bits, a quarter of the last one exact."""
    scaled = factor * 2.0**bits
    if np.all(scaled == 1):
        return value
    shift = np.minimum(30 - np.frexp(np.abs(scaled))[1].astype(np.int64), 62)
    if reach * 2.0 ** -(int(shift.min()) + 1) <= 0.25:
        shift = shift.min()
    if shift.min() < 0:
        raise to.node.error("a scale is too large for a sum of 32 bits")
    mantissa = to.numbers(np.rint(np.ldexp(scaled, shift)).astype(np.int64), "mantissa")
    return apply("mul_shift_round", value, mantissa, to.numbers(np.asarray(shift), "shift"))
