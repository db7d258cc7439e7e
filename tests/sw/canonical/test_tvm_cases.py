"""Pairs of equal expressions from another simplifier's tests: values are kept, nearly all reach one form."""

import itertools
import random

from sw.canonical import canonicalize
from sw.ir.expression import Expr, Var
from tests.sw.random_expressions import result
from tests.sw.simplify_cases import Case, holds, load

CASES, OTHERS = load()


def _points(case: Case, count: int) -> list[dict[str, int]]:
    """Values of the variables: the ends, everything near zero for few variables, and any."""
    names = {v.name: v for e in (case.before, case.after) for v in e.variables()}
    rng = random.Random(case.name)
    near = [range(max(v.type.low, -9), min(v.type.high, 10)) for v in names.values()]
    ends = [(v.type.low, v.type.high - 1) for v in names.values()]
    points = [*itertools.product(*ends)]
    points += itertools.islice(itertools.product(*near), 400) if len(near) < 3 else []
    points += [tuple(rng.choice(n) for n in near) for _ in range(count)] if all(near) else []
    points += [tuple(rng.randrange(v.type.low, v.type.high) for v in names.values()) for _ in range(count)]
    return [dict(zip(names, p, strict=True)) for p in points]


def _differences(case: Case, before: Expr, after: Expr) -> list[str]:
    """Where the values or errors of two expressions differ."""
    return [
        f"{case.name}: {before} -> {after} at {at}"
        for at in _points(case, 40)
        if holds(case, at) and result(before, at) != result(after, at)
    ]


def test_values_and_errors_stay_the_same() -> None:
    for case in CASES:
        for side in (case.before, case.after):
            assert _differences(case, side, canonicalize(side)) == []


def test_nearly_all_pairs_reach_one_form() -> None:
    assert len(CASES) + len(OTHERS) == 550
    apart = {c.name: c.text for c in CASES if str(canonicalize(c.before)) != str(canonicalize(c.after))}
    # Three would let the error of a zero divisor vanish, one may wrap.
    assert len(apart) <= 4, apart


def test_canonical_forms_of_the_cases_are_stable() -> None:
    for case in CASES:
        form = canonicalize(case.before)
        assert canonicalize(form) == form
        assert all(isinstance(v, Var) for v in form.variables())
