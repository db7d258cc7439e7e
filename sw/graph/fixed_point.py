"""Sums of scaled integers, rounded once, in 32-bit operations.

Each term x * c is rounded to F fractional bits (`mul_shift_round`), the terms are added, and the sum is
rounded half to even. For terms of 8 bits the result is compared with the exact one for every combination of
their values; F and the direction of roundings vary until all agree.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sw.graph.expression import Apply, Argument, Expression, Number, evaluate
from sw.graph.requantise import apply, clamped

_BITS = 30
_MOST_FRACTION = 26
_LEAST_FRACTION = 8
#: Fractional bits of the lower of two words: two terms of 9 bits with that many fit in a word.
_LOWER = 20
#: Most candidates compared before giving up.
_TRIES = 24


@dataclass(frozen=True)
class Term:
    """An integer between `low` and `high`, and its factor."""

    value: Expression
    low: int
    high: int
    factor: Fraction


#: Turns terms into a rounded sum; None if a factor is out of range.
Way = Callable[[Sequence[Term]], Expression | None]


def factor(value: Fraction, fraction: int) -> tuple[int, int] | None:
    """Mantissa and shift for `mul_shift_round` to multiply by value * 2^fraction; None if out of range."""
    scaled = value * (1 << fraction)
    if scaled == 0:
        return 0, 0
    exponent = math.frexp(float(abs(scaled)))[1]
    shift = min(_BITS - exponent, 62)
    if shift < 0:
        return None
    return round(scaled * (1 << shift)), shift


def most_fraction(terms: Sequence[Term], constant: float) -> int:
    """Most fractional bits with which no sum of the terms exceeds 31 bits."""
    reach = sum(max(abs(t.low), abs(t.high)) * abs(float(t.factor)) for t in terms) + abs(constant) + 1
    return min(_MOST_FRACTION, _BITS - math.frexp(reach)[1])


def narrow(
    terms: Sequence[Term], constant: Fraction, fraction: int, roundings: Sequence[str]
) -> Expression | None:
    """A sum rounded half to even, from one word; each term is first rounded to this many fractional bits."""
    result: Expression | None = None
    for term, rounding in zip(terms, roundings, strict=True):
        found = factor(term.factor, fraction)
        if found is None:
            return None
        mantissa, shift = found
        twos = (mantissa & -mantissa).bit_length() - 1 if mantissa else 0
        if twos >= shift and abs(mantissa >> shift) < 1 << 31:
            part = apply("mul", term.value, mantissa >> shift)
        else:
            part = apply(rounding, term.value, mantissa, shift)
        result = part if result is None else apply("add", result, part)
    assert result is not None
    return apply("mul_shift_round_even", apply("add", result, round(constant * (1 << fraction))), 1, fraction)


def exact(values: Sequence[np.ndarray], factors: Sequence[Fraction], constant: Fraction) -> np.ndarray:
    """The exact sum of products, rounded half to even; the integer arrays broadcast.

    It is computed in float64; everything near a tie is decided with integers.
    """
    arrays = np.broadcast_arrays(*values)
    approximate = np.full(arrays[0].shape, float(constant))
    for array, f in zip(arrays, factors, strict=True):
        approximate = approximate + array * float(f)
    result = np.rint(approximate)
    apart = np.abs(approximate - np.floor(approximate) - 0.5)
    near = np.argwhere((apart < 1e-5) & (np.abs(approximate) < 2.0**20))
    for place in map(tuple, near):
        value = sum((int(a[place]) * f for a, f in zip(arrays, factors, strict=True)), constant)
        result[place] = round(value)
    return np.asarray(np.clip(result, -(1 << 30), 1 << 30), np.int64)


def exact_sum(terms: Sequence[Term], constant: Fraction, zero: int, low: int, high: int) -> Expression | None:
    """The sum of one or two terms, which are 8-bit operands minus numbers, rounded once, exactly.

    Each term's value must cover all integers from `low` to `high` with its operand. None if neither one word
    nor two words of fractional bits give the exact result for all values.
    """
    stand_in = [dataclasses.replace(t, value=Argument(i)) for i, t in enumerate(terms)]
    return _first_exact(terms, stand_in, _grids(terms), constant, zero, low, high)


def exact_product(a: Term, b: Term, zero: int, low: int, high: int) -> Expression | None:
    """The product of two integers and both factors, rounded once, exactly; None if impossible."""
    most = max(abs(a.low), abs(a.high)) * max(abs(b.low), abs(b.high))
    term, stand_in = (
        Term(Apply("mul", operands), -most, most, a.factor * b.factor)
        for operands in ((a.value, b.value), (Argument(0), Argument(1)))
    )
    return _first_exact([term], [stand_in], _grids([a, b]), Fraction(0), zero, low, high)


def _grids(terms: Sequence[Term]) -> Sequence[np.ndarray]:
    """All combinations of the terms' values."""
    return np.meshgrid(*(np.arange(t.low, t.high + 1) for t in terms), indexing="ij")


