"""Layer normalisation of 8-bit numbers in whole numbers: exact sums, an inverse square root per row.

The steps and their error bounds are in docs/operators.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.graph.expression import Integers, operate
from sw.graph.network import RowOperator, View
from sw.graph.requantise import LIMITS
from sw.graph.rowwise import by_rows

#: Most elements of a row: the sum of their squares is a signed word.
MOST_COLUMNS = 1 << 15
#: Bits of the lower part of a variance.
LOW_BITS = 24
#: Steps of Newton's method for the inverse square root: relative errors 0.18, 0.053, 2^-8, 2^-15, 2^-29.
STEPS = 4
#: The line that starts it, for a number from 1/8 to 1: least greatest relative error, 29 fractional bits.
START, SLOPE = round(2.5262 * 2**29), round(1.7086 * 2**29)
_MOST_ROUNDING, _LEAST_ROUNDING = 20, 4
#: Numbers of `epsilon` beyond which it is nothing, or everything.
_MOST_EXPONENT = 80


@dataclass(frozen=True)
class LayerNormalisation(RowOperator):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis of `x`, requantised.

    With n columns, s the sum of a row and v = n * (sum of squares) - s^2, the normalised element is
    (n x - s) / sqrt(v + e), e = epsilon * n^2 / input scale^2 = `epsilon` * 2^`exponent`. It is computed with
    `fraction` fractional bits, times `factors[c]`, shifted right by `shift`, plus `offsets[c]`; of the sum,
    `rounding` bits are rounded off, half to even, before `zero` is added.
    """

    epsilon: int
    exponent: int
    fraction: int
    factors: tuple[int, ...]
    offsets: tuple[int, ...]
    shift: int
    rounding: int
    zero: int
    result: str


def layer_normalisation(
    name: str,
    op: str,
    nodes: tuple[str, ...],
    output: View,
    x: View,
    *,
    element: str,
    x_scale: float,
    gamma: npt.ArrayLike,
    beta: npt.ArrayLike,
    epsilon: float,
    y_scale: float,
    y_zero: int,
    result: str,
) -> LayerNormalisation:
    """The operator for rows of `element` with a scale (their zero point does not matter).

    `gamma` and `beta` have one number per column, or one for all. Raises `InputError` for numbers for which
    the arithmetic does not suffice.
    """
    columns = x.shape[-1]
    if not 1 <= columns <= MOST_COLUMNS:
        raise InputError(
            f"{name}: layer normalisation takes rows of 1 to {MOST_COLUMNS} elements, not {columns}"
        )
    for what, scale in (("input", x_scale), ("output", y_scale)):
        if not (scale > 0 and math.isfinite(scale)):
            raise InputError(f"{name}: the {what} scale must be a positive number, not {scale:g}")
    if not 0 <= epsilon < math.inf:
        raise InputError(f"{name}: epsilon must be a number from 0 on, not {epsilon:g}")
    factor = np.broadcast_to(np.asarray(gamma, np.float64), columns) / float(y_scale)
    offset = np.broadcast_to(np.asarray(beta, np.float64), columns) / float(y_scale)
    greatest = float(np.abs(factor).max())
    reach = greatest * math.sqrt(max(columns - 1, 1)) + float(np.abs(offset).max()) + 1
    if not math.isfinite(reach):
        raise InputError(f"{name}: gamma and beta must be finite numbers")
    rounding = min(_MOST_ROUNDING, 30 - math.frexp(reach)[1])
    if rounding < _LEAST_ROUNDING:
        raise InputError(
            f"{name}: gamma and beta are too great for the output scale: results reach {reach:g} steps, "
            f"at most {2.0 ** (30 - _LEAST_ROUNDING):g} are possible"
        )
    # n / sqrt(n - 1) is the greatest factor of an element of a row that is not constant.
    slope = columns / math.sqrt(max(columns - 1, 1))
    fraction = min(29, 31 - math.frexp(slope * 1.0001)[1])
    bits = 30 - math.frexp(greatest)[1] if greatest else 0
    bits = min(bits, 62 + rounding - fraction)
    mantissa, exponent = _small(epsilon, columns, x_scale)
    return LayerNormalisation(
        name,
        op,
        nodes,
        output,
        x,
        element,
        mantissa,
        exponent,
        fraction,
        tuple(int(v) for v in np.rint(factor * 2.0**bits)),
        tuple(int(v) for v in np.rint(offset * 2.0**rounding)),
        fraction + bits - rounding,
        rounding,
        y_zero,
        result,
    )


