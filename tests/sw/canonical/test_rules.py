"""Every rewrite rule is proved; the engine applies only instances of rules; intervals hold."""

import itertools
import random

import pytest

pytest.importorskip("z3")

from sw.canonical import canonicalize, engine
from sw.canonical.facts import inside, span
from sw.canonical.linear import to_expr, to_form
from sw.canonical.rules import BY_NAME, GROUPS, LAWS, RULES, Rule
from sw.canonical.simplify import core
from sw.ir.expression import COMPARISONS, Apply, Expr, Op, Var, apply, evaluate, substitute
from sw.ir.ranges import bounds, bounds_of_operator, may_wrap
from sw.ir.types import HIGH, LOW, Kind, Type
from tests.sw.random_expressions import expression, result, values, variables
from tests.sw.smt import Verdict, prove, prove_errors, prove_over_integers

EVERY = [*LAWS, *RULES]
_HARD = (Op.DIV, Op.MOD, Op.MUL)


@pytest.mark.parametrize("rule", EVERY, ids=lambda r: r.name)
def test_rule_holds_at_8_bits(rule: Rule) -> None:
    assert prove(rule, 8) is Verdict.PROVED


@pytest.mark.slow
@pytest.mark.parametrize("rule", EVERY, ids=lambda r: r.name)
def test_rule_holds_at_32_bits_or_over_the_integers(rule: Rule) -> None:
    parts = [*rule.left.walk(), *rule.right.walk()]
    products = any(isinstance(n, Apply) and n.op in _HARD and len(n.variables()) > 1 for n in parts)
    if products and prove_over_integers(rule, 30) is Verdict.PROVED:
        return
    assert prove(rule, 32) is Verdict.PROVED


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(EVERY) == sum(map(len, GROUPS.values()))


@pytest.mark.parametrize(
    "rule",
    [
        Rule("no room", "x < y", "x + 1 < y + 1"),
        Rule("no room for a minimum", "min(x + t, y + t)", "min(x, y) + t"),
        Rule("factor may be negative", "x * c <= y * c", "x <= y", ("fits(x * c)", "fits(y * c)")),
        Rule("wraps", "x * 2 == y * 2", "x == y"),
        Rule("error vanishes", "0 * (x // y)", "0"),
        Rule("error appears", "p and x // y == 0", "x // y == 0 and p"),
        Rule("rounds towards zero", "(0 - x) // 2", "0 - x // 2"),
        Rule("sum wraps", "(x + c) // c", "x // c + 1", ("0 < c",)),
        Rule("one too many", "x // c <= y", "x <= y * c + c", ("0 < c", "fits(y * c + c)")),
        Rule("wrong way", "x if x < y else y", "max(x, y)"),
        Rule("wrong constant", "x == c and x <= k", "x == c", ("c <= k + 1", "fits(k + 1)")),
    ],
    ids=lambda r: r.name,
)
def test_wrong_rules_are_refuted(rule: Rule) -> None:
    assert prove(rule, 8) is Verdict.REFUTED


def test_wrong_rule_is_refuted_over_the_integers() -> None:
    assert prove_over_integers(Rule("wrong", "x // c", "k", ("0 < c", "k * c <= x"))) is Verdict.REFUTED


def test_rules_that_keep_errors() -> None:
    kept = [r for r in EVERY if r.strict or r.lazy]
    assert len(kept) > 20
    assert [r.name for r in kept if prove_errors(r) is not Verdict.PROVED] == []
    lost = BY_NAME["xor with itself"], BY_NAME["and commutes"], BY_NAME["choice without difference"]
    assert not any(r.strict or r.lazy for r in lost)
    assert all(prove_errors(r) is Verdict.REFUTED for r in lost)
    assert sum(r.lazy for r in GROUPS["choice"]) == 8


def test_applications_are_instances_whose_sides_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    applied: set[str] = set()
    pending: list[tuple[Rule, dict[str, Expr]]] = []
    monkeypatch.setattr(engine, "OBSERVERS", [lambda rule, bound: pending.append((rule, dict(bound)))])
    for _ in range(700):
        known = variables(rng)
        # Names of its own, so that nothing comes out of a cache.
        fresh = [Var(f"{v.name}{rng.randrange(10**6)}", v.type) for v in known]
        renamed = {a.name: b for a, b in zip(known, fresh, strict=True)}
        canonicalize(substitute(expression(rng, known, 4, rng.choice((Kind.INT, Kind.BOOL))), renamed))
        seen = rng.sample(pending, min(6, len(pending)))
        for rule, bound in seen:
            applied.add(rule.name)
            sides = substitute(rule.left, bound), substitute(rule.right, bound)
            free = list({v.name: v for side in sides for v in side.variables()}.values())
            for _ in range(3):
                at = values(rng, free)
                assert result(sides[0], at) == result(sides[1], at), f"{rule} with {bound}"
        pending.clear()
    assert len(applied) > 25


def test_intervals_of_operators_hold_for_all_small_ones() -> None:
    ends = [(a, b) for a in range(-4, 5) for b in range(a, 5)]
    shifts = {Op.SHL, Op.SHR}
    for op in Op:
        if op in (Op.SELECT, Op.NOT, Op.AND, Op.OR):
            continue
        for one, other in itertools.product(ends, ends):
            if op in shifts and other[0] < -1:
                continue
            low, high = bounds_of_operator(op, one, other)
            for a, b in itertools.product(range(one[0], one[1] + 1), range(other[0], other[1] + 1)):
                if b or op not in (Op.DIV, Op.MOD):
                    assert low <= op.meaning(a, b) <= high, (op, one, other, a, b)


def test_intervals_of_operators_hold_near_the_ends() -> None:
    rng = random.Random(8)
    corners = (LOW, LOW + 1, -(2**16), -256, -1, 0, 1, 3, 31, 32, 255, 2**16, 2**30, HIGH - 2, HIGH - 1)
    for _ in range(6000):
        op = rng.choice([o for o in Op if o.arity == 2 and o not in (Op.AND, Op.OR)])
        a, b = (sorted(rng.choices(corners, k=2)) for _ in range(2))
        one, other = (a[0], a[1]), (b[0], b[1])
        low, high = bounds_of_operator(op, one, other)
        x, y = Var("x", Type(Kind.INT, a[0], a[1] + 1)), Var("y", Type(Kind.INT, b[0], b[1] + 1))
        wraps = may_wrap(apply(op, x, y))
        for _ in range(4):
            p, q = (rng.choice((i[0], i[1], rng.randint(*i))) for i in (one, other))
            if q == 0 and op in (Op.DIV, Op.MOD):
                continue
            assert low <= op.meaning(p, q) <= high, (op, one, other, p, q)
            if not wraps and op in (Op.ADD, Op.SUB, Op.MUL):
                exact = {Op.ADD: p + q, Op.SUB: p - q, Op.MUL: p * q}[op]
                assert exact == op.meaning(p, q)


def test_intervals_of_whole_sums_hold() -> None:
    rng = random.Random(9)
    for _ in range(1000):
        known = variables(rng)
        source = core(expression(rng, known, 4, Kind.INT))
        form = to_form(source)
        low, high = span(form)
        for _ in range(6):
            at = values(rng, known)
            value = result(to_expr(form), at)
            if value is not None and inside((low, high)):
                assert low <= value <= high, f"{source} at {at}"


def test_comparisons_decided_by_intervals() -> None:
    x = Var("x", Type(Kind.INT, 3, 9))
    for op in COMPARISONS:
        low, high = bounds(apply(op, x, 9))
        assert all(low <= evaluate(apply(op, x, 9), {"x": v}) <= high for v in range(3, 9))
