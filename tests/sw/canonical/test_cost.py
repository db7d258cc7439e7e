"""The canonical form is correct, never costs more than its input, and is a fixed point."""

import random

import pytest

from sw.canonical import canonicalize
from sw.codegen.cost import turns
from sw.ir.expression import Op, Var, apply
from sw.ir.parse import parse_expr
from sw.ir.types import INT, Kind
from tests.sw.random_expressions import idiom, idiom_variables, result, values
from tests.sw.simplify_cases import load

TYPES = {
    "x": "int[-256,256]",
    "y": "int[-256,256]",
    "i": "loop0[0,16]",
    "j": "loop1[0,16]",
    "w": "int32",
    "v": "int32",
    "p": "bool",
    "q": "bool",
}


def text(source: str) -> str:
    return str(canonicalize(parse_expr(source, TYPES)))


def test_random_expressions() -> None:
    rng = random.Random(11)
    for _ in range(400):
        known = idiom_variables(rng)
        source = idiom(rng, known, rng.randrange(1, 5), rng.choice((Kind.INT, Kind.INT, Kind.BOOL)))
        form = canonicalize(source)
        assert turns(form) <= turns(source), f"{source} -> {form}"
        assert canonicalize(form) == form, str(source)
        for _ in range(12):
            at = values(rng, known)
            assert result(source, at) == result(form, at), f"{source} -> {form} at {at}"


def test_cases_of_another_simplifier() -> None:
    cases, _ = load()
    dearer = [e for c in cases for e in (c.before, c.after) if turns(canonicalize(e)) > turns(e)]
    assert dearer == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("max(min(w, 127), -128)", "min(127, max(-128, w))"),
        ("i % 8 if p else 0", "i % 8 if p else 0"),
        ("w % 16 // 6", "w % 16 // 6"),
        ("w % 3 == 0", "w % 3 == 0"),
        ("-3 < x", "-2 <= x"),
        ("w == -3", "w == -3"),
        ("max(4 * x, -16)", "4 * max(-4, x)"),
        ("j - i", "j - i"),
        ("(x + 7) // 2", "(7 + x) // 2"),
        ("max(x, y) // -10", "max(x, y) // -10"),
        ("w % 5 * (v + 3)", "(3 + v) * (w % 5)"),
        ("x % 3 <= y and x % 3 <= w", "x % 3 <= min(w, y)"),
    ],
)
def test_written_cheaply(source: str, expected: str) -> None:
    assert text(source) == expected


def test_turns_of_operators() -> None:
    x, y = Var("x", INT), Var("y", INT)
    for op, other, expected in (
        (Op.ADD, y, 1),
        (Op.MUL, y, 2),
        (Op.MUL, 8, 1),
        (Op.MUL, 6, 1),
        (Op.DIV, 4, 1),
        (Op.MOD, 6, 36),
        (Op.DIV, y, 36),
        (Op.LT, y, 1),
    ):
        assert turns(apply(op, x, other)) == expected