def _small(epsilon: float, columns: int, x_scale: float) -> tuple[int, int]:
    """Mantissa of 30 bits and exponent of epsilon * n^2 / scale^2."""
    exact = Fraction(float(epsilon)) * columns**2 / Fraction(float(x_scale)) ** 2
    if exact == 0:
        return 0, -_MOST_EXPONENT
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length() - 30
    mantissa = round(exact / Fraction(2) ** exponent)
    if mantissa >= 1 << 30:
        mantissa, exponent = mantissa >> 1, exponent + 1
    if exponent < -_MOST_EXPONENT:
        return 0, -_MOST_EXPONENT
    return mantissa, min(exponent, _MOST_EXPONENT)


def reference(operator: LayerNormalisation, x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """The result for the elements of the input's view, an array of the view's shape and the result's type."""
    return by_rows(operator, x, operator.result, lambda rows: _rows(operator, rows))


def _rows(operator: LayerNormalisation, x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    values = x.astype(np.int64)
    total = values.sum(axis=1, keepdims=True)
    squares = (values * values).sum(axis=1, keepdims=True)
    slope, start = row_factors(operator, total, squares)
    normalised = operate("add", operate("mul", values, slope), start)
    product = operate("mul_shift_round", normalised, np.asarray(operator.factors), operator.shift)
    scaled = operate("add", product, np.asarray(operator.offsets))
    rounded = operate("mul_shift_round_even", scaled, 1, operator.rounding) + operator.zero
    return np.clip(rounded, *LIMITS[operator.result]).astype(operator.result)


def row_factors(
    operator: LayerNormalisation, total: Integers, squares: Integers
) -> tuple[Integers, Integers]:
    """N / sqrt(v + e) and -s / sqrt(v + e) of rows, with `fraction` fractional bits; 0 for constant rows."""
    variance, exponent = _variance(operator.columns, total, squares)
    root, shift = _inverse_root(operator, variance, exponent)
    # Shifted that far, nothing is left.
    shift = np.where(variance != 0, shift, 63)
    return (
        operate("mul_shift_round", root, operator.columns, shift),
        operate("mul_shift_round", root, -total, shift),
    )


def _variance(columns: int, total: Integers, squares: Integers) -> tuple[Integers, Integers]:
    """N * squares - total^2 as mantissa of 30 bits (or 0) and exponent."""
    high = operate("mul_shift_round", columns, squares, LOW_BITS) - operate(
        "mul_shift_round", total, total, LOW_BITS
    )
    low = operate("sub", operate("mul", columns, squares), operate("mul", total, total))
    low = operate("sub", low, operate("shl", high, LOW_BITS))
    high = high + (low >> LOW_BITS)
    low = low & ((1 << LOW_BITS) - 1)
    upper, lower = np.where(high != 0, high, low), np.where(high != 0, low, 0)
    zeros = operate("clz", upper)
    tail = operate("shr_logical", operate("shl", lower, 30 - LOW_BITS), 32 - zeros)
    return operate("shl", upper, zeros - 2) + tail, np.where(high != 0, 2 + LOW_BITS, 2) - zeros


def _inverse_root(
    operator: LayerNormalisation, variance: Integers, exponent: Integers
) -> tuple[Integers, Integers]:
    """1 / sqrt(v + e) with 29 fractional bits, from 1 to sqrt(8), and by how much to shift it right."""
    rounded = functools.partial(operate, "mul_shift_round")
    # Odd, so that the sum is d * 2^(exponent + 31), d from 1/8 to 1, with an even exponent.
    common = np.maximum(exponent, operator.exponent) | 1
    total = operate("shr", variance, np.minimum(common - exponent, 31)) + operate(
        "shr", operator.epsilon, np.minimum(common - operator.exponent, 31)
    )
    root = START - rounded(total, SLOPE, 31)
    for _ in range(STEPS):
        ratio = rounded(rounded(total, root, 31), root, 29)
        root = rounded(root, (3 << 29) - ratio, 30)
    return root, np.minimum(((common + 31) >> 1) + 29 - operator.fraction, 63)
