"""Pooling on the grid (docs/operators.md).

There are four ways, `way` says which one an operator takes:

- `windows`: an iteration makes one output, all loads of its window in it;
- `columns`: an iteration takes a pixel of four windows side by side, windows being parts of columns; one
  channel per tile;
- `steps`: an iteration takes one pixel of a window, for all other windows too large; one channel per tile;
- `rows`: windows as large as the image are rows of a matrix, [images * channels, rows * columns].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.graph.requantise import LIMITS
from sw.kernels.passes import (
    GROUP,
    SIGNS,
    Pass,
    Span,
    Value,
    packing,
    plus,
    times,
    words,
)
from sw.operators import softmax
from sw.operators.normalisation import loops as normalisation
from sw.operators.pools.loops import (
    COPIES,
    averages,
    column_results,
    column_totals,
    greatest,
    steps,
    windows,
)
from sw.operators.pools.operator import Pool
from sw.operators.rows import RowTile

#: Most loads of an iteration, and most places of a kernel row: each has an array.
_MOST_LOADS, _MOST_PLACES = 36, 13
Way = Literal["windows", "columns", "steps", "rows"]


@dataclass(frozen=True)
class PoolTile:
    """Where a tile of `rows` output rows, `cols` outputs each, of each of `channels` channels lies.

    `x` is the byte of the scratchpad where the first channel's window of the first output begins, padding
    included; image rows are `pitch` bytes apart, channels `plane` bytes. All pixels of the windows must be
    there, those outside of the image holding `Pool.fill`. `factors` is the byte, a multiple of 4, where
    `factor_words` of these output rows lie (if there are any). Results lie from byte `out` of the output
    buffer on, without gaps; for `windows`, with `apart`, rows of results are so many bytes apart. Of
    `channels` and `rows` one must be a number, and `plane` too for several channels. Without `cols` rows are
    whole. `columns` needs `out` to be a multiple of 4, and `sums`, the byte of the output buffer, a multiple
    of 4, of four bytes per output; `cols` must be a multiple of 4 then.
    """

    channels: Value
    rows: Value
    x: Value
    pitch: int
    plane: Value
    out: Value
    factors: Value = 0
    cols: int | None = None
    sums: Value = 0
    apart: int = 0

    def width(self, operator: Pool) -> int:
        """Outputs of a row."""
        return operator.cols.outputs if self.cols is None else self.cols

    def outputs(self, operator: Pool) -> Value:
        """Outputs of a channel."""
        return times(self.rows, self.width(operator))


def way(operator: Pool) -> Way:
    """How an operator is computed."""
    rows, cols = operator.rows, operator.cols
    whole = all(
        a.kernel == a.size and a.outputs == 1 and a.dilation == 1 and not a.before for a in (rows, cols)
    )
    if whole and operator.window > _PLACES_OF_ROWS:
        return "rows"
    if operator.window <= _MOST_LOADS and cols.kernel <= _MOST_PLACES:
        return "windows"
    plain = cols.kernel == cols.stride == 1 and cols.outputs % COPIES == 0
    return "columns" if plain and not varying(operator) else "steps"


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
    """The launches that make a tile's results, for all ways but `rows`."""
    if way(operator) == "columns":
        return _columns(operator, tile)
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
            normalisation.sums(operator.element, squares=False),
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
    size = plus(plus(before, times(below, tile.pitch)), cols.span(tile.width(operator)))
    reads = [Span("scratch", tile.x, size)]
    if varying(operator):
        reads.append(Span("scratch", tile.factors, times(tile.outputs(operator), 4)))
    outputs = tile.outputs(operator)
    results = times(tile.rows, tile.apart) if tile.apart else outputs
    written = results if tile.channels == 1 else _product(operator, results, tile.channels)
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
    width = tile.width(operator)
    across = (width - 1) * cols.stride
    # From the last output of a row to the first of the next one, and of the next channel.
    down = rows.stride * tile.pitch - across
    back = plus(times(plus(tile.rows, -1), -rows.stride * tile.pitch), -across)
    scalars: dict[str, Value] = {
        "x": tile.x,
        "y": tile.out,
        "last": width - 1,
        "most": plus(outputs, -1),
        "step": cols.stride,
        "down": down,
        "over": plus(tile.plane, back),
        "line": rows.dilation * tile.pitch,
        "skip": tile.apart - width + 1,
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
        tile.apart > width,
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
    width = tile.width(operator)
    across = (width - 1) * cols.stride
    window = operator.window
    scalars: dict[str, Value] = {
        "x": tile.x,
        "y": tile.out,
        "a": cols.kernel - 1,
        "b": window - 1,
        "c": window * width - 1,
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


def _columns(operator: Pool, tile: PoolTile) -> tuple[Pass, ...]:
    rows, width = operator.rows, tile.width(operator)
    if tile.channels != 1 or width % COPIES:
        raise InputError(
            f"{operator.name}: a tile of columns must have one channel and a multiple of {COPIES} columns, "
            f"not {tile.channels} and {width}"
        )
    reads, (results,) = _spans(operator, tile)
    outputs = tile.outputs(operator)
    sums = Span("out", tile.sums, times(outputs, 4))
    line = rows.dilation * tile.pitch
    inside = (rows.kernel - 1) * line
    groups = width // COPIES
    low, high = LIMITS[operator.result]
    total: dict[str, Value] = {
        "x": tile.x,
        "y": words(tile.sums),
        "b": rows.kernel - 1,
        "c": rows.kernel * groups - 1,
        "line": line,
        "next": COPIES - inside,
        "down": rows.stride * tile.pitch - inside - (width - COPIES),
    }
    made: dict[str, Value] = {"x": words(tile.sums), "y": words(tile.out)}
    made |= packing(operator.zero if operator.kind == "average" else 0, operator.result)
    if operator.kind == "average":
        made |= {
            "factor": operator.factors[0][0],
            "offset": operator.bias,
            "shift": operator.shift,
            "rounding": operator.rounding,
            "least": low - operator.zero,
            "most": high - operator.zero,
        }
    count = times(tile.rows, groups)
    return (
        Pass(
            column_totals(operator.kind, operator.element), times(count, rows.kernel), total, reads, (sums,)
        ),
        Pass(column_results(operator.kind), count, made, (sums,), (results,)),
    )
