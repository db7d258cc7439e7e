"""Softmax on the grid: maxima, sums of exponentials, reciprocals, results (docs/operators.md)."""

from __future__ import annotations

import functools

from sw.graph.requantise import LIMITS
from sw.graph.softmax import GROUP, SLOPE, START, STEPS, Softmax
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.rows import (
    BYTES,
    RECORD_WORDS,
    SIGNS,
    Pass,
    RowTile,
    Value,
    loop,
    numbered,
    packed,
    packing,
    words,
)

#: Words of a record: the maximum in four bytes; the sum so far; mantissa of the sum, then factor; shift.
_TOP, _SUM, _FACTOR, _SHIFT = (
    Stream(n, "out", "int32", 4 * i) for i, n in enumerate(("top", "sum", "factor", "shift"))
)
_WORDS = GROUP // 4
#: Indices of a row's record for the steps of a reciprocal, and for what follows them.
_AGAIN = numbered("row", STEPS + 1)
_ROWS = f"""
row = row if left else row + {RECORD_WORDS}
left = left - 1 if left else last
"""


def passes(operator: Softmax, tile: RowTile) -> tuple[Pass, ...]:
    """The launches that make a tile's results; rows are padded with the least number of their type."""
    low, _ = LIMITS[operator.element]
    _, high = LIMITS[operator.result]
    row, x = words(tile.records), words(tile.x)
    last = tile.last(GROUP)
    groups = tile.groups(GROUP)
    unsigned = SIGNS if low else 0
    pads = tile.pitch - operator.columns

    around: dict[str, Value] = {"row": row, "x": x, "left": last, "last": last}
    both, state = (tile.input, tile.state), tile.state
    mantissa = {
        "row": row,
        "late": row,
        "pads": pads,
        "drop": operator.drop,
        "half": operator.half,
        "base": operator.drop + 34,
    }
    packs = packing(operator.zero, operator.result)
    made = {"y": words(tile.out), "shift": operator.shift, "most": high - operator.zero, **packs}
    if tile.gap:
        made["next"] = _WORDS + tile.gap
    return (
        Pass(maxima(), groups, {**around, "flip": 0 if low else SIGNS}, (tile.input,), (state,)),
        Pass(
            sums(operator.table), groups, {**around, "flip": unsigned, "drop": operator.drop}, both, (state,)
        ),
        Pass(mantissas(operator.table), tile.rows, mantissa, (state,), (state,)),
        Pass(
            reciprocals(),
            tile.rows,
            {**dict.fromkeys(_AGAIN, row), "scale": operator.scale},
            (state,),
            (state,),
        ),
        Pass(
            results(operator.table, tile.gap > 0),
            groups,
            {**around, "flip": unsigned, **made},
            both,
            (tile.results,),
        ),
    )


def _inputs() -> tuple[Stream, ...]:
    """The words of a group."""
    return tuple(Stream(name, "scratch", "int32", 4 * i) for i, name in enumerate(numbered("a", _WORDS)))


def _outside(table: tuple[int, ...]) -> str:
    return f"TABLE = ({', '.join(map(str, table))})\n\n\n"


@functools.cache
def maxima() -> GridKernel:
    """The greatest element of every row. Compares whole words: the bytes below the highest decide nothing."""
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
        "\n".join(lines) + _ROWS,
        "most = LEAST",
        "LEAST = -2147483648\n\n\n",
        GROUP,
    )


def _indices(word: str) -> list[str]:
    """The bytes of a word, which are never negative."""
    return [
        f"{word} & 255",
        f"({word} >> 8) & 255",
        f"({word} >> 16) & 255",
        f"shift_right_logical({word}, 24)",
    ]


@functools.lru_cache(maxsize=64)
def sums(table: tuple[int, ...]) -> GridKernel:
    """The sum of all rows' exponentials so far, at the end of every row."""
    lines, found = ["greatest = top[row]"], []
    for k in range(_WORDS):
        lines.append(f"p{k} = greatest - (a{k}[x] ^ flip)")
        a, b, c, d = (f"TABLE[{i}]" for i in _indices(f"p{k}"))
        found.append(f"(({a} + {b}) + ({c} + {d}))")
    lines += [f"x = x + {_WORDS}", f"total = total + (({' + '.join(found)}) >> drop)", "sum[row] = total"]
    return loop(
        "exponential_sums",
        (*_inputs(), _TOP, _SUM),
        ("row", "x", "left", "last", "flip", "drop"),
        "\n".join(lines) + _ROWS,
        "total = 0",
        _outside(table),
        GROUP,
    )


@functools.lru_cache(maxsize=64)
def mantissas(table: tuple[int, ...]) -> GridKernel:
    """The sum of every row as mantissa of 31 bits, and the shift that goes with its reciprocal."""
    body = f"""
total = sum[row]
own = total - before - ((TABLE[top[row] & 255] * pads) >> drop) + half
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
        ("row", "late", "pads", "drop", "half", "base"),
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
    """All results, four to a word; with a gap, those of a row begin `next` words behind the last ones."""
    lines = ["greatest = top[row]", "multiplier = factor[row]"]
    for k in range(_WORDS):
        lines.append(f"p{k} = greatest - (a{k}[x] ^ flip)")
        found = [f"min(mul_shift_round_even(TABLE[{i}], multiplier, shift), most)" for i in _indices(f"p{k}")]
        lines.append(f"y{k}[y] = {packed(found)}")
    step = f"({_WORDS} if left else next)" if gap else f"{_WORDS}"
    lines += [f"x = x + {_WORDS}", f"y = y + {step}"]
    out = tuple(Stream(name, "out", "int32", 4 * i) for i, name in enumerate(numbered("y", _WORDS)))
    scalars = ("row", "x", "y", "left", "last", "flip", "shift", "most", "bias", "sign", *(["next"] * gap))
    return loop(
        "softmax_results",
        (*_inputs(), _TOP, _FACTOR, *out),
        scalars,
        "\n".join(lines) + _ROWS,
        "",
        _outside(table),
        GROUP,
    )
