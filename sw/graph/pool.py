"""Maximum and average over windows of an image, in whole numbers.

The steps and what they equal are in docs/operators.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.graph.expression import Integers, operate
from sw.graph.network import Operator, View
from sw.graph.requantise import LIMITS
from sw.patches import Axis

#: Most pixels of a window: their sum is a signed word.
MOST_PIXELS = 1 << 22
#: Bits behind the point of an average before it is rounded to a whole number.
_MOST_ROUNDING, _LEAST_ROUNDING = 18, 4


@dataclass(frozen=True)
class Pool(Operator):
    """y[n, c, r, s] = maximum or average of the window of `x` [images, channels, rows, columns] at (r, s).

    Pixels outside of the image are `fill`: for a maximum the least number of the type, for an average the
    zero point. An average is (sum of the window - `fill` * window size) * `factors[r][s]`, shifted right by
    `shift`; of that, `rounding` bits are rounded off, half to even, before `zero` is added. `factors` is
    2^(`shift` + `rounding`) * input scale / (output scale * pixels that count), one row and column for all
    where all are equal.
    """

    x: View
    rows: Axis
    cols: Axis
    kind: Literal["max", "average"]
    element: str
    fill: int
    factors: tuple[tuple[int, ...], ...] = ((1,),)
    shift: int = 0
    rounding: int = 0
    zero: int = 0
    result: str = "int8"

    @property
    def inputs(self) -> tuple[View, ...]:
        """The images."""
        return (self.x,)

    @property
    def window(self) -> int:
        """Pixels of a window."""
        return self.rows.kernel * self.cols.kernel

    @property
    def bias(self) -> int:
        """What is added to the sum of a window, padding and all."""
        return -self.fill * self.window if self.kind == "average" else 0


def max_pool(
    name: str, op: str, nodes: tuple[str, ...], output: View, x: View, rows: Axis, cols: Axis, *, element: str
) -> Pool:
    """The greatest element of every window; the result has the type, scale and zero point of the input."""
    _check(name, x, output, rows, cols)
    return Pool(name, op, nodes, output, x, rows, cols, "max", element, LIMITS[element][0], result=element)


def average_pool(
    name: str,
    op: str,
    nodes: tuple[str, ...],
    output: View,
    x: View,
    rows: Axis,
    cols: Axis,
    *,
    element: str,
    x_scale: float,
    x_zero: int,
    y_scale: float,
    y_zero: int,
    result: str,
    include_pad: bool = False,
    uncounted: tuple[int, int] = (0, 0),
) -> Pool:
    """The average of every window.

    Without `include_pad` only pixels of the image count. With it, padding counts too, except the last
    `uncounted` rows and columns of it (those that a rounding up of the output's size adds). An average over
    whole rows of a matrix is one with a window as large as the image.
    """
    _check(name, x, output, rows, cols)
    for what, scale in (("input", x_scale), ("output", y_scale)):
        if not (scale > 0 and math.isfinite(scale)):
            raise InputError(f"{name}: the {what} scale must be a positive number, not {scale:g}")
    counts = np.outer(
        _counts(rows, include_pad, uncounted[0]), _counts(cols, include_pad, uncounted[1])
    ).astype(np.int64)
    if (counts == counts[0, 0]).all():
        counts = counts[:1, :1]
    ratio = Fraction(float(x_scale)) / Fraction(float(y_scale))
    reach = 256 * float(ratio)
    rounding = min(_MOST_ROUNDING, 30 - math.frexp(reach)[1])
    if rounding < _LEAST_ROUNDING:
        raise InputError(
            f"{name}: the input scale must be at most {2.0 ** (22 - _LEAST_ROUNDING):g} times the output "
            f"scale, not {float(ratio):g} times"
        )
    least = max(1, int(counts[counts > 0].min(initial=rows.kernel * cols.kernel)))
    bits = min(31 - math.frexp(float(ratio / least) * (1 + 2.0**-31))[1], 63 + rounding)
    factors = tuple(
        tuple(round(ratio / int(c) * Fraction(2) ** bits) if c else 0 for c in row) for row in counts
    )
    return Pool(
        name,
        op,
        nodes,
        output,
        x,
        rows,
        cols,
        "average",
        element,
        x_zero,
        factors,
        bits - rounding,
        rounding,
        y_zero,
        result,
    )


def _check(name: str, x: View, output: View, rows: Axis, cols: Axis) -> None:
    expected = (*x.shape[:2], rows.outputs, cols.outputs)
    if len(x.shape) != 4 or x.shape[2:] != (rows.size, cols.size) or output.shape != expected:
        raise InputError(
            f"{name}: images of {rows.size} x {cols.size} must give {expected}, "
            f"the shapes are {x.shape} and {output.shape}"
        )
    if not 1 <= rows.kernel * cols.kernel <= MOST_PIXELS:
        raise InputError(
            f"{name}: a window must have at most {MOST_PIXELS} pixels, not {rows.kernel * cols.kernel}"
        )


def _counts(axis: Axis, include_pad: bool, uncounted: int) -> Integers:
    """By place of the window: how many of its rows (columns) count."""
    place = np.arange(axis.outputs)[:, None] * axis.stride + np.arange(axis.kernel) * axis.dilation
    low, high = (
        (0, axis.before + axis.size + axis.after - uncounted)
        if include_pad
        else (
            axis.before,
            axis.before + axis.size,
        )
    )
    counted: Integers = ((place >= low) & (place < high)).sum(axis=1).astype(np.int64)
    return counted


def reference(operator: Pool, x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """The result for the elements of the input's view, an array of the output's shape and type."""
    rows, cols = operator.rows, operator.cols
    pads = ((0, 0), (0, 0), (rows.before, rows.after), (cols.before, cols.after))
    image = np.pad(x, pads, constant_values=np.asarray(operator.fill, x.dtype))
    windows = np.lib.stride_tricks.sliding_window_view(image, (rows.reach, cols.reach), (2, 3))
    windows = windows[:, :, :: rows.stride, :: cols.stride, :: rows.dilation, :: cols.dilation]
    if operator.kind == "max":
        found: npt.NDArray[np.generic] = windows.max(axis=(4, 5))
        return found
    total = windows.sum(axis=(4, 5), dtype=np.int64) + operator.bias
    scaled = operate("mul_shift_round", total, np.asarray(operator.factors), operator.shift)
    rounded = operate("mul_shift_round_even", scaled, 1, operator.rounding) + operator.zero
    return np.clip(rounded, *LIMITS[operator.result]).astype(operator.result)
