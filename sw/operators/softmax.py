"""Softmax of 8-bit numbers in integers: a table of exponentials, a reciprocal per row, one rounding.

The steps and their error bounds are in docs/operators.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from hw.errors import InputError
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import row_operand
from sw.frontend.values import Quantisation, Structured, Value
from sw.graph.expression import Integers, operate
from sw.graph.network import View
from sw.graph.requantise import LIMITS
from sw.graph.views import transposed
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import GROUP, RECORD_WORDS, Pass, loop, numbered
from sw.kernels.passes import Value as Scalar
from sw.operators.column_softmax import by_columns, column_softmax
from sw.operators.registry import imports
from sw.operators.rows import Array, RowTile
from sw.operators.softmax_rows import FACTOR, SHIFT, SUM, TOP, SoftmaxRows, check_scale, exponentials, outside

#: The largest exponential: `GROUP` of them fit a signed word.
ONE = (1 << 28) - 1
#: Most elements of a row, so that the sum fits 32 bits after bits are dropped.
MOST_COLUMNS = 1 << 16
#: 48/17 and 32/17 with 29 fractional bits: the initial line for the reciprocal of a number from 0.5 to 1.
START, SLOPE = round(48 / 17 * 2**29), round(32 / 17 * 2**29)
#: Newton steps after it; relative errors are 1/17, 2^-8, 2^-16, below 2^-28.
STEPS = 3
#: Fractional bits of a row's reciprocal beyond those of 1 / output scale.
_FRACTION = 27


@dataclass(frozen=True)
class Softmax(SoftmaxRows):
    """Softmax of rows of any length.

    Sums are normalised to 31 bits. The result of an element e of the table in a row of sum s is
    e * round(2^shift / (s * output scale)) * 2^-shift, rounded half to even; `scale` is 1 / output scale,
    times 2^(shift - 27). `drop` bits of every sum of `GROUP` exponentials are left out.
    """

    scale: int

    @property
    def numerators(self) -> tuple[int, ...]:
        """The exponentials themselves."""
        return self.table

    @property
    def groups(self) -> int:
        """Groups per row, including a padded last one."""
        return -(-self.columns // GROUP)

    @property
    def half(self) -> int:
        """The average contribution of dropped bits in a row."""
        return self.groups // 2 if self.drop else 0

    def on_rows(self, x: Array) -> Array:
        """The results of rows."""
        table = np.asarray(self.table, np.int64)
        least, _ = LIMITS[self.element]
        pads = self.groups * GROUP - self.columns
        values = np.pad(x.astype(np.int64) - least, ((0, 0), (0, pads)))
        top = values.max(axis=1, keepdims=True)
        powers = table[top - values]
        total = (powers.reshape(len(x), -1, GROUP).sum(axis=2) >> self.drop).sum(axis=1, keepdims=True)
        total = total - ((pads * table[top]) >> self.drop) + self.half
        factor = reciprocal(total, self.drop, self.scale)
        quotient = operate("mul_shift_round_even", powers[:, : self.columns], factor, self.shift)
        return self.finished(quotient)

    def factors(self, tile: RowTile, scalars: dict[str, Scalar]) -> tuple[Pass, ...]:
        """Mantissas of the sums, and their reciprocals."""
        row, whole = tile.records // 4, tile.pitch // GROUP - self.groups
        own = {**scalars, **dict.fromkeys(AGAIN, row), "half": self.half, "base": self.drop + 34}
        own |= {"scale": self.scale, "pads": self.groups * GROUP - self.columns, "whole": whole}
        state = (tile.state,)
        return (
            Pass(mantissas(self.table, whole > 0), tile.rows, own, state, state),
            Pass(reciprocals(), tile.rows, own, state, state),
        )


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
    """The operator for rows of `element` with a scale (the zero point does not matter).

    Raises `InputError` if the arithmetic does not suffice for a scale or a row length.
    """
    columns = x.shape[-1]
    if not 1 <= columns <= MOST_COLUMNS:
        raise InputError(f"{name}: softmax takes rows of 1 to {MOST_COLUMNS} elements, not {columns}")
    check_scale(name, y_scale)
    table = exponentials(ONE, x_scale)
    groups = -(-columns // GROUP)
    fraction, exponent = math.frexp(1 / float(y_scale))
    scale = min(round(fraction * 2**31), (1 << 31) - 1)
    shift = _FRACTION + 31 - exponent
    drop = max(0, (groups - 1).bit_length() - 1)
    return Softmax(name, op, nodes, output, x, element, table, drop, shift, y_zero, result, scale)


def reciprocal(total: Integers, drop: int, scale: int) -> Integers:
    """The factor of a row from the sum of its exponentials, an unsigned word."""
    rounded = functools.partial(operate, "mul_shift_round")
    total = total.astype(np.int32)
    zeros = operate("clz", total)
    mantissa = operate("shr_logical", operate("shl", total, zeros), 1)
    value = START - rounded(mantissa, SLOPE, 31)
    for _ in range(STEPS):
        value = rounded(value, (1 << 30) - rounded(mantissa, value, 31), 29)
    return rounded(value, scale, drop + 34 - zeros)


#: Indices of a row's record for the steps of a reciprocal and what follows.
AGAIN = numbered("row", STEPS + 1)


@functools.lru_cache(maxsize=64)
def mantissas(table: tuple[int, ...], padded: bool) -> GridKernel:
    """The sum of every row as a 31-bit mantissa, and the shift for its reciprocal.

    With `padded`, rows end with `whole` groups of padding; there are `pads` more in the group before.
    """
    groups = f" - ((pad * {GROUP}) >> drop) * whole" * padded
    body = f"""
