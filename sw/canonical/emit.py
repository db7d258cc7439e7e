"""Writes core form as cheap code: sorted by rank, grouped to the left.

Constants come first, then what no loop changes, then what the outermost loop changes, and so on: each
prefix of a sum does not change in any deeper loop. Differences are subtractions, `x - c * (x // c)` is `x %
c`, and at equal rank common factors stand outside of a sum. What is written reads back as the same core
form.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from hw.semantics import wrap
from sw.canonical.compare import Bound, bound_of
from sw.canonical.facts import fits
from sw.canonical.linear import (
    ZERO,
    Form,
    Monomial,
    exactly,
    monomial_key,
    subtract,
    to_expr,
    to_form,
    without,
)
from sw.canonical.linear import add as add_forms
from sw.canonical.linear import scale as scale_form
from sw.canonical.operands import chain, operands
from sw.canonical.rank import Key, key, may_raise
from sw.ir.expression import ASSOCIATIVE, Apply, Const, Expr, Op, Var, apply, const
from sw.ir.types import LOW

#: Cycles of a product, and of everything else that is cheap, on the sequencer (docs/isa.md).
PRODUCT, STEP = 3, 1

Term = tuple[Monomial, int]


@functools.lru_cache(maxsize=1 << 16)
def emit(expr: Expr) -> Expr:
    """An expression in core form, as it is written out."""
    if isinstance(expr, Const | Var):
        return expr
    assert isinstance(expr, Apply)
    if expr.op in (Op.ADD, Op.MUL, Op.DIV, Op.SELECT) and expr.kind.value == "int":
        return emit_form(to_form(expr))
    bound = bound_of(expr)
    if bound is not None and bound.form.terms:
        found = _comparison(bound)
        if found is not None:
            return found
    return _operator(expr)


def _operator(expr: Apply) -> Expr:
    """An operator on emitted operands."""
    if expr.op in (Op.MIN, Op.MAX):
        return _extreme(expr)
    if expr.op in ASSOCIATIVE:
        return chain(expr.op, [emit(a) for a in operands(expr.op, expr)])
    return Apply(expr.op, tuple(emit(a) for a in expr.args))


def _extreme(expr: Apply) -> Expr:
    """A minimum; of quotients by one number, the quotient of the minimum."""
    args = operands(expr.op, expr)
    if any(map(may_raise, args)):
        return _sorted_chain(expr.op, args)
    quotients = [a for a in args if isinstance(a, Apply) and a.op is Op.DIV]
    divisor = quotients[0].args[1] if len(quotients) == len(args) else None
    if isinstance(divisor, Const) and divisor.value > 0 and all(q.args[1] == divisor for q in quotients):
        return apply(Op.DIV, _sorted_chain(expr.op, [q.args[0] for q in quotients]), divisor)
    return _sorted_chain(expr.op, args)


def _sorted_chain(op: Op, args: Sequence[Expr]) -> Expr:
    """Operands sorted by rank as they are written: core form sorts sums by their first summands."""
    return chain(op, sorted(map(emit, args), key=key))


# Sums


def emit_form(form: Form) -> Expr:
    """A sum of products."""
    form = _with_choice_constants(_with_remainders(form))
    groups: dict[int, list[Term]] = {}
    for monomial, coefficient in form.terms:
        groups.setdefault(monomial_key(monomial)[0], []).append((monomial, coefficient))
    found: Expr | None = const(form.const) if form.const or not form.terms else None
    for level in sorted(groups):
        for value, negative in _factored(groups[level]):
            found = _joined(found, value, negative)
    assert found is not None
    return found


def _joined(found: Expr | None, value: Expr, negative: bool) -> Expr:
    if found is None:
        return apply(Op.SUB, 0, value) if negative else value
    return Apply(Op.SUB if negative else Op.ADD, (found, value))


def cost(form: Form) -> int:
    """Cycles to add up a sum, its atoms left out."""
    total = STEP * (form.count - 1)
    for monomial, coefficient in form.terms:
        total += PRODUCT * (len(monomial) - 1)
        if abs(coefficient) != 1:
            total += STEP if abs(coefficient) & (abs(coefficient) - 1) == 0 else PRODUCT
    return total


@functools.lru_cache(maxsize=1 << 16)
def _with_remainders(form: Form, exact: bool = False) -> Form:
    """The sum with remainders for quotients, where that is cheaper.

    `exact` says that the sum is one over the integers, in which an operand that may wrap is no sum.
    """
    quotients = dict.fromkeys(
        a for m, k in form.terms if k for a in m if isinstance(a, Apply) and a.op is Op.DIV
    )
    for quotient in quotients:
        numerator, divisor = (to_form(a) for a in quotient.args)
        if divisor == ZERO or (exact and not (fits(numerator) and fits(divisor))):
            continue
        cofactor = _cofactor(form, quotient)
        remainder = apply(Op.MOD, *quotient.args)
        rest = subtract(numerator, Form(0, (((remainder,), 1),)))
        for factors, k in _multiples(cofactor, divisor):
            removed = _times(divisor, (quotient, *factors), -k)
            changed = add_forms(form, removed, _times(rest, factors, k))
            if changed.coefficient((quotient,)) == 0:
                # The remainder raises what the quotient would have to stay for.
                changed = without(changed, (quotient,))
            if cost(changed) < cost(form) or (cost(changed) == cost(form) and changed.count < form.count):
                return _with_remainders(changed, exact)
    return form


def _cofactor(form: Form, factor: Expr) -> dict[Monomial, int]:
    """What a factor is multiplied by in a sum, by product."""
    return {_less(m, factor): k for m, k in form.terms if k and factor in m}


def _multiples(cofactor: dict[Monomial, int], divisor: Form) -> Iterator[Term]:
    """Products with coefficients that, times the divisor, are summands of the cofactor."""
    parts = [*divisor.terms, *([((), divisor.const)] if divisor.const else [])]
    if any(k == 0 for _, k in parts) or (abs(divisor.constant or 0) == 1):
        return
    first, c = parts[0]
    for monomial, k in cofactor.items():
        if k % c or (left := _without(monomial, first)) is None:
            continue
        times = k // c
        if all(cofactor.get(tuple(sorted((*m, *left), key=key))) == d * times for m, d in parts):
            yield left, times


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """A product divided by factors of it, each as often as it is named; None where one is missing."""
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _less(monomial: Monomial, factor: Expr) -> Monomial:
    left = list(monomial)
    left.remove(factor)
    return tuple(left)


def _times(form: Form, factors: Monomial, k: int) -> Form:
    """A sum times further factors and a constant."""
    terms: list[Term] = [(tuple(sorted((*m, *factors), key=key)), c) for m, c in form.terms]
    constant = form.const if not factors else 0
    if factors and form.const:
        terms.append((tuple(sorted(factors, key=key)), form.const))
    return scale_form(Form(constant, exactly(0, terms).terms), k)


def _with_choice_constants(form: Form) -> Form:
    """The constant of a sum and the factor of its choice inside of the choice, where that costs less."""
    for monomial, k in form.terms:
        choice = monomial[0]
        if not k or len(monomial) != 1 or not isinstance(choice, Apply) or choice.op is not Op.SELECT:
            continue
        if not form.const and k == 1:
            continue
        sides = [to_form(a) for a in choice.args[1:]]
        shifted = [add_forms(scale_form(s, k), Form(form.const)) for s in sides]
        inside = add_forms(without(form, monomial), Form(-form.const))
        # The choice as one atom: its factor is 1 then, and the constant gone.
        inner = Apply(Op.SELECT, (choice.args[0], *(to_expr(s) for s in shifted)))
        changed = add_forms(inside, Form(0, (((inner,), 1),)))
        if sum(map(_steps, shifted)) <= sum(map(_steps, sides)) and _steps(changed) < _steps(form):
            return changed
    return form


def _steps(form: Form) -> int:
    """Cycles of a sum, with the negation of one that has no positive summand."""
    if not form.terms:
        return 0
    return cost(form) + STEP * (form.const == 0 and all(k < 0 for _, k in form.terms))


def _factored(terms: Sequence[Term]) -> list[tuple[Expr, bool]]:
    """The summands of one rank, common factors outside, positive ones first: value and whether negative."""
    shared = _most_shared(terms)
    if shared is None:
        found = [_product(m, c) for m, c in terms]
    else:
        factor, inside = shared
        outside = [t for t in terms if t not in inside]
        if isinstance(factor, int):
            inner, sign = _group([(m, c // factor) for m, c in inside])
            value = _multiplied([const(factor)], inner)
        else:
            constant, rest = 0, []
            for monomial, c in inside:
                left = _less(monomial, factor)
                if left:
                    rest.append((left, c))
                else:
                    constant += c
            inner, sign = _group(rest, constant)
            value = _multiplied([_atom(factor)], inner)
        found = [*(_factored(outside) if outside else []), (value, sign)]
    return [f for f in found if not f[1]] + [f for f in found if f[1]]


def _multiplied(factors: Sequence[Expr], inner: Expr) -> Expr:
    """Factors times a value: where that is a product, one product of all, sorted by rank."""
    return chain(Op.MUL, sorted((*factors, *operands(Op.MUL, inner)), key=key))


def _group(terms: Sequence[Term], constant: int = 0) -> tuple[Expr, bool]:
    """A sum in parentheses and its sign: negative where all of it is."""
    negative = constant <= 0 and all(c <= 0 for _, c in terms)
    sign = -1 if negative else 1
    form = exactly(sign * constant, [(m, sign * c) for m, c in terms])
    return emit_form(form), negative


def _most_shared(terms: Sequence[Term]) -> tuple[Expr | int, list[Term]] | None:
    """The factor that most products share, and those products; None where none saves a product."""
    counts: dict[Expr | int, int] = {}
    for monomial, c in terms:
        if c == 0:
            continue
        if len(monomial) > 1 or abs(c) > 1:
            for factor in dict.fromkeys(monomial):
                counts[factor] = counts.get(factor, 0) + 1
        if abs(c) > 1 and c != LOW:
            counts[abs(c)] = counts.get(abs(c), 0) + 1
    repeated = [f for f, n in counts.items() if n > 1]
    if not repeated:
        return None

    def order(factor: Expr | int) -> tuple[int, bool, Key, int]:
        # Of the factors that equally many share, the one that stays the same in the most loops.
        if isinstance(factor, int):
            return -counts[factor], True, key(const(0)), factor
        return -counts[factor], False, key(factor), 0

    best = min(repeated, key=order)
    if isinstance(best, int):
        return best, [t for t in terms if abs(t[1]) == best]
    return best, [t for t in terms if best in t[0] and t[1]]


def _product(monomial: Monomial, coefficient: int) -> tuple[Expr, bool]:
    """A product and its sign."""
    negative = coefficient < 0 and coefficient != LOW
    magnitude = -coefficient if negative else coefficient
    if magnitude != 1:
        monomial, magnitude = _with_scaled_choice(monomial, magnitude)
    factors = sorted(map(_atom, monomial), key=key)
    return chain(Op.MUL, factors if magnitude == 1 else [const(magnitude), *factors]), negative


def _with_scaled_choice(monomial: Monomial, factor: int) -> Term:
    """A product times a number, which goes into a choice of two numbers where there is one."""
    for choice in monomial:
        if isinstance(choice, Apply) and choice.op is Op.SELECT:
            a, b = choice.args[1:]
            if isinstance(a, Const) and isinstance(b, Const):
                scaled = (const(wrap(factor * s.value)) for s in (a, b))
                return (*_less(monomial, choice), Apply(Op.SELECT, (choice.args[0], *scaled))), 1
    return monomial, factor


def _atom(expr: Expr) -> Expr:
    """A factor: emitted, where it is no sum that has stayed a factor already."""
    if isinstance(expr, Apply) and expr.op in (Op.DIV, Op.SELECT):
        return _operator(expr)
    return emit(expr)


# Comparisons


def _comparison(bound: Bound) -> Expr | None:
    """A comparison with what the deepest loop changes on one side, and everything else on the other."""
    form = _with_remainders(bound.form, exact=True)
    deepest = max(monomial_key(m)[0] for m, _ in form.terms)
    deep = [(m, c) for m, c in form.terms if monomial_key(m)[0] == deepest]
    rest = [(m, c) for m, c in form.terms if monomial_key(m)[0] != deepest]
    positive = [(m, c) for m, c in deep if c >= 0]
    if rest and (len(positive) in (0, len(deep))):
        sign = 1 if positive else -1
        moving = exactly(0, [(m, sign * c) for m, c in deep])
        still = exactly(
            -sign * bound.form.const if form == bound.form else -sign * form.const,
            [(m, -sign * c) for m, c in rest],
        )
        found = _two_sides(bound.op, still, moving, sign)
        if found is not None:
            return found
    left = exactly(0, [(m, -c) for m, c in form.terms if c < 0])
    right = exactly(0, [(m, c) for m, c in form.terms if c >= 0])
    return _balanced(bound.op, left, right, form.const)


def _two_sides(op: Op, still: Form, moving: Form, sign: int) -> Expr | None:
    """`still` compared with `moving`: at most it (sign 1) or at least it."""
    if op is not Op.LE:
        return _compare(op, moving, still)
    if sign > 0:
        strict = Form(still.const - 1, still.terms)
        if still.const == 1 and still.terms:
            return _compare(Op.LT, strict, moving)
        return _compare(Op.LE, still, moving)
    if still.const == -1 and still.terms:
        return _compare(Op.LT, moving, Form(0, still.terms))
    return _compare(Op.LE, moving, still)


def _balanced(op: Op, left: Form, right: Form, constant: int) -> Expr | None:
    """Left <= right + constant with the constant where it is positive or alone."""
    if op is not Op.LE:
        if not right.terms:
            left, right, constant = right, left, -constant
        if not left.terms:
            return _compare(op, right, Form(-constant))
        if constant > 0:
            return _compare(op, Form(constant, right.terms), left)
        return _compare(op, right, Form(-constant, left.terms))
    if constant == -1 and left.terms and right.terms:
        return _compare(Op.LT, left, right)
    if (constant > 0 and right.terms) or (not left.terms and constant > 0):
        return _compare(Op.LE, left, Form(constant, right.terms))
    if not right.terms:
        return _compare(Op.LE, left, Form(constant))
    return _compare(Op.LE, Form(-constant, left.terms), right)


def _compare(op: Op, left: Form, right: Form) -> Expr | None:
    if not fits(left) or not fits(right):
        return None
    return Apply(op, (emit_form(left), emit_form(right)))
