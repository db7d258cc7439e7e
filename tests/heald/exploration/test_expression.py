"""Formulas: values, ranges that hold them, and everything else refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heald.exploration.expression import FALSE, TRUE, Range, parse
from hw.errors import InputError

NAMES = ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4 * a * b", 96),
        ("a // b * 10 + a % b", 22),
        ("max(a, b, 9) - min(a, b)", 6),
        ("log2(8) ** 2", 9),
        ("abs(-a)", 8),
        ("a > b and not a == 7", 1),
        ("3 <= b < a <= 8", 1),
        ("a if b > 100 else c", "torus4x4"),
        ("c == 'torus4x4' or c == 'none'", 1),
        ("c != 'none'", 1),
        ("a / 16", 0.5),
    ],
)
def test_values(text: str, value: object) -> None:
    values: dict[str, int | str] = {"a": 8, "b": 3, "c": "torus4x4"}
    found = parse(text, NAMES, "place").value(values)
    assert found == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("__import__('os')", "in \"__import__('os')\" is not part of formulas"),
        ("a.real", "'a.real' in"),
        ("[x for x in (1, 2)]", "is not part of formulas"),
        ("lambda: 1", "is not part of formulas"),
        ("a[0]", "'a[0]' in"),
        ("(a := 3)", "is not part of formulas"),
        ("a @ b", "is not part of formulas"),
        ("a << 4", "is not part of formulas"),
        ("True", "is not part of formulas"),
        ("d + 1", "unknown name 'd'; valid are a, b, c (in 'd + 1')"),
        ("a +", "'a +' is not a formula"),
        ("min(a)", "min in 'min(a)' takes 2 arguments or more"),
        ("abs(a, b)", "abs in 'abs(a, b)' takes 1 argument"),
        ("f'{a}'", "is not part of formulas"),
        (7, "must be a formula as text"),
        ("a" * 2000, "at most 1000 characters"),
        ("-" * 200 + "a", "nest at most"),
        ("a" + ".a" * 490, "is not part of formulas"),
        ("a < 1e39", "a number in 'a < 1e39' is beyond 128 bits"),
        ("a < 1e999", "is beyond 128 bits"),
        ("a < 4" + "0" * 400, "is beyond 128 bits"),
    ],
)
def test_what_is_no_formula_is_refused_with_its_place(text: object, told: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, NAMES, "space.toml: constraints")
    assert str(error.value).startswith("space.toml: constraints: ")
    assert told in str(error.value)


@pytest.mark.parametrize(
    "text", ["a / 0", "a ** 1000", "2 ** 64 ** 2", "c + 1", "c < 'x'", "a == c", "log2(0)", "1e38 * 1e38"]
)
def test_what_has_no_value_is_told_with_the_values(text: str) -> None:
    with pytest.raises(InputError, match="has no value where"):
        parse(text, NAMES, "place").value({"a": 1, "b": 2, "c": "none"})


def test_a_constraint_must_compare() -> None:
    with pytest.raises(InputError, match="must compare something, as \"a <= b\" does, not 'a \\+ b'"):
        parse("a + b", NAMES, "place", comparison=True)


_OPERATORS = ["+", "-", "*", "//", "/", "%", "<", "<=", ">", ">=", "==", "!="]
_LEAVES = st.sampled_from(["a", "b", "1", "2", "7", "-3", "0.5"])
_FORMULAS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(_OPERATORS), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda x: f"(not {x})"),
        inner.map(lambda x: f"abs({x})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"min{t}".replace("'", "")),
        st.tuples(inner, inner).map(lambda t: f"max{t}".replace("'", "")),
        inner.map(lambda x: f"({x} ** 2)"),
    ),
    max_leaves=8,
)
_ENDS = st.tuples(st.integers(-6, 6), st.integers(0, 4)).map(lambda t: (t[0], t[0] + t[1]))


@settings(max_examples=300, deadline=None)
@given(_FORMULAS, _ENDS, _ENDS)
def test_a_range_holds_every_value(text: str, a: tuple[int, int], b: tuple[int, int]) -> None:
    formula = parse(text, ("a", "b"), "place")
    found = formula.possible({"a": Range(*a), "b": Range(*b)})
    assert isinstance(found, Range)
    for x, y in itertools.product(range(a[0], a[1] + 1), range(b[0], b[1] + 1)):
        try:
            value = formula.value({"a": x, "b": y})
        except InputError:
            continue
        assert not isinstance(value, str)
        assert found.low - 1e-9 <= value <= found.high + 1e-9


def test_ranges_decide_comparisons() -> None:
    values = {"a": Range(4, 8), "b": Range(9, 12), "c": frozenset(("x", "y"))}
    assert parse("a < b", NAMES, "place").possible(values) == TRUE
    assert parse("a * 2 <= b - 5", NAMES, "place").possible(values) == FALSE
    assert parse("c == 'z'", NAMES, "place").possible(values) == FALSE
    assert parse("c != 'z'", NAMES, "place").possible(values) == TRUE
