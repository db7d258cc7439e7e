"""Layer and RMS normalisation on the CGRA: sums, variances, inverse square roots, results."""

from __future__ import annotations

import functools

from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import GROUP, NEXT_ROW, RECORD_WORDS, balanced, loop, numbered, packed, unpacked

#: Bits of the lower part of a variance.
LOW_BITS = 24
#: Newton steps for the inverse square root; relative errors are 0.18, 0.053, 2^-8, 2^-15, 2^-29.
STEPS = 4
#: The initial line for a number from 1/8 to 1, with the smallest maximum relative error; 29 fractional bits.
START, SLOPE = round(2.5262 * 2**29), round(1.7086 * 2**29)
#: Words of a record: running sums of elements and of squares; then mantissa and shift; then slope and start.
_SUM, _SQUARES, _SLOPE, _START = (
    Stream(n, "out", "int32", 4 * i) for i, n in enumerate(("sum", "squares", "slope", "start"))
)
#: Elements per iteration of the results loop, and parameter words per element.
COPIES, PARAMETERS = 4, 2


@functools.cache
def sums(element: str, mean: bool = True) -> GridKernel:
    """The sums of elements and of squares of all rows so far, at the end of every row.

    Without `mean` the zero point is subtracted, and there are sums of squares only.
    """
    inputs = tuple(Stream(name, "scratch", element, i) for i, name in enumerate(numbered("a", GROUP)))
    values = numbered("v", GROUP)
    lines = [f"v{i} = a{i}[x]" if mean else f"v{i} = a{i}[x] - zero" for i in range(GROUP)]
    lines.append(f"x = x + {GROUP}")
    if mean:
        lines += [f"total = total + {balanced(list(values), '({} + {})')}", "sum[row] = total"]
    lines += [
        f"square = square + {balanced([f'{v} * {v}' for v in values], '({} + {})')}",
        "squares[row] = square",
    ]
    return loop(
        f"row_sums_{element}" if mean else f"row_squares_{element}",
        (*inputs, *[_SUM] * mean, _SQUARES),
        ("row", "x", "left", "last", *(() if mean else ("zero",))),
        "\n".join(lines) + NEXT_ROW,
        "total = 0\nsquare = 0" if mean else "square = 0",
        per_iteration=GROUP,
    )


@functools.cache
def variances(mean: bool = True) -> GridKernel:
    """Variance plus epsilon of every row as a mantissa, and the right shift of its inverse root.

    Without `mean`, the sums of rows count as 0.
    """
    begin = "square = squares[row]\nboth = square - square_before\nsquare_before = square"
    high, low = f"mul_shift_round(both, columns, {LOW_BITS})", "both * columns"
    if mean:
        begin = """total = sum[row]
square = squares[row]
own = total - total_before
both = square - square_before
total_before = total
square_before = square"""
        high, low = f"{high} - mul_shift_round(own, own, {LOW_BITS})", f"{low} - own * own"
    body = f"""
{begin}
high = {high}
low = {low} - (high << {LOW_BITS})
high = high + (low >> {LOW_BITS})
low = low & {(1 << LOW_BITS) - 1}
upper = high if high else low
lower = low if high else 0
zeros = clz(upper)
variance = (upper << (zeros - 2)) + shift_right_logical(lower << {30 - LOW_BITS}, 32 - zeros)
power = ({2 + LOW_BITS} if high else 2) - zeros
common = max(power, exponent) | 1
slope[row] = (variance >> min(common - power, 31)) + (epsilon >> min(common - exponent, 31))
start[row] = min(((common + 31) >> 1) + base, 63) if variance else 63
row = row + {RECORD_WORDS}
"""
    return loop(
        "row_variances" if mean else "row_mean_squares",
        (*[_SUM] * mean, _SQUARES, _SLOPE, _START),
        ("row", "columns", "epsilon", "exponent", "base"),
        body,
        "total_before = 0\nsquare_before = 0" if mean else "square_before = 0",
    )


#: Indices by which each step loads a row's mantissa again: long-lived values would fill the registers.
AGAIN = numbered("row", STEPS)


@functools.cache
def roots(mean: bool = True) -> GridKernel:
    """The factor and the offset for the elements of every row.

    Without `mean`, the offset is `before` times the factor.
    """
    inputs = tuple(Stream(name, "out", "int32", 8) for name in numbered("mantissa", STEPS))
    lines = [f"value = {START} - mul_shift_round(mantissa0[row0], {SLOPE}, 31)"]
    for k in range(STEPS):
        ratio = f"mul_shift_round(mul_shift_round(mantissa{k}[row{k}], value, 31), value, 29)"
        lines.append(f"value = mul_shift_round(value, {3 << 29} - {ratio}, 30)")
    if mean:
        lines += [
            "total = sum[late]",
            "shift = start[late]",
            "slope[late] = mul_shift_round(value, columns, shift)",
            "start[late] = mul_shift_round(value, before - total, shift)",
            "before = total",
        ]
    else:
        lines += [
            "factor = mul_shift_round(value, columns, start[late])",
            "slope[late] = factor",
            "start[late] = factor * before",
        ]
    lines += [f"{index} = {index} + {RECORD_WORDS}" for index in (*AGAIN, "late")]
    scalars = (*AGAIN, "late", "columns", *(() if mean else ("before",)))
    streams = (*inputs, *[_SUM] * mean, _SLOPE, _START)
    name, text = "row_roots" if mean else "row_mean_roots", "\n".join(lines)
    return loop(name, streams, scalars, text, "before = 0" if mean else "")


@functools.cache
def results(element: str, gap: bool = False) -> GridKernel:
    """All results, four to a word; with a gap, each row starts `next` words after the last results."""
    copies = range(COPIES)
    constants = tuple(
        Stream(f"{name}{i}", "scratch", "int32", 4 * (PARAMETERS * i + k))
        for i in copies
        for k, name in enumerate("gh")
    )
    # Load a whole word: byte loads in several steps would conflict with parameter loads in more banks.
    lines = ["factor = slope[row]", "offset = start[row]", "at = end - left", "word = words[x]"]
    elements = unpacked("word", element == "int8")
    for i in copies:
        lines += [
            f"u{i} = mul_shift_round(({elements[i]}) * factor + offset, g{i}[at], shift) + h{i}[at]",
            f"t{i} = min(max(mul_shift_round_even(u{i}, 1, rounding), least), most)",
        ]
    lines += [
        f"y0[y] = {packed([f't{i}' for i in copies])}",
        "x = x + 1",
        "y = y + (1 if left else next)" if gap else "y = y + 1",
        f"row = row if left else row + {RECORD_WORDS}",
        f"left = left - {COPIES * PARAMETERS} if left else last",
    ]
    scalars: tuple[str, ...] = ("row", "x", "y", "left", "last", "end", "shift", "rounding", "least", "most")
    scalars += ("bias", "sign", *(["next"] * gap))
    return loop(
        f"layer_norm_results_{element}",
        (Stream("words", "scratch", "int32"), *constants, _SLOPE, _START, Stream("y0", "out", "int32")),
        scalars,
        "\n".join(lines),
        per_iteration=COPIES,
    )
