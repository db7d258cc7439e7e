"""Launches of loops written as text, and building blocks for such texts.

Rows have a multiple of `GROUP` bytes. A launch leaves its result for a row in the row's record, `RECORD`
bytes of the output buffer, for the launches after it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sw.ir.expression import Const, Expr
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.origin import Origin

Value = Expr | int

#: A row's length is a multiple of this many bytes.
GROUP = 8
#: Bytes of a row's record, and words from one record to the next.
RECORD = 16
RECORD_WORDS = RECORD // 4
#: The bytes 0x80 of a word: exclusive or with it turns int8 to uint8 with an offset of 128, and back.
SIGNS = -0x7F7F7F80
#: Multiplying a byte by this gives a word with four copies of it.
BYTES = 0x01010101
#: End of an iteration that processes part of a row: `left` parts remain, and each row has a record.
NEXT_ROW = f"""
row = row if left else row + {RECORD_WORDS}
left = left - 1 if left else last
"""


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `start + size` of a space."""

    space: str
    start: Value
    size: Value


@dataclass(frozen=True)
class Pass:
    """A launch: the loop, its trip count, numbers by name, and its accesses.

    Passes of one tile are launched in order; `scalars` may have more names than the loop uses. `reads` and
    `writes` cover all possible accesses.
    """

    kernel: GridKernel
    iterations: Value
    scalars: Mapping[str, Value]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


def known(value: Expr) -> Value:
    """An expression, as a number if it is one."""
    return value.value if isinstance(value, Const) else value


def loop(
    name: str,
    streams: tuple[Stream, ...],
    scalars: tuple[str, ...],
    body: str,
    before: str = "",
    outside: str = "",
    per_iteration: int = 1,
    lanes: int = 1,
) -> GridKernel:
    """Builds the kernel of a loop; the lines before it, in it and outside the function are not indented.

    Errors in the text are reported at its place in the caller's file.
    """
    outside = f"LANES = {lanes}\n\n\n" * (lanes > 1) + outside

    def indented(text: str, by: int) -> str:
        return "".join(f"{' ' * by}{line}\n" for line in text.strip().splitlines())

    parameters = ", ".join(("n", *(s.name for s in streams), *scalars))
    head = f"{outside}def {name}({parameters}):\n"
    text = head + indented(before, 4) + "    for i in range(n):\n" + indented(body, 8)
    caller = sys._getframe(1)
    origin = Origin(caller.f_code.co_filename, caller.f_lineno, body)
    return GridKernel(name, text, streams, scalars, per_iteration, origin)


def unpacked(word: str, signed: bool = False) -> tuple[str, ...]:
    """The bytes of a word, lowest first."""
    if signed:
        return (*(f"({word} << {by}) >> 24" for by in (24, 16, 8)), f"{word} >> 24")
    middle = (f"({word} >> {by}) & 255" for by in (8, 16))
    return (f"{word} & 255", *middle, f"shift_right_logical({word}, 24)")


def packed(values: list[str]) -> str:
    """The word of four results, lowest byte first, before `bias` and `sign` are applied."""
    a, b, c, d = values
    return f"((({a} + bias) + ({b} << 8)) + (({c} << 16) + ({d} << 24))) ^ sign"


def packing(zero: int, result: str) -> dict[str, int]:
    """The scalars `bias` and `sign` for packing results to which the zero point has been added."""
    least = -128 if result == "int8" else 0
    total = (zero - least) * BYTES
    return {"bias": (total + 2**31) % 2**32 - 2**31, "sign": SIGNS if result == "int8" else 0}


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Names with a number suffix."""
    return tuple(f"{name}{i}" for i in range(count))


def balanced(values: list[str], form: str) -> str:
    """Combines values pairwise in a balanced tree; `form` has two placeholders."""
    if len(values) == 1:
        return values[0]
    half = 1 << ((len(values) - 1).bit_length() - 1)
    return form.format(balanced(values[:half], form), balanced(values[half:], form))
