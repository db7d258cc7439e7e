"""Softmax of 8-bit numbers in integers: a table of exponentials, a reciprocal per row, one rounding.

The steps and their error bounds are in docs/operators.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from hw.errors import InputError
from hw.semantics import quantisation
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import row_operand
from sw.frontend.values import Quantisation, Structured, Value
from sw.graph.expression import Integers, operate
from sw.graph.network import View
from sw.graph.requantise import LIMITS
from sw.graph.views import transposed
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import (
    BYTES,
    GROUP,
    NEXT_ROW,
    RECORD_WORDS,
    SIGNS,
    Pass,
    loop,
    numbered,
    packed,
    packing,
    unpacked,
)
from sw.kernels.passes import Value as Scalar
from sw.operators import wide_rows
from sw.operators.registry import imports
from sw.operators.rows import Array, RowOperator, RowTile

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
        _, high = LIMITS[self.result]
        limited = np.minimum(quotient, high - self.zero) + self.zero
        return limited.astype(self.result)

    def choices(self, tile: RowTile, parameters: Scalar) -> tuple[tuple[Pass, ...], ...]:
        """Maxima, sums of exponentials, mantissas of the sums, reciprocals, results."""
        signed, (_, high) = self.element == "int8", LIMITS[self.result]
        row, last, groups = tile.records // 4, tile.last(GROUP), tile.groups(GROUP)
        scalars: dict[str, Scalar] = {
            **dict.fromkeys(("row", "late", *_AGAIN), row),
            "x": tile.x // 4,
            "y": tile.out // 4,
            "left": last,
            "last": last,
            "next": _WORDS + tile.gap,
            "flip": SIGNS if signed else 0,
            "pads": self.groups * GROUP - self.columns,
            "whole": tile.pitch // GROUP - self.groups,
            "drop": self.drop,
            "half": self.half,
            "base": self.drop + 34,
            "scale": self.scale,
            "shift": self.shift,
            "most": high - self.zero,
            **packing(self.zero, self.result),
        }
        inverted = {**scalars, "flip": 0 if signed else SIGNS}
        x, state, both = (tile.input,), (tile.state,), (tile.input, tile.state)
        padded = tile.pitch > self.groups * GROUP
        wide = self._with_lanes(tile, scalars)
        return (
            (Pass(maxima(), groups, inverted, x, state), *wide[0]),
            (Pass(sums(self.table), groups, scalars, both, state), *wide[1]),
            (
                Pass(
                    mantissas(self.table, padded), tile.rows, scalars, state, state
                ),
            ),
            (Pass(reciprocals(), tile.rows, scalars, state, state),),
            (Pass(results(self.table, tile.gap > 0), groups, scalars, both, (tile.results,)), *wide[2]),
        )

    def _with_lanes(self, tile: RowTile, scalars: dict[str, Scalar]) -> tuple[list[Pass], ...]:
        """Loops that use lanes: for the maxima, the sums, the results."""
        x, state, out = (tile.input,), (tile.state,), (tile.results,)
        low, high = LIMITS[self.result]
        found: tuple[list[Pass], ...] = ([], [], [])
        for block in tile.blocks:
            shape, groups, last = (tile.lanes, block), tile.groups(block), tile.last(block)
            own = {
                **scalars,
                "x": tile.x,
                "y": tile.out,
                "left": last,
                "last": last,
                "next": block + 4 * tile.gap,
                "how": quantisation(self.shift, self.zero, low, high),
            }
            found[0].append(Pass(wide_rows.maxima(self.element, *shape), groups, own, x, state))
            if GROUP % tile.lanes == 0:
                sums = wide_rows.exponential_sums(self.table, self.element, *shape)
                found[1].append(Pass(sums, groups, own, (*x, *state), state))
            results = wide_rows.softmax_results(self.table, self.element, self.result, *shape, tile.gap > 0)
            found[2].append(Pass(results, groups, own, (*x, *state), out))
        return found


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
    if not 2.0**-28 <= y_scale <= 32:
        raise InputError(f"{name}: the output scale of softmax must be from 2^-28 to 32, not {y_scale:g}")
    table = tuple(int(v) for v in np.rint(ONE * np.exp(-np.arange(256.0) * float(x_scale))))
    groups = -(-columns // GROUP)
    fraction, exponent = math.frexp(1 / float(y_scale))
    scale = min(round(fraction * 2**31), (1 << 31) - 1)
    shift = _FRACTION + 31 - exponent
    drop = max(0, (groups - 1).bit_length() - 1)
    return Softmax(name, op, nodes, output, x, element, table, drop, scale, shift, y_zero, result)


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


#: Words of a record: the maximum in four bytes; the running sum; mantissa of the sum, then factor; shift.
_TOP, _SUM, _FACTOR, _SHIFT = (
    Stream(n, "out", "int32", 4 * i) for i, n in enumerate(("top", "sum", "factor", "shift"))
)
_WORDS = GROUP // 4
#: Indices of a row's record for the steps of a reciprocal and what follows.
_AGAIN = numbered("row", STEPS + 1)


def _inputs() -> tuple[Stream, ...]:
    """The words of a group."""
    return tuple(Stream(name, "scratch", "int32", 4 * i) for i, name in enumerate(numbered("a", _WORDS)))


def _outside(table: tuple[int, ...]) -> str:
    return f"TABLE = ({', '.join(map(str, table))})\n\n\n"


@functools.cache
def maxima() -> GridKernel:
    """The maximum of every row. It compares whole words, since lower bytes cannot change the result."""
    lines, found = [], []
    for k in range(_WORDS):
        lines.append(f"p{k} = a{k}[x] ^ flip")
        found.append(f"max(max(p{k}, p{k} << 8), max(p{k} << 16, p{k} << 24))")
    lines += [
        f"x = x + {_WORDS}",
        f"most = max(most, max({', '.join(found)}))",
        f"top[row] = ((most >> 24) + 128) * {BYTES}",
        "most = most if left else LEAST",
    ]
    return loop(
        "row_maxima",
        (*_inputs(), _TOP),
        ("row", "x", "left", "last", "flip"),
        "\n".join(lines) + NEXT_ROW,
        "most = LEAST",
        "LEAST = -2147483648\n\n\n",
        GROUP,
    )


@functools.lru_cache(maxsize=64)
def sums(table: tuple[int, ...]) -> GridKernel:
    """The sum of all rows' exponentials so far, at the end of every row."""
    lines, found = ["greatest = top[row]"], []
    for k in range(_WORDS):
        lines.append(f"p{k} = greatest - (a{k}[x] ^ flip)")
        a, b, c, d = (f"TABLE[{i}]" for i in unpacked(f"p{k}"))
        found.append(f"(({a} + {b}) + ({c} + {d}))")
    lines += [f"x = x + {_WORDS}", f"total = total + (({' + '.join(found)}) >> drop)", "sum[row] = total"]
    return loop(
        "exponential_sums",
        (*_inputs(), _TOP, _SUM),
        ("row", "x", "left", "last", "flip", "drop"),
        "\n".join(lines) + NEXT_ROW,
        "total = 0",
        _outside(table),
        GROUP,
    )


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
        (_TOP, _SUM, _FACTOR, _SHIFT),
        ("row", "late", "pads", *["whole"] * padded, "drop", "half", "base"),
        body,
        "before = 0",
        _outside(table),
    )


