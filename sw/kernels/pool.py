"""Pooling on the grid (docs/operators.md).

There are three ways, `way` says which one an operator takes:

- `windows`: an iteration makes one output, all loads of its window in it;
- `steps`: an iteration takes one pixel of a window, for windows too large for that; one channel per tile;
- `rows`: windows as large as the image are rows of a matrix, [images * channels, rows * columns].
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.kernels import layernorm, softmax
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.rows import (
    GROUP,
    RECORD_WORDS,
    SIGNS,
    Pass,
    RowTile,
    Span,
    Value,
    loop,
    numbered,
    plus,
    times,
    words,
)
from sw.network.pool import Pool
from sw.network.requantise import LIMITS

#: Most loads of an iteration, and most places of a kernel row: each has an array.
_MOST_LOADS, _MOST_PLACES = 36, 13
Way = Literal["windows", "steps", "rows"]


@dataclass(frozen=True)
class PoolTile:
    """Where a tile of `rows` output rows of each of `channels` channels lies.

    `x` is the byte of the scratchpad where the first channel's window of the first output begins, padding
    included; image rows are `pitch` bytes apart, channels `plane` bytes. All pixels of the windows must be
    there, those outside of the image holding `Pool.fill`. `factors` is the byte, a multiple of 4, where
    `factor_words` of these output rows lie (where there are any). Results lie without gaps from byte `out` of
    the output buffer. Of `channels` and `rows` one must be a number, and `plane` too for several channels.
    """

    channels: Value
    rows: Value
    x: Value
    pitch: int
    plane: Value
    out: Value
    factors: Value = 0

    def outputs(self, operator: Pool) -> Value:
        """Outputs of a channel."""
        return times(self.rows, operator.cols.outputs)


def way(operator: Pool) -> Way:
    """How an operator is computed."""
    rows, cols = operator.rows, operator.cols
    whole = all(
        a.kernel == a.size and a.outputs == 1 and a.dilation == 1 and not a.before for a in (rows, cols)
    )
    if whole and operator.window > _PLACES_OF_ROWS:
        return "rows"
    return "windows" if operator.window <= _MOST_LOADS and cols.kernel <= _MOST_PLACES else "steps"


#: From so many pixels on, windows as large as the image are rows.
_PLACES_OF_ROWS = 8


def varying(operator: Pool) -> bool:
    """Whether outputs of a channel have different factors."""
    return len(operator.factors) > 1 or len(operator.factors[0]) > 1


def factor_words(operator: Pool) -> npt.NDArray[np.int32]:
    """The factors of a channel's outputs, row by row; empty where all are equal."""
    found = np.asarray(operator.factors if varying(operator) else [], np.int64)
    return found.reshape(-1).astype(np.int32)


def passes(operator: Pool, tile: PoolTile) -> tuple[Pass, ...]:
    """The launches that make a tile's results, for `windows` and `steps`."""
    if way(operator) == "windows":
        return (_windows(operator, tile),)
    if way(operator) == "steps":
        return (_steps(operator, tile),)
    raise InputError(f"{operator.name}: windows as large as the image are rows, a tile of rows is needed")


def row_passes(operator: Pool, tile: RowTile) -> tuple[Pass, ...]:
    """The launches for `rows`; results are one byte per row, without gaps.

    Rows are padded with zeros for an average, with the least number of their type for a maximum.
    """
    row, state = words(tile.records), tile.state
    low, _ = LIMITS[operator.element]
    around = {"row": row, "left": tile.last(GROUP), "last": tile.last(GROUP)}
    result = Span("out", tile.out, tile.rows)
    if operator.kind == "max":
        flip = 0 if low else SIGNS
        return (
            Pass(
                softmax.maxima(),
                tile.groups(GROUP),
                {**around, "x": words(tile.x), "flip": flip},
                (tile.input,),
                (state,),
            ),
            Pass(greatest(), tile.rows, {"row": row, "y": tile.out, "low": low}, (state,), (result,)),
        )
    return (
        Pass(
            layernorm.sums(operator.element, squares=False),
            tile.groups(GROUP),
            {**around, "x": tile.x},
            (tile.input,),
            (state,),
        ),
        Pass(
            averages(operator.result),
            tile.rows,
            {"row": row, "y": tile.out, **_average(operator), "factor": operator.factors[0][0]},
            (state,),
            (result,),
        ),
    )


