"""Functions of fixed-point numbers: tables of cubic polynomials, and powers by mantissa and exponent.

The error bound of a table is found by comparing it with the function: at `_SAMPLES` points of every segment
and at many points outside, with an allowance for the change between adjacent points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hw.errors import InputError
from sw.graph.expression import Apply, Argument, Expression, Lookup, Number, evaluate
from sw.graph.requantise import apply, clamped

Function = Callable[[np.ndarray], np.ndarray]
#: Words of a table, degree of the polynomials, and samples per segment for the error bound.
_WORDS, _DEGREE, _SAMPLES = 256, 3, 16
#: Largest distance between a function and a line that replaces it; the best of these is taken.
_TOLERANCES = tuple(2.0**-n for n in (16, 20, 23, 26, 29))
_X, _BEFORE = Argument(0), Argument(1)
#: Expressions of argument 0, each with the previous result as argument 1: small machines have two tables.
Steps = tuple[Expression, ...]


def run(steps: Steps, x: np.ndarray) -> np.ndarray:
    """Evaluates steps on integers."""
    found = np.zeros(x.shape, np.int32)
    for step in steps:
        found = evaluate(step, [x, found])
    return found


@dataclass(frozen=True)
class Table:
    """A function of argument 0, which has `bits` fractional bits: its values, error and steepest slope."""

    steps: Steps
    bits: int
    low: float
    high: float
    error: float
    slope: float


def interpolated(function: Function, low: float, high: float, bits: int) -> Table:
    """A function of numbers with `bits` fractional bits from `low` to `high`.

    If the function is almost linear near an end of the range, a line replaces it. Raises `InputError` if
    the function is not a number somewhere.
    """
    first, last = math.floor(low * 2.0**bits), math.ceil(high * 2.0**bits)
    places = _places(first, last)
    y = _values(function, places * 2.0**-bits)
    tried = {}
    for tolerance in _TOLERANCES:
        ends = _lines(places, y, tolerance * max(1.0, float(np.abs(y).max()) * 2.0**-8))
        if ends not in tried:
            tried[ends] = _built(function, places, y, ends, bits)
    return min(tried.values(), key=lambda t: t.error)


def _values(function: Function, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        y = np.asarray(function(x), np.float64)
    if not np.all(np.isfinite(y)):
        wrong = float(x[~np.isfinite(y)][0])
        raise InputError(f"the function is not a number at {wrong:.6g}, which its operand may be")
    return np.broadcast_to(y, x.shape)


def _places(first: int, last: int) -> np.ndarray:
    """Integers of a range: equally spaced, and denser near 0."""
    near = np.geomspace(1, max(abs(first), abs(last), 2), 1024)
    every = np.concatenate([np.linspace(first, last, 4096), near, -near, [first, last, 0]])
    return np.unique(np.clip(np.rint(every), first, last).astype(np.int64))


def _lines(x: np.ndarray, y: np.ndarray, tolerance: float) -> tuple[int, int, float, float]:
    """The points between which a function is not linear, and the slopes outside, usually 0."""
    ends = []
    for step in (1, -1):
        own, values = x[::step], y[::step]
        if len(own) < 8:
            ends.append((int(own[0]), 0.0))
            continue
        slope = (values[1] - values[0]) / (own[1] - own[0])
        slope = 0.0 if abs(slope * (own[-1] - own[0])) <= tolerance else float(slope)
        apart = np.abs(values - (values[0] + slope * (own - own[0]))) > tolerance / 2
        inside = int(np.argmax(apart)) if apart.any() else len(own)
        ends.append((int(own[max(0, inside - 1)]), slope) if inside > 8 else (int(own[0]), 0.0))
    (left, falling), (right, rising) = ends
    if left >= right:
        # A line everywhere.
        left, right = int(x[0]), int(x[-1])
    return left, right, falling if left > x[0] else 0.0, rising if right < x[-1] else 0.0


def _built(
    function: Function, x: np.ndarray, y: np.ndarray, ends: tuple[int, int, float, float], bits: int
) -> Table:
    left, right, falling, rising = ends
    step = max(0, (right - left).bit_length() - 8)
    count = ((right - left) >> step) + 1
    nodes = _nodes(_DEGREE)
    starts = left + (np.arange(count, dtype=np.float64) * 2.0**step)[:, None]
    at = (starts + nodes * 2.0**step) * 2.0**-bits
    with np.errstate(all="ignore"):
        # The last segment may extend beyond the end, where the function may be undefined.
        within = bool(np.all(np.isfinite(function(at))))
    found = _values(function, at if within else np.clip(at, x[0] * 2.0**-bits, x[-1] * 2.0**-bits))
    # Coefficients of the powers of the position in a segment, from 0 to 1.
    coefficients = np.linalg.solve(np.vander(nodes, increasing=True), found.T)
    reach = max(float(np.abs(y).max()), float(np.abs(coefficients).sum(axis=0).max()))
    fraction = 30 - max(math.frexp(reach)[1], -15)
    words = np.rint(coefficients * 2.0**fraction).astype(np.int64)
    *first, value = _polynomial(words, left, right, step)
    for operation, edge, slope in (("min", left, falling), ("max", right, rising)):
        if slope:
            mantissa, exponent = math.frexp(slope * 2.0 ** (fraction))
            beyond = apply(operation, apply("sub", _X, edge), 0)
            line = apply("mul_shift_round", beyond, round(mantissa * 2**30), 30 - exponent)
            value = apply("add", value, line)
    inside = np.unique(left + np.arange(_SAMPLES * count) * max(1, 2**step // _SAMPLES))
    samples = np.unique(np.concatenate([inside[inside <= right], x]))
    exact = _values(function, samples * 2.0**-bits)
    steps = (*first, value)
    apart = run(steps, samples) * 2.0**-fraction - exact
    error = float(np.abs(apart).max() + np.abs(np.diff(apart)).max(initial=0))
    slope = float(np.abs(np.diff(exact) / np.diff(samples)).max(initial=0)) * 2.0**bits
    low, high = float(exact.min()) - error, float(exact.max()) + error
    return Table(steps, fraction, low, high, error, 1.01 * slope)


def _nodes(degree: int) -> np.ndarray:
    """Points from 0 to 1 through which a polynomial approximates a function well everywhere."""
    return np.asarray(1 - np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))) / 2


def _fraction(function: Function, number: Expression, bits: int, degree: int) -> Steps:
    """A smooth function of the fractional part of a number, as polynomials over 256 segments."""
    nodes, step = _nodes(degree), bits - 8
    found = function((np.arange(_WORDS)[:, None] + nodes) / _WORDS)
    words = np.rint(np.linalg.solve(np.vander(nodes, increasing=True), found.T)).astype(np.int64)
    index, within = apply("and", apply("shr", number, step), 255), apply("and", number, (1 << step) - 1)
    return _horner([Lookup(tuple(int(w) for w in held), index) for held in words], within, step)


def _horner(coefficients: Sequence[Expression], within: Expression, step: int) -> Steps:
    """A polynomial of the position in segments of length 2^step, in steps of two tables."""
    *others, value = coefficients
    steps: list[Expression] = []
    for count, coefficient in enumerate(reversed(others), 1):
        if count > 1 and not count % 2:
            steps.append(value)
            value = _BEFORE
        value = apply("add", apply("mul_shift_round", value, within, step), coefficient)
    return (*steps, value)


def _polynomial(words: np.ndarray, left: int, right: int, step: int) -> Steps:
    """The polynomials of segments of length 2^step."""
    place = apply("sub", clamped(_X, left, right), left)
    index = apply("shr", place, step)

    def coefficient(power: int) -> Expression:
        held = tuple(int(w) for w in words[power])
        return Number(held[0]) if len(set(held)) == 1 else Lookup(held, index)

    if not step:
        return (coefficient(0),)
    return _horner([coefficient(k) for k in range(_DEGREE + 1)], apply("and", place, (1 << step) - 1), step)


@dataclass(frozen=True)
class Power:
    """A power of a positive argument 0: `mantissa` with `bits` fractional bits, times 2^-`exponent`.

    The mantissa is from 0.5 to 1, for a root from 1 to 2. `error` is relative.
    """

    mantissa: Steps
    bits: int
    exponent: Expression
    error: float


def power(p: float, bits: int) -> Power:
    """The power -1, -1/2 or 1/2 of a positive number with `bits` fractional bits, of any magnitude."""
    zeros = apply("clz", _X)
    normal = apply("shl", _X, apply("sub", zeros, 1))
    one = 29 if p > 0 else 30
    steps = _fraction(lambda x: (1 + x) ** p * 2.0**one, normal, 30, 2)
    samples = np.arange(1 << 30, 1 << 31, 1 << 15)
    relative = run(steps, samples) * 2.0**-one / (samples * 2.0**-30) ** p - 1
    error = float(np.abs(relative).max() + np.abs(np.diff(relative)).max()) + 2.0**-28
    # The number is a mantissa from 1 to 2, times 2^(31 - zeros - bits).
    exponent = apply("sub", 31 - bits, zeros)
    if p == -1:
        return Power(steps, one, exponent, error)
    odd = apply("and", exponent, 1)
    half = apply("shr", exponent, 1)
    # 2^30 if the exponent is even; a root above 1 has slightly fewer bits.
    root = 2.0 ** (30 + (0.5 if p > 0 else -0.5))
    value = apply(
        "mul_shift_round", steps[-1], Apply("select", (odd, Number(round(root)), Number(1 << 30))), 30
    )
    return Power((*steps[:-1], value), one, apply("sub", 0, half) if p > 0 else half, error)


def exponential(bits: int) -> tuple[Expression, float, float]:
    """The exponential of a non-positive number with `bits` fractional bits, with 29 fractional bits.

    Also returns its relative and its absolute error.
    """
    # The exponent of 2, with 25 fractional bits; results below 2^-31 vanish.
    mantissa, exponent = math.frexp(math.log2(math.e) * 2.0 ** (25 - bits))
    limited = clamped(_X, max(-math.ceil(24 * 2.0**bits), -(1 << 31)), 0)
    two = apply("mul_shift_round", limited, round(mantissa * 2**30), 30 - exponent)
    (value,) = _fraction(lambda x: 2.0 ** (x + 29), two, 25, 1)
    # Halved, which leaves 29 fractional bits.
    value = apply("mul_shift_round", value, 1, apply("sub", 0, apply("shr", two, 25)))
    return value, 2.0**-20, 2.0**-29