@functools.cache
def reciprocals() -> GridKernel:
    """The factor of every row.

    The mantissa is loaded again for every step, by other indices: values that live for many steps would fill
    the registers.
    """
    again = _AGAIN
    early = tuple(Stream(name, "out", "int32", 8) for name in numbered("mantissa", STEPS))
    lines = [f"value = {START} - mul_shift_round(mantissa0[row0], {SLOPE}, 31)"]
    for k in range(STEPS):
        product = f"mul_shift_round(mantissa{k}[row{k}], value, 31)"
        lines.append(f"value = mul_shift_round(value, {1 << 30} - {product}, 29)")
    lines.append(f"factor[{again[-1]}] = mul_shift_round(value, scale, shift[{again[-1]}])")
    lines += [f"{index} = {index} + {RECORD_WORDS}" for index in again]
    return loop("sum_reciprocals", (*early, _SHIFT, _FACTOR), (*again, "scale"), "\n".join(lines))


@functools.lru_cache(maxsize=64)
def results(table: tuple[int, ...], gap: bool = False) -> GridKernel:
    """All results, four to a word; with a gap, each row starts `next` words after the last results."""
    lines = ["greatest = top[row]", "multiplier = factor[row]"]
    for k in range(_WORDS):
        lines.append(f"p{k} = greatest - (a{k}[x] ^ flip)")
        found = [f"min(mul_shift_round_even(TABLE[{i}], multiplier, shift), most)" for i in unpacked(f"p{k}")]
        lines.append(f"y{k}[y] = {packed(found)}")
    step = f"({_WORDS} if left else next)" if gap else f"{_WORDS}"
    lines += [f"x = x + {_WORDS}", f"y = y + {step}"]
    out = tuple(Stream(name, "out", "int32", 4 * i) for i, name in enumerate(numbered("y", _WORDS)))
    scalars = ("row", "x", "y", "left", "last", "flip", "shift", "most", "bias", "sign", *(["next"] * gap))
    return loop(
        "softmax_results",
        (*_inputs(), _TOP, _FACTOR, *out),
        scalars,
        "\n".join(lines) + NEXT_ROW,
        "",
        _outside(table),
        GROUP,
    )


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
        importer.operators.append(softmax(node.name, node.op, grid.nodes(node), rows, view, **scales))
        return output

    return Structured(node, value.shape, make)
