"""Conditional values: conditions merged and sorted by rank; minimum and maximum recognised afterwards."""

import re

import pytest

from sw.canonical import canonicalize
from sw.canonical.passes import Canonicalize
from sw.ir.parse import parse_expr, parse_program

TYPES = {
    "p": "bool",
    "q": "bool",
    "r": "bool",
    "n": "int[0,64]",
    "i": "loop0[0,16]",
    "j": "loop1[0,16]",
    "v": "int[0,99]",
    "w": "int[0,99]",
    "m": "int[-9,9]",
}


def text(source: str) -> str:
    return str(canonicalize(parse_expr(source, TYPES)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("v if p else (v if q else w)", "v if p or q else w"),
        ("(w if q else v) if p else v", "w if p and q else v"),
        ("v if p else (w if q else v)", "w if not p and q else v"),
        ("(v if q else w) if p else v", "w if not q and p else v"),
        ("0 if j < 1 else (0 if n < 5 else (0 if i > 3 else v))", "0 if n <= 4 or 4 <= i or j == 0 else v"),
        ("p if q else True", "not q or p"),
        ("v if v < w else w", "min(v, w)"),
        ("v + 1 if v >= w else w + 1", "1 + max(v, w)"),
        ("(v if v < w else w) if p else (v if v < w else w)", "min(v, w)"),
        ("v if p else v", "v"),
        ("v if True else w", "v"),
        ("3 if p else 5", "3 if p else 5"),
    ],
)
def test_examples(source: str, expected: str) -> None:
    assert text(source) == text(expected)


def test_merging_comes_before_minimum() -> None:
    # Both paths give v: one condition and no minimum of v and w inside.
    assert text("v if p else (v if v < w else w)") == text("v if p or v < w else w")


def test_condition_is_sorted_by_rank() -> None:
    found = text("v if j > 3 else (v if i > 3 else (v if n > 3 else w))")
    assert re.findall(r"\b[nij]\b", found) == ["n", "i", "j"]


def test_guards_of_divisions_stay_in_front() -> None:
    assert text("v // m if m != 0 else 0") == "v // m if m != 0 else 0"
    found = text("m != 0 and v // m == 3 and p")
    assert found.index("m != 0") < found.index("v // m") < found.index("p")


def test_padding_of_a_convolution() -> None:
    source = "0 if i + j < 1 else (0 if i + j - 1 >= 16 else (0 if n < 1 else (0 if n - 1 >= 16 else v)))"
    found = canonicalize(parse_expr(source, TYPES))
    assert str(found).count(" if ") == 1


def test_pass_reaches_every_expression_and_merges_branches() -> None:
    program = parse_program(
        """@program
def f(p: bool, n: int[0, 64]):
    a: Buffer[4096]
    for i in range(8 * 2):
        for j in range(n + n):
            x = j + 3 + n
            if p:
                if j > 2:
                    s = touch(write=a[j + 16*i + 0 : j + 16*i + 8 - 4], when=j + i >= 1 and n > 2, k=j*2*2)
            if p:
                y = 1
            else:
                if j > i:
                    y = 1
                else:
                    y = i + 2
"""
    )
    found = str(Canonicalize()(program))
    expected = """@program
def f(p: bool, n: int[0, 64]):
    a: Buffer[4096]
    for i in range(16):
        for j in range(2 * n):
            x = 3 + n + j
            if p and 3 <= j:
                s = touch(write=a[16 * i + j:4 + 16 * i + j], k=4 * j, when=3 <= n and j != 0 - i)
            if p or i < j:
                y = 1
            else:
                y = 2 + i
"""
    assert found == expected
    assert Canonicalize()(parse_program(found)) == parse_program(found)
