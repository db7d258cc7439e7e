"""Softmax of rows: the launches that every definition of it shares.

The steps and their error bounds are in docs/operators.md.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from hw.errors import InputError
from hw.semantics import quantisation
from sw.graph.expression import Integers
from sw.graph.requantise import LIMITS
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import (
    BYTES,
    GROUP,
    NEXT_ROW,
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
from sw.operators.rows import Array, RowOperator, RowTile

#: Words of a record: the maximum in four bytes; the running sum; mantissa of the sum, then factor; shift.
TOP, SUM, FACTOR, SHIFT = (
    Stream(n, "out", "int32", 4 * i) for i, n in enumerate(("top", "sum", "factor", "shift"))
)
WORDS = GROUP // 4


@dataclass(frozen=True)
class SoftmaxRows(RowOperator):
    """What all definitions of softmax share: exp(x - m) / sum of exp(x - m) over the last axis, requantised.

    m is a row's maximum. `table[d]` is exp(-d * input scale) times a constant, d from 0 to 255. These are
    summed up; `drop` bits of every sum of `GROUP` of them are left out. A subclass turns the sum of a row
    into the row's factor. A result is an element's numerator times that factor, with `shift` fractional bits.
    """

    table: tuple[int, ...]
    drop: int
    shift: int
    zero: int
    result: str

    @property
    @abstractmethod
    def numerators(self) -> tuple[int, ...]:
        """Numerators of results, by m - x."""

    @abstractmethod
    def factors(self, tile: RowTile, scalars: dict[str, Scalar]) -> tuple[Pass, ...]:
        """The launches that turn the running sums in the records into factors."""

    def finished(self, quotient: Integers) -> Array:
        """The results: rounded quotients with the zero point, limited to the type."""
        _, high = LIMITS[self.result]
        return (np.minimum(quotient, high - self.zero) + self.zero).astype(self.result)

    def choices(self, tile: RowTile, parameters: Scalar) -> tuple[tuple[Pass, ...], ...]:
        """Maxima, sums of exponentials, two launches from sums to factors, results."""
        signed, (_, high) = self.element == "int8", LIMITS[self.result]
        row, last, groups = tile.records // 4, tile.last(GROUP), tile.groups(GROUP)
        scalars: dict[str, Scalar] = {
            "row": row,
            "late": row,
            "x": tile.x // 4,
            "y": tile.out // 4,
            "left": last,
            "last": last,
            "next": WORDS + tile.gap,
            "flip": SIGNS if signed else 0,
            "pads": tile.pitch - self.columns,
            "drop": self.drop,
            "shift": self.shift,
            "most": high - self.zero,
            **packing(self.zero, self.result),
        }
        inverted = {**scalars, "flip": 0 if signed else SIGNS}
        x, state, both = (tile.input,), (tile.state,), (tile.input, tile.state)
        wide = self._with_lanes(tile, scalars)
        return (
            (Pass(maxima(), groups, inverted, x, state), *wide[0]),
            (Pass(sums(self.table), groups, scalars, both, state), *wide[1]),
            *((one,) for one in self.factors(tile, scalars)),
            (Pass(results(self.numerators, tile.gap > 0), groups, scalars, both, (tile.results,)), *wide[2]),
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
            results = wide_rows.softmax_results(
                self.numerators, self.element, self.result, *shape, tile.gap > 0
            )
            found[2].append(Pass(results, groups, own, (*x, *state), out))
        return found


def check_scale(name: str, y_scale: float) -> None:
    """Raises `InputError` if the arithmetic does not suffice for an output scale."""
    if not 2.0**-28 <= y_scale <= 32:
        raise InputError(f"{name}: the output scale of softmax must be from 2^-28 to 32, not {y_scale:g}")


def exponentials(one: float, x_scale: float) -> tuple[int, ...]:
    """exp(-d * x_scale) times `one`, rounded, for d from 0 to 255."""
    return tuple(int(v) for v in np.rint(one * np.exp(-np.arange(256.0) * float(x_scale))))


def _inputs() -> tuple[Stream, ...]:
    """The words of a group."""
    return tuple(Stream(name, "scratch", "int32", 4 * i) for i, name in enumerate(numbered("a", WORDS)))


def outside(table: tuple[int, ...]) -> str:
    """The table of a loop, for the text before its function."""
    return f"TABLE = ({', '.join(map(str, table))})\n\n\n"


@functools.cache
def maxima() -> GridKernel:
    """The maximum of every row. It compares whole words, since lower bytes cannot change the result."""
    lines, found = [], []
    for k in range(WORDS):
        lines.append(f"p{k} = a{k}[x] ^ flip")
        found.append(f"max(max(p{k}, p{k} << 8), max(p{k} << 16, p{k} << 24))")
    lines += [
        f"x = x + {WORDS}",
        f"most = max(most, max({', '.join(found)}))",
        f"top[row] = ((most >> 24) + 128) * {BYTES}",
        "most = most if left else LEAST",
    ]
    return loop(
        "row_maxima",
        (*_inputs(), TOP),
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
    for k in range(WORDS):
        lines.append(f"p{k} = greatest - (a{k}[x] ^ flip)")
        a, b, c, d = (f"TABLE[{i}]" for i in unpacked(f"p{k}"))
        found.append(f"(({a} + {b}) + ({c} + {d}))")
    lines += [f"x = x + {WORDS}", f"total = total + (({' + '.join(found)}) >> drop)", "sum[row] = total"]
    return loop(
        "exponential_sums",
        (*_inputs(), TOP, SUM),
        ("row", "x", "left", "last", "flip", "drop"),
        "\n".join(lines) + NEXT_ROW,
        "total = 0",
        outside(table),
        GROUP,
    )


@functools.lru_cache(maxsize=64)
def results(table: tuple[int, ...], gap: bool = False) -> GridKernel:
    """All results, four to a word; with a gap, each row starts `next` words after the last results."""
    lines = ["greatest = top[row]", "multiplier = factor[row]"]
    for k in range(WORDS):
        lines.append(f"p{k} = greatest - (a{k}[x] ^ flip)")
        found = [f"min(mul_shift_round_even(TABLE[{i}], multiplier, shift), most)" for i in unpacked(f"p{k}")]
        lines.append(f"y{k}[y] = {packed(found)}")
    step = f"({WORDS} if left else next)" if gap else f"{WORDS}"
    lines += [f"x = x + {WORDS}", f"y = y + {step}"]
    out = tuple(Stream(name, "out", "int32", 4 * i) for i, name in enumerate(numbered("y", WORDS)))
    scalars = ("row", "x", "y", "left", "last", "flip", "shift", "most", "bias", "sign", *(["next"] * gap))
    return loop(
        "softmax_results",
        (*_inputs(), TOP, FACTOR, *out),
        scalars,
        "\n".join(lines) + NEXT_ROW,
        "",
        outside(table),
        GROUP,
    )