def _average(operator: Pool) -> dict[str, Value]:
    """The scalars of an average, but for its factor."""
    return {
        "bias": operator.bias,
        "shift": operator.shift,
        "rounding": operator.rounding,
        "zero": operator.zero,
    }


def _spans(operator: Pool, tile: PoolTile) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """What a launch of windows reads and writes."""
    rows, cols = operator.rows, operator.cols
    below = plus(times(plus(tile.rows, -1), rows.stride), rows.reach - 1)
    if isinstance(tile.plane, int):
        before = times(plus(tile.channels, -1), tile.plane)
    elif tile.channels == 1:
        before = 0
    else:
        raise InputError(f"{operator.name}: the plane of a tile of several channels must be a number")
    size = plus(plus(before, times(below, tile.pitch)), cols.span(cols.outputs))
    reads = [Span("scratch", tile.x, size)]
    if varying(operator):
        reads.append(Span("scratch", tile.factors, times(tile.outputs(operator), 4)))
    outputs = tile.outputs(operator)
    written = outputs if tile.channels == 1 else _product(operator, outputs, tile.channels)
    return tuple(reads), (Span("out", tile.out, written),)


def _product(operator: Pool, a: Value, b: Value) -> Value:
    if isinstance(a, int):
        return times(b, a)
    if isinstance(b, int):
        return times(a, b)
    raise InputError(f"{operator.name}: rows or channels of a tile must be a number")


def _windows(operator: Pool, tile: PoolTile) -> Pass:
    rows, cols = operator.rows, operator.cols
    reads, writes = _spans(operator, tile)
    outputs = tile.outputs(operator)
    across = (cols.outputs - 1) * cols.stride
    # From the last output of a row to the first of the next one, and of the next channel.
    down = rows.stride * tile.pitch - across
    back = plus(times(plus(tile.rows, -1), -rows.stride * tile.pitch), -across)
    scalars: dict[str, Value] = {
        "x": tile.x,
        "y": tile.out,
        "last": cols.outputs - 1,
        "most": plus(outputs, -1),
        "step": cols.stride,
        "down": down,
        "over": plus(tile.plane, back),
        "line": rows.dilation * tile.pitch,
    }
    if operator.kind == "average":
        scalars |= _average(operator)
        scalars["factor"] = words(tile.factors) if varying(operator) else operator.factors[0][0]
    kernel = windows(
        operator.kind,
        rows.kernel,
        cols.kernel,
        cols.dilation,
        operator.element,
        operator.result,
        varying(operator),
    )
    return Pass(
        kernel,
        _product(operator, outputs, tile.channels),
        {k: v for k, v in scalars.items() if k in kernel.scalars},
        reads,
        writes,
    )


def _steps(operator: Pool, tile: PoolTile) -> Pass:
    rows, cols = operator.rows, operator.cols
    if tile.channels != 1:
        raise InputError(f"{operator.name}: a tile of windows so large must have one channel")
    reads, writes = _spans(operator, tile)
    along = (cols.kernel - 1) * cols.dilation
    inside = (rows.kernel - 1) * rows.dilation * tile.pitch + along
    across = (cols.outputs - 1) * cols.stride
    window = operator.window
    scalars: dict[str, Value] = {
        "x": tile.x,
        "y": tile.out,
        "a": cols.kernel - 1,
        "b": window - 1,
        "c": window * cols.outputs - 1,
        "step": cols.dilation,
        "line": rows.dilation * tile.pitch - along,
        "next": cols.stride - inside,
        "down": rows.stride * tile.pitch - across - inside,
    }
    if operator.kind == "average":
        scalars |= _average(operator)
        scalars["factor"] = words(tile.factors) if varying(operator) else operator.factors[0][0]
    kernel = steps(operator.kind, operator.element, operator.result, varying(operator))
    return Pass(
        kernel,
        times(tile.outputs(operator), window),
        {k: v for k, v in scalars.items() if k in kernel.scalars},
        reads,
        writes,
    )


def _rounded(total: str, factor: str, result: str) -> str:
    """The average of a sum, as statement for `found`."""
    low, high = LIMITS[result]
    scaled = f"mul_shift_round({total} + bias, {factor}, shift)"
    return f"found = min(max(mul_shift_round_even({scaled}, 1, rounding) + zero, {low}), {high})"


_AVERAGE = ("factor", "bias", "shift", "rounding", "zero")


