"""Softmax of 8-bit numbers in whole numbers: a table of exponentials, a reciprocal per row, one rounding.

The steps and their error bounds are in docs/operators.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.graph.expression import Integers, operate
from sw.graph.network import RowOperator, View
from sw.graph.requantise import LIMITS
from sw.graph.rowwise import by_rows

#: Elements that are added before bits are dropped; rows are padded to a multiple of it.
GROUP = 8
#: The greatest exponential: `GROUP` of them fit a signed word.
ONE = (1 << 28) - 1
#: Most elements of a row: the sum of one has 32 bits, less what is dropped.
MOST_COLUMNS = 1 << 16
#: 48/17 and 32/17 with 29 fractional bits: the line that starts the reciprocal of a number from 0.5 to 1.
START, SLOPE = round(48 / 17 * 2**29), round(32 / 17 * 2**29)
#: Steps of Newton's method behind it: relative errors 1/17, 2^-8, 2^-16, below 2^-28.
STEPS = 3
#: Fractional bits of a row's reciprocal beyond those of 1 / output scale.
_FRACTION = 27


@dataclass(frozen=True)
class Softmax(RowOperator):
    """exp(x - m) / sum of exp(x - m) over the last axis of `x`, m the row's maximum, requantised.

    `table[d]` is exp(-d * input scale) times `ONE`, d from 0 to 255. The result of an element e of the table
    in a row of sum s is e * round(2^shift / (s * output scale)) * 2^-shift, rounded half to even; `scale` is
    1 / output scale, times 2^(shift - 27). `drop` bits of every sum of `GROUP` exponentials are left out.
    """

    table: tuple[int, ...]
    drop: int
    scale: int
    shift: int
    zero: int
    result: str

    @property
    def groups(self) -> int:
        """Groups of a row, the last one padded."""
        return -(-self.columns // GROUP)

    @property
    def half(self) -> int:
        """What dropped bits amount to on average in a row."""
        return self.groups // 2 if self.drop else 0


def softmax(
    name: str,
    op: str,
    nodes: tuple[str, ...],
    output: View,
    x: View,
    *,
    element: str,
    x_scale: float,
    y_scale: float,
    y_zero: int,
    result: str,
) -> Softmax:
    """The operator for rows of `element` with a scale (their zero point does not matter).

    Raises `InputError` for scales and row lengths for which the arithmetic does not suffice.
    """
    columns = x.shape[-1]
    if not 1 <= columns <= MOST_COLUMNS:
        raise InputError(f"{name}: softmax takes rows of 1 to {MOST_COLUMNS} elements, not {columns}")
    if not 2.0**-28 <= y_scale <= 32:
        raise InputError(f"{name}: the output scale of softmax must be from 2^-28 to 32, not {y_scale:g}")
    if not (x_scale > 0 and math.isfinite(x_scale)):
        raise InputError(f"{name}: the input scale of softmax must be a positive number, not {x_scale:g}")
    table = tuple(int(v) for v in np.rint(ONE * np.exp(-np.arange(256.0) * float(x_scale))))
    groups = -(-columns // GROUP)
    fraction, exponent = math.frexp(1 / float(y_scale))
    scale = min(round(fraction * 2**31), (1 << 31) - 1)
    shift = _FRACTION + 31 - exponent
    drop = max(0, (groups - 1).bit_length() - 1)
    return Softmax(name, op, nodes, output, x, element, table, drop, scale, shift, y_zero, result)


def reference(operator: Softmax, x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """The result for the elements of the input's view, an array of the view's shape and the result's type."""
    return by_rows(operator, x, operator.result, lambda rows: _rows(operator, rows))


def _rows(operator: Softmax, x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    table = np.asarray(operator.table, np.int64)
    least, _ = LIMITS[operator.element]
    pads = operator.groups * GROUP - operator.columns
    values = np.pad(x.astype(np.int64) - least, ((0, 0), (0, pads)))
    top = values.max(axis=1, keepdims=True)
    powers = table[top - values]
    total = (powers.reshape(len(x), -1, GROUP).sum(axis=2) >> operator.drop).sum(axis=1, keepdims=True)
    total = total - ((pads * table[top]) >> operator.drop) + operator.half
    factor = reciprocal(total, operator.drop, operator.scale)
    quotient = operate("mul_shift_round_even", powers[:, : operator.columns], factor, operator.shift)
    _, high = LIMITS[operator.result]
    limited = np.minimum(quotient, high - operator.zero) + operator.zero
    return limited.astype(operator.result)


def reciprocal(total: Integers, drop: int, scale: int) -> Integers:
    """The factor of a row from the sum of its exponentials, which counts as unsigned word."""
    rounded = functools.partial(operate, "mul_shift_round")
    total = total.astype(np.int32)
    zeros = operate("clz", total)
    mantissa = operate("shr_logical", operate("shl", total, zeros), 1)
    value = START - rounded(mantissa, SLOPE, 31)
    for _ in range(STEPS):
        value = rounded(value, (1 << 30) - rounded(mantissa, value, 31), 29)
    return rounded(value, scale, drop + 34 - zeros)