def _first_exact(
    terms: Sequence[Term],
    stand_in: Sequence[Term],
    grids: Sequence[np.ndarray],
    constant: Fraction,
    zero: int,
    low: int,
    high: int,
) -> Expression | None:
    """The first candidate that gives the exact sum for all values, with `stand_in` as arguments."""
    values = [evaluate(t.value, grids) for t in stand_in]
    want = np.clip(exact(values, [t.factor for t in terms], constant) + zero, low, high)
    for way in _candidates(terms, constant):
        tried, value = (way(own) for own in (stand_in, terms))
        if tried is None or value is None:
            continue
        tried, value = (clamped(apply("add", own, zero), low, high) for own in (tried, value))
        if np.array_equal(evaluate(tried, grids), want):
            return value
    return None


def _candidates(terms: Sequence[Term], constant: Fraction) -> Iterator[Way]:
    """Ways to compute a rounded sum, cheapest first."""
    most = most_fraction(terms, float(constant))
    once = factor(terms[0].factor, 0)
    if len(terms) == 1 and not constant and once and terms[0].high * abs(terms[0].factor) < 1 << 29:
        yield lambda own: apply("mul_shift_round_even", own[0].value, *once)
    roundings = list(itertools.product(("mul_shift_round", "mul_shift_round_even"), repeat=len(terms)))
    every = itertools.product(range(most, _LEAST_FRACTION - 1, -1), roundings)
    for fraction, chosen in itertools.islice(every, _TRIES):
        yield functools.partial(narrow, constant=constant, fraction=fraction, roundings=chosen)
    for snapped in (10, 0) if most > 0 else ():
        yield functools.partial(wide, constant=constant, upper=most - 1, snapped=snapped)


def wide(terms: Sequence[Term], constant: Fraction, upper: int, snapped: int) -> Expression:
    """A sum of up to two terms, rounded half to even, from two words of fractional bits.

    The words hold `upper` and `_LOWER` fractional bits. The lower word contributes to the upper one its
    integer part and a sticky bit. Its last `snapped` bits, which contain the rounding errors of the factors,
    are rounded off before, so that ties remain ties.
    """
    parts = [round(t.factor * (1 << upper + _LOWER)) for t in terms]
    fixed = round(constant * (1 << upper + _LOWER))
    mask = (1 << _LOWER) - 1

    def summed(numbers: Sequence[int], more: int) -> Expression:
        value: Expression = Number(more)
        for term, number in zip(terms, numbers, strict=True):
            product = apply("mul", term.value, number)
            value = product if value == Number(0) else apply("add", product, value)
        return value

    lower = summed([p & mask for p in parts], (fixed & mask) + ((1 << snapped) >> 1))
    higher = apply("add", summed([p >> _LOWER for p in parts], fixed >> _LOWER), apply("shr", lower, _LOWER))
    rest = apply("ne", apply("and", lower, mask - ((1 << snapped) - 1)), 0)
    return apply("mul_shift_round_even", apply("or", apply("shl", higher, 1), rest), 1, upper + 1)
