"""Softmax over an axis whose neighbours are not adjacent in memory: arithmetic that lanes can do.

Lanes neither shift nor count leading zeros. So exponentials are small enough for a sum without dropped bits,
and its reciprocal needs no normalisation. Rows give the same results on machines without lanes. The steps and
their error bounds are in docs/operators.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from hw.semantics import quantisation
from sw.graph.expression import Integers, operate
from sw.graph.network import View
from sw.graph.requantise import LIMITS
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import RECORD_WORDS, Pass, loop, numbered
from sw.kernels.passes import Value as Scalar
from sw.operators.rows import Array, RowTile
from sw.operators.softmax_rows import (
    FACTOR,
    SUM,
    TOP,
    SoftmaxRows,
    check_scale,
    exponentials,
    outside,
)

#: Bits of a sum of 31 that select the first guess of its reciprocal, at most: guesses are a byte.
_GUESS = 8
#: Most elements of a column, so that the highest bits of no sum are 0.
MOST_ELEMENTS = 1 << _GUESS


def by_columns(x: View, output: View) -> bool:
    """Whether softmax over the last axis is that of columns: short, with neighbours along another axis."""
    return 1 < x.shape[-1] <= MOST_ELEMENTS and x.strides[-1] != 1 and column_axis(x, output) is not None


def column_axis(x: View, output: View) -> int | None:
    """The axis, not the last, along which elements are adjacent in both views; None if there is none."""
    strides = {a: (x.strides[a], output.strides[a]) for a, n in enumerate(x.shape) if n > 1}
    if any(min(own) < 1 for own in strides.values()):
        return None
    return next((a for a, own in strides.items() if own == (1, 1) and a != len(x.shape) - 1), None)


@dataclass(frozen=True)
class ColumnSoftmax(SoftmaxRows):
    """Softmax of at most `MOST_ELEMENTS` elements, whose exponentials add up to less than 2^31.

    A factor is 2^`bits` / sum. The numerator of an element is its exponential over the output scale, times a
    power of two.
    """

    numbers: tuple[int, ...]

    @property
    def numerators(self) -> tuple[int, ...]:
        """Numerators of results, by m - x."""
        return self.numbers

    @property
    def inverse(self) -> Inverse:
        """How sums become factors."""
        return Inverse(self.columns)

    @property
    def how(self) -> int:
        """The packed operand for the quantisation of results."""
        return quantisation(self.shift, self.zero, *LIMITS[self.result])

    def on_rows(self, x: Array) -> Array:
        """The results of rows."""
        values = x.astype(np.int64)
        behind = values.max(axis=1, keepdims=True) - values
        total = np.asarray(self.table, np.int64)[behind].sum(axis=1, keepdims=True)
        numerators = np.asarray(self.numbers, np.int64)[behind]
        return self.finished(
            operate("mul_shift_round_even", numerators, self.inverse.factors(total), self.shift)
        )

    def factors(self, tile: RowTile, scalars: dict[str, Scalar]) -> tuple[Pass, ...]:
        """The sums of single rows, and their reciprocals."""
        inverse, row, state = self.inverse, tile.records // 4, (tile.state,)
        own = {**scalars, "by": inverse.by, **dict.fromkeys(numbered("row", inverse.steps + 1), row)}
        return (
            Pass(single_sums(self.table), tile.rows, own, state, state),
            Pass(guessed_reciprocals(self.columns), tile.rows, own, state, state),
        )


@dataclass(frozen=True)
class Inverse:
    """Reciprocals, with `bits` fractional bits, of sums of this many exponentials."""

    count: int

    @property
    def one(self) -> int:
        """The largest exponential; a sum has one of these, and at most `count`."""
        return ((1 << 31) - 1) // self.count

    @property
    def bits(self) -> int:
        """Fractional bits, with which no reciprocal exceeds 2^30 by more than a few units."""
        return 61 - max(3, (self.count - 1).bit_length())

    @property
    def by(self) -> int:
        """The shift with which a sum times its reciprocal is 2^29."""
        return self.bits - 29

    @property
    def below(self) -> int:
        """Number of a sum's bits that do not select the guess: as many as cost no further step."""
        return next(b for b in range(30, 0, -1) if self._steps(b) == self._steps(31 - _GUESS))

    @property
    def steps(self) -> int:
        """Newton steps that make the error of any guess less than 2^-28."""
        return self._steps(self.below)

    def _steps(self, below: int) -> int:
        smallest = (self.one + (1 << below - 1)) >> below
        # The guess is off by half a unit, or by a unit of the greatest; a step squares the relative error.
        return math.ceil(math.log2(28 / math.log2(min(2 * smallest, 1 << 31 - below)))) if smallest else 32

    @property
    def guesses(self) -> tuple[int, ...]:
        """First guesses by the highest bits of a sum, rounded; those of smaller sums are not used."""
        most = (1 << 31) - 1
        return tuple(
            min((1 << self.bits - self.below) // max(i, 1), most) for i in range(1 << 31 - self.below)
        )

    @property
    def how(self) -> int:
        """The packed operand with which `requantise` takes the highest bits of a sum."""
        return quantisation(self.below, 0, 0, len(self.guesses) - 1)

    def factors(self, total: Integers) -> Integers:
        """The reciprocals of sums."""
        guesses = np.asarray(self.guesses, np.int64)
        value: Integers = guesses[np.minimum((total + (1 << self.below - 1)) >> self.below, len(guesses) - 1)]
        for _ in range(self.steps):
            error = (1 << 30) - operate("mul_shift_round", total, value, self.by)
            value = operate("mul_shift_round", value, error, 29)
        return value


def column_softmax(
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
) -> ColumnSoftmax:
    """The operator for columns of `element` with a scale (the zero point does not matter).

    Raises `InputError` if the arithmetic does not suffice for a scale.
    """
    check_scale(name, y_scale)
    inverse = Inverse(x.shape[-1])
    table = exponentials(inverse.one, x_scale)
    wanted = inverse.one / float(y_scale)
    # At most 31 bits for numerators, and a shift of at most 63.
    exponent = max(math.frexp(wanted)[1] - 31, inverse.bits - 63)
    numbers = tuple(min(n, (1 << 31) - 1) for n in exponentials(math.ldexp(wanted, -exponent), x_scale))
    shift = inverse.bits - exponent
    return ColumnSoftmax(name, op, nodes, output, x, element, table, 0, shift, y_zero, result, numbers)


@functools.lru_cache(maxsize=64)
def single_sums(table: tuple[int, ...]) -> GridKernel:
    """The sum of every row, from the running sums."""
    body = f"""
total = sum[row]
factor[late] = total - before - TABLE[top[row] & 255] * pads
before = total
row = row + {RECORD_WORDS}
late = late + {RECORD_WORDS}
"""
    return loop(
        "single_sums", (TOP, SUM, FACTOR), ("row", "late", "pads"), body, "before = 0", outside(table)
    )


@functools.cache
def guessed_reciprocals(count: int) -> GridKernel:
    """The factor of every row. The sum is loaded again for every step, by other indices."""
    inverse = Inverse(count)
    again = numbered("row", inverse.steps + 1)
    sums = tuple(Stream(name, "out", "int32", FACTOR.offset) for name in numbered("sum", len(again)))
    highest = f"shift_right_logical(sum0[row0] + {1 << inverse.below - 1}, {inverse.below})"
    lines = [f"value = TABLE[min({highest}, {len(inverse.guesses) - 1})]"]
    for k in range(1, len(again)):
        product = f"mul_shift_round(sum{k}[row{k}], value, by)"
        lines.append(f"value = mul_shift_round(value, {1 << 30} - {product}, 29)")
    lines.append("factor[late] = value")
    lines += [f"{index} = {index} + {RECORD_WORDS}" for index in (*again, "late")]
    return loop(
        f"guessed_reciprocals_{inverse.steps}",
        (*sums, FACTOR),
        (*again, "late", "by"),
        "\n".join(lines),
        "",
        outside(inverse.guesses),
    )