total = sum[row]
pad = TABLE[top[row] & 255]
own = total - before - ((pad * pads) >> drop){groups} + half
before = total
zeros = clz(own)
factor[late] = shift_right_logical(own << zeros, 1)
shift[late] = base - zeros
row = row + {RECORD_WORDS}
late = late + {RECORD_WORDS}
"""
    return loop(
        "sum_mantissas",
        (TOP, SUM, FACTOR, SHIFT),
        ("row", "late", "pads", *["whole"] * padded, "drop", "half", "base"),
        body,
        "before = 0",
        outside(table),
    )


@functools.cache
def reciprocals() -> GridKernel:
    """The factor of every row.

    The mantissa is loaded again for every step, by other indices: values that live for many steps would fill
    the registers.
    """
    early = tuple(Stream(name, "out", "int32", 8) for name in numbered("mantissa", STEPS))
    lines = [f"value = {START} - mul_shift_round(mantissa0[row0], {SLOPE}, 31)"]
    for k in range(STEPS):
        product = f"mul_shift_round(mantissa{k}[row{k}], value, 31)"
        lines.append(f"value = mul_shift_round(value, {1 << 30} - {product}, 29)")
    lines.append(f"factor[{AGAIN[-1]}] = mul_shift_round(value, scale, shift[{AGAIN[-1]}])")
    lines += [f"{index} = {index} + {RECORD_WORDS}" for index in AGAIN]
    return loop("sum_reciprocals", (*early, SHIFT, FACTOR), (*AGAIN, "scale"), "\n".join(lines))


@imports("Softmax")
def _import(importer: Importer, node: OnnxNode) -> Value:
    value = row_operand(importer, node)
    rank = len(value.shape)
    old = int(node.attributes.get("opset", importer.model.opset)) < 13
    axis = node.axis(int(node.attributes.get("axis", 1 if old else -1)), rank)
    if old and math.prod(value.shape[axis:]) != value.shape[-1]:
        raise node.error(f"before opset 13, a row spans all axes from {axis} on; it must be the last")
    axis = rank - 1 if old else axis
    last = [a for a in range(rank) if a != axis] + [axis]
    view = transposed(value.view, last)

    def make(name: str, grid: Quantisation) -> View:
        output = importer.tensor(name, value.shape, grid.element)
        rows = transposed(output, last)
        scales = grid.scales(value)
        define = column_softmax if by_columns(view, rows) else softmax
        importer.operators.append(define(node.name, node.op, grid.nodes(node), rows, view, **scales))
        return output

    return Structured(node, value.shape, make)
