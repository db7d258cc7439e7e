"""The loops of pooling (docs/operators.md)."""

from __future__ import annotations

import functools
import math

from sw.graph.requantise import LIMITS
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import RECORD_WORDS, loop, numbered, packed

#: Columns of an iteration that takes several.
COPIES = 4


def _rounded(total: str, factor: str, result: str) -> str:
    """The average of a sum, as statement for `found`."""
    low, high = LIMITS[result]
    scaled = f"mul_shift_round({total} + bias, {factor}, shift)"
    return f"found = min(max(mul_shift_round_even({scaled}, 1, rounding) + zero, {low}), {high})"


_AVERAGE = ("factor", "bias", "shift", "rounding", "zero")


@functools.cache
def windows(
    kind: str,
    rows: int,
    cols: int,
    dilation: int,
    element: str,
    result: str,
    varies: bool = False,
    gap: bool = False,
) -> GridKernel:
    """One output per iteration; kernel places of a row are arrays, kernel rows are indices.

    With a gap, the first output of a row is `skip` behind the last one of the row before.
    """
    inputs = tuple(
        Stream(name, "scratch", element, j * dilation) for j, name in enumerate(numbered("a", cols))
    )
    lines = [f"r{i} = {f'r{i - 1} + line' if i else 'x'}" for i in range(rows)]
    loads = [f"a{j}[r{i}]" for i in range(rows) for j in range(cols)]
    scalars: tuple[str, ...] = ("x", "y", "last", "most", "step", "down", "over")
    scalars += ("line",) * (rows > 1) + ("skip",) * gap
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
        "y = y + (skip if row_ends else 1)" if gap else "y = y + 1",
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


@functools.cache
def column_totals(kind: str, element: str) -> GridKernel:
    """A pixel of four windows per iteration; what is stored last of an output is its total."""
    names = range(COPIES)
    inputs = tuple(Stream(f"a{i}", "scratch", element, i) for i in names)
    totals = tuple(Stream(f"s{i}", "out", "int32", 4 * i) for i in names)
    clear = LIMITS[element][0] if kind == "max" else 0
    lines = ["window_ends = within == b", "row_ends = across == c"]
    for i in names:
        lines += [
            f"t{i} = max(t{i}, a{i}[x])" if kind == "max" else f"t{i} = t{i} + a{i}[x]",
            f"s{i}[y] = t{i}",
            f"t{i} = {clear} if window_ends else t{i}",
        ]
    lines += [
        f"y = y + {COPIES} if window_ends else y",
        "x = x + (down if row_ends else (next if window_ends else line))",
        "within = 0 if window_ends else within + 1",
        "across = 0 if row_ends else across + 1",
    ]
    before = "\n".join([*(f"t{i} = {clear}" for i in names), "within = 0", "across = 0"])
    scalars = ("x", "y", "b", "c", "line", "next", "down")
    return loop(f"{kind}_pool_totals", (*inputs, *totals), scalars, "\n".join(lines), before, "", COPIES)


@functools.cache
def column_results(kind: str) -> GridKernel:
    """Four totals as a word of results per iteration."""
    inputs = tuple(Stream(f"s{i}", "out", "int32", 4 * i) for i in range(COPIES))
    found = [f"s{i}[x]" for i in range(COPIES)]
    scalars: tuple[str, ...] = ("x", "y", "bias", "sign")
    if kind == "average":
        scalars += ("factor", "offset", "shift", "rounding", "least", "most")
        scaled = [f"mul_shift_round({total} + offset, factor, shift)" for total in found]
        found = [f"min(max(mul_shift_round_even({v}, 1, rounding), least), most)" for v in scaled]
    body = f"out[y] = {packed(found)}\nx = x + {COPIES}\ny = y + 1"
    streams = (*inputs, Stream("out", "out", "int32"))
    return loop(f"{kind}_pool_results", streams, scalars, body, "", "", COPIES)


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