@functools.cache
def windows(
    kind: str, rows: int, cols: int, dilation: int, element: str, result: str, varies: bool = False
) -> GridKernel:
    """One output per iteration; kernel places of a row are arrays, kernel rows are indices."""
    inputs = tuple(
        Stream(name, "scratch", element, j * dilation) for j, name in enumerate(numbered("a", cols))
    )
    lines = [f"r{i} = {f'r{i - 1} + line' if i else 'x'}" for i in range(rows)]
    loads = [f"a{j}[r{i}]" for i in range(rows) for j in range(cols)]
    scalars: tuple[str, ...] = ("x", "y", "last", "most", "step", "down", "over")
    scalars += ("line",) if rows > 1 else ()
    streams: tuple[Stream, ...] = (*inputs, Stream("out", "out", result))
    lines += ["row_ends = col == last", "plane_ends = place == most"]
    if kind == "max":
        lines.append(f"found = {_tree('max', loads)}")
    else:
        lines.append(_rounded(_tree("+", loads), "factors[factor]" if varies else "factor", result))
        scalars += _AVERAGE
        if varies:
            streams = (*streams, Stream("factors", "scratch", "int32"))
            lines.append("factor = factor - most if plane_ends else factor + 1")
    lines += [
        "out[y] = found",
        "x = x + (over if plane_ends else (down if row_ends else step))",
        "y = y + 1",
        "col = 0 if row_ends else col + 1",
        "place = 0 if plane_ends else place + 1",
    ]
    return loop(f"{kind}_pool_{rows}x{cols}", streams, scalars, "\n".join(lines), "col = 0\nplace = 0")


@functools.cache
def steps(kind: str, element: str, result: str, varies: bool = False) -> GridKernel:
    """One pixel of a window per iteration; what is stored last of an output is the result."""
    scalars: tuple[str, ...] = ("x", "y", "a", "b", "c", "step", "line", "next", "down")
    streams: tuple[Stream, ...] = (Stream("pixels", "scratch", element), Stream("out", "out", result))
    low, _ = LIMITS[element]
    lines = ["line_ends = along == a", "window_ends = within == b", "row_ends = across == c"]
    if kind == "max":
        lines += ["total = max(total, pixels[x])", "found = total"]
        clear = str(low)
    else:
        lines += [
            "total = total + pixels[x]",
            _rounded("total", "factors[factor]" if varies else "factor", result),
        ]
        scalars += _AVERAGE
        clear = "0"
        if varies:
            streams = (*streams, Stream("factors", "scratch", "int32"))
            lines.append("factor = factor + window_ends")
    lines += [
        "out[y] = found",
        f"total = {clear} if window_ends else total",
        "y = y + window_ends",
        "x = x + (down if row_ends else (next if window_ends else (line if line_ends else step)))",
        "along = 0 if line_ends else along + 1",
        "within = 0 if window_ends else within + 1",
        "across = 0 if row_ends else across + 1",
    ]
    before = f"total = {clear}\nalong = 0\nwithin = 0\nacross = 0"
    return loop(f"{kind}_pool_steps", streams, scalars, "\n".join(lines), before)


def _tree(operation: str, values: list[str]) -> str:
    """Values joined as a balanced tree."""
    if len(values) == 1:
        return values[0]
    half = 1 << (math.ceil(math.log2(len(values))) - 1)
    left, right = _tree(operation, values[:half]), _tree(operation, values[half:])
    return f"({left} + {right})" if operation == "+" else f"{operation}({left}, {right})"


@functools.cache
def greatest() -> GridKernel:
    """The maxima of rows as bytes."""
    body = f"out[y] = (top[row] & 255) + low\ny = y + 1\nrow = row + {RECORD_WORDS}"
    streams = (Stream("top", "out", "int32"), Stream("out", "out", "int8"))
    return loop("row_greatest", streams, ("row", "y", "low"), body)


@functools.cache
def averages(result: str) -> GridKernel:
    """The averages of rows from the sums of all rows so far."""
    lines = [
        "total = sum[row]",
        _rounded("(total - before)", "factor", result),
        "before = total",
        "out[y] = found",
        "y = y + 1",
        f"row = row + {RECORD_WORDS}",
    ]
    streams = (Stream("sum", "out", "int32"), Stream("out", "out", result))
    return loop(f"row_averages_{result}", streams, ("row", "y", *_AVERAGE), "\n".join(lines), "before = 0")
