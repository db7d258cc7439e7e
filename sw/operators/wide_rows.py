"""Row loops for PEs with several lanes: the loops of softmax and normalisation that process whole rows.

An iteration processes a block of neighbours, as many at a time as there are lanes. Records are the same as in
the loops without lanes, so each launch may use either. Indices of byte arrays are in bytes.
"""

from __future__ import annotations

import functools

from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import BYTES, GROUP, NEXT_ROW, RECORD_WORDS, balanced, loop, numbered

#: Scalars that every row loop has.
_ROWS = ("row", "x", "left", "last")
#: Increment of the result's index: within a row, or to the next row.
_STEP = "({block} if left else next)"


def _record(name: str, word: int) -> Stream:
    return Stream(name, "out", "int32", 4 * word)


def _bytes(name: str, space: str, element: str, lanes: int, block: int) -> tuple[Stream, ...]:
    """One array for every piece of a block."""
    names = numbered(name, block // lanes)
    return tuple(Stream(n, space, element, lanes * i) for i, n in enumerate(names))


def _table(words: tuple[int, ...]) -> str:
    return f"TABLE = ({', '.join(map(str, words))})\n\n\n"


def _greatest(element: str) -> str:
    """The maximum of a row, in the order of its elements."""
    return "greatest = (top[row] & 255) - 128" if element == "int8" else "greatest = top[row] & 255"


@functools.cache
def maxima(element: str, lanes: int, block: int) -> GridKernel:
    """The largest element of every row."""
    inputs = _bytes("a", "scratch", element, lanes, block)
    found = balanced([f"load_lanes({s.name}, x)" for s in inputs], "max({}, {})")
    least, more = (-128, " + 128") if element == "int8" else (0, "")
    body = f"""
most = max(most, max_lanes({found}))
x = x + {block}
top[row] = (most{more}) * {BYTES}
most = most if left else {least}
"""
    return loop(
        f"row_maxima_{element}",
        (*inputs, _record("top", 0)),
        _ROWS,
        body + NEXT_ROW,
        f"most = {least}",
        per_iteration=block,
        lanes=lanes,
    )


@functools.lru_cache(maxsize=64)
def exponential_sums(table: tuple[int, ...], element: str, lanes: int, block: int) -> GridKernel:
    """The running sum of the exponentials of all rows; bits are dropped from the sum of every group."""
    inputs = _bytes("a", "scratch", element, lanes, block)
    found = [f"TABLE[greatest - load_lanes({s.name}, x)]" for s in inputs]
    each = GROUP // lanes
    groups = [balanced(found[i : i + each], "({} + {})") for i in range(0, len(found), each)]
    sums = balanced([f"(sum_lanes({g}) >> drop)" for g in groups], "({} + {})")
    body = f"""
{_greatest(element)}
total = total + {sums}
x = x + {block}
sum[row] = total
"""
    return loop(
        f"exponential_sums_{element}",
        (*inputs, _record("top", 0), _record("sum", 1)),
        (*_ROWS, "drop"),
        body + NEXT_ROW,
        "total = 0",
        _table(table),
        block,
        lanes,
    )


@functools.lru_cache(maxsize=64)
def softmax_results(
    table: tuple[int, ...], element: str, result: str, lanes: int, block: int, gap: bool
) -> GridKernel:
    """All results; with a gap, each row starts `next` bytes after the last results."""
    inputs = _bytes("a", "scratch", element, lanes, block)
    out = _bytes("y", "out", result, lanes, block)
    lines = [_greatest(element), "multiplier = factor[row]"]
    for source, target in zip(inputs, out, strict=True):
        power = f"TABLE[greatest - load_lanes({source.name}, x)]"
        lines.append(f"store_lanes({target.name}, y, requantise_even({power}, multiplier, how))")
    lines += [f"x = x + {block}", f"y = y + {_STEP.format(block=block) if gap else block}"]
    return loop(
        f"softmax_results_{element}_{result}",
        (*inputs, _record("top", 0), _record("factor", 2), *out),
        (*_ROWS, "y", "how", *["next"] * gap),
        "\n".join(lines) + NEXT_ROW,
        "",
        _table(table),
        block,
        lanes,
    )


@functools.cache
def sums(element: str, mean: bool, lanes: int, block: int) -> GridKernel:
    """The sums of elements and of squares of all rows so far, at the end of every row.

    Without `mean` the zero point is subtracted, and there are sums of squares only.
    """
    inputs = _bytes("a", "scratch", element, lanes, block)
    values = numbered("v", len(inputs))
    less = "" if mean else " - zero"
    lines = [f"{v} = load_lanes({s.name}, x){less}" for v, s in zip(values, inputs, strict=True)]
    if mean:
        lines += [f"total = total + sum_lanes({balanced(list(values), '({} + {})')})", "sum[row] = total"]
    squares = balanced([f"{v} * {v}" for v in values], "({} + {})")
    lines += [f"square = square + sum_lanes({squares})", "squares[row] = square", f"x = x + {block}"]
    return loop(
        f"row_sums_{element}" if mean else f"row_squares_{element}",
        (*inputs, *[_record("sum", 0)] * mean, _record("squares", 1)),
        (*_ROWS, *(() if mean else ("zero",))),
        "\n".join(lines) + NEXT_ROW,
        "total = 0\nsquare = 0" if mean else "square = 0",
        per_iteration=block,
        lanes=lanes,
    )


@functools.cache
def results(element: str, result: str, lanes: int, block: int, gap: bool) -> GridKernel:
    """All results of a normalisation; with a gap, each row starts `next` bytes after the last results.

    Parameters are the factors of as many columns as there are lanes, then their offsets, and so on.
    """
    inputs = _bytes("a", "scratch", element, lanes, block)
    out = _bytes("y", "out", result, lanes, block)
    constants = tuple(
        Stream(f"{name}{i}", "scratch", "int32", 4 * lanes * (2 * i + k))
        for i in range(len(inputs))
        for k, name in enumerate("gh")
    )
    lines = ["factor = slope[row]", "offset = start[row]", "at = end - left"]
    for i in range(len(inputs)):
        scaled = f"mul_shift_round(load_lanes(a{i}, x) * factor + offset, load_lanes(g{i}, at), shift)"
        total = f"{scaled} + load_lanes(h{i}, at)"
        lines.append(f"store_lanes(y{i}, y, requantise_even({total}, 1, how))")
    lines += [
        f"x = x + {block}",
        f"y = y + {_STEP.format(block=block) if gap else block}",
        f"row = row if left else row + {RECORD_WORDS}",
        f"left = left - {2 * block} if left else last",
    ]
    return loop(
        f"layer_norm_results_{element}_{result}",
        (*inputs, *constants, _record("slope", 2), _record("start", 3), *out),
        (*_ROWS, "y", "end", "shift", "how", *["next"] * gap),
        "\n".join(lines),
        per_iteration=block,
        lanes=lanes,
    )
