"""Loops of softmax by columns: every lane has a column of its own, with its maximum, sum and reciprocal.

The axis is down the rows of a tile. An iteration takes a block: some rows of as many neighbouring columns
as there are lanes. Iterations go down the rows, then on to the next columns. Indices of byte arrays are in
bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hw.fabric.layout import ARRAYS
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import balanced, loop, numbered
from sw.operators.column_softmax import Inverse
from sw.operators.softmax_rows import outside

#: Most rows of an iteration, and of one of `sums`, which has two arrays per row and three more.
MOST, MOST_SUMMED = 8, (ARRAYS - 3) // 2
#: Rows of an iteration of `results` that have arrays of their own; further ones share these.
_NEAR = 4


@dataclass(frozen=True)
class Block:
    """What an iteration takes of columns of `count` elements: at most `most` rows, so that none remain."""

    count: int
    lanes: int
    most: int

    @property
    def rows(self) -> int:
        """Rows per iteration."""
        return max(n for n in range(1, min(self.count, self.most) + 1) if self.count % n == 0)

    @property
    def elements(self) -> int:
        """Elements per iteration."""
        return self.rows * self.lanes

    @property
    def iterations(self) -> int:
        """Iterations down a column."""
        return self.count // self.rows

    @property
    def mask(self) -> list[str]:
        """Lines for a mask that is 0 in the last iteration of a column, -1 before: few PEs have selects."""
        return [f"inside = (place == {self.iterations - 1}) - 1", "place = (place + 1) & inside"]

    def next(self, index: str, pitch: int) -> str:
        """The index of the next block; rows are `pitch` bytes apart, or 0 for one record per column."""
        back = self.count * pitch - self.lanes
        return f"{index} = {index} + {self.rows * pitch - back} + (inside & {back})"


def indices(count: int) -> tuple[str, ...]:
    """The indices of `reciprocals`: one to load a sum for every step, and one to store."""
    return numbered("word", Inverse(count).steps + 2)


def _rows(name: str, space: str, element: str, rows: int, pitch: int) -> tuple[Stream, ...]:
    """One array for every row of a block."""
    return tuple(Stream(n, space, element, pitch * i) for i, n in enumerate(numbered(name, rows)))


def _after(name: str, lanes: int) -> Stream:
    """The array of running sums, behind a word per lane."""
    return Stream(name, "out", "int32", 4 * lanes)


@functools.cache
def maxima(element: str, block: Block, pitch: int) -> GridKernel:
    """The largest element of every column."""
    inputs = _rows("a", "scratch", element, block.rows, pitch)
    least = -128 if element == "int8" else 0
    found = balanced([f"load_lanes({s.name}, x)" for s in inputs], "max({}, {})")
    body = [
        *block.mask,
        f"most = max(most, {found})",
        "store_lanes(top, at, most)",
        f"most = most if inside else {least}",
        block.next("x", pitch),
        block.next("at", 0),
    ]
    return loop(
        f"column_maxima_{element}",
        (*inputs, Stream("top", "out", element)),
        ("x", "at"),
        "\n".join(body),
        f"most = {least}\nplace = 0",
        per_iteration=block.elements,
        lanes=block.lanes,
    )


@functools.lru_cache(maxsize=64)
def sums(table: tuple[int, ...], element: str, block: Block, near: int, apart: int) -> GridKernel:
    """The sum of all columns' exponentials so far, and every element's distance from the maximum.

    Sums are never reset, since PEs with lanes are busy in every step. A record of 0 is before the first.
    """
    inputs = _rows("a", "scratch", element, block.rows, near)
    out = _rows("d", "out", "uint8", block.rows, apart)
    body, distances = [*block.mask, "greatest = load_lanes(top, at)"], numbered("behind", block.rows)
    body.append("store_lanes(start, first, 0)")
    for name, source, target in zip(distances, inputs, out, strict=True):
        body += [f"{name} = greatest - load_lanes({source.name}, x)"]
        body += [f"store_lanes({target.name}, y, {name})"]
    body += [
        f"total = total + {balanced([f'TABLE[{d}]' for d in distances], '({} + {})')}",
        "store_lanes(sum, word, total)",
        block.next("x", near),
        block.next("y", apart),
        *(block.next(index, 0) for index in ("word", "at")),
    ]
    records = Stream("top", "out", element), Stream("start", "out", "int32"), _after("sum", block.lanes)
    return loop(
        f"column_sums_{element}",
        (*inputs, *out, *records),
        ("x", "y", "at", "word", "first"),
        "\n".join(body),
        "total = 0\nplace = 0",
        outside(table),
        block.elements,
        block.lanes,
    )


@functools.cache
def reciprocals(count: int, lanes: int) -> GridKernel:
    """The factor of every column, one record before its sum. Sums are loaded again for every step."""
    inverse = Inverse(count)
    again = indices(count)
    inputs = tuple(_after(name, lanes) for name in numbered("sum", inverse.steps + 1))
    before = tuple(Stream(name, "out", "int32") for name in numbered("less", inverse.steps + 1))
    own = [
        f"(load_lanes({a.name}, {index}) - load_lanes({b.name}, {index}))"
        for a, b, index in zip(inputs, before, again[:-1], strict=True)
    ]
    body = [f"value = TABLE[requantise({own[0]}, 1, {inverse.how})]"]
    for total in own[1:]:
        product = f"mul_shift_round({total}, value, {inverse.by})"
        body.append(f"value = mul_shift_round(value, {1 << 30} - {product}, 29)")
    body.append(f"store_lanes(factor, {again[-1]}, value)")
    body += [f"{index} = {index} + {lanes}" for index in again]
    return loop(
        f"column_reciprocals_{inverse.steps}",
        (*inputs, *before, Stream("factor", "out", "int32")),
        again,
        "\n".join(body),
        "",
        outside(inverse.guesses),
        lanes,
        lanes,
    )


@functools.lru_cache(maxsize=64)
def results(numerators: tuple[int, ...], result: str, how: int, block: Block, pitch: int) -> GridKernel:
    """All results, in place of the distances."""
    rows, near = block.rows, min(block.rows, _NEAR)
    inputs = _rows("d", "out", "uint8", near, pitch)
    out = _rows("r", "out", result, near, pitch)
    body = [*block.mask, "multiplier = load_lanes(factor, word)"]
    if rows > near:
        body.append(f"far = y + {near * pitch}")
    for i in range(rows):
        index, k = ("far", i - near) if i >= near else ("y", i)
        numerator = f"TABLE[load_lanes(d{k}, {index})]"
        body.append(f"store_lanes(r{k}, {index}, requantise_even({numerator}, multiplier, {how}))")
    body += [block.next("y", pitch), block.next("word", 0)]
    return loop(
        f"column_results_{result}",
        (*inputs, *out, Stream("factor", "out", "int32")),
        ("y", "word"),
        "\n".join(body),
        "place = 0",
        outside(numerators),
        block.elements,
        block.lanes,
    )
