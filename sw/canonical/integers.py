"""Core form of sums, products, quotients, remainders, shifts and bitwise operators."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence

from hw.semantics import BITS
from sw.canonical.engine import BUILDERS, build, builder, rewrite
from sw.canonical.facts import fits, form_bounds
from sw.canonical.linear import ZERO, Form, cofactor, collect, from_terms, multiply, to_expr, to_form
from sw.canonical.operands import DUAL, chain, operands
from sw.canonical.rank import key, small
from sw.canonical.settle import settle
from sw.ir.expression import Apply, Const, Expr, Op, apply, const
from sw.ir.ranges import may_trap


def sum_of(forms: Sequence[Form]) -> Expr:
    """The sum of forms, with its selects and extremes merged."""
    if len(forms) == 1:
        return to_expr(forms[0])
    return settle(collect(sum(f.const for f in forms), (t for f in forms for t in f.terms)).wrapped())


def product_of(forms: Sequence[Form]) -> Expr:
    """The product of forms, in any order."""
    return settle(functools.reduce(multiply, sorted(forms, key=lambda f: (f.count, f.order()))))


BUILDERS[Op.ADD] = lambda *args: sum_of([to_form(a) for a in args])
BUILDERS[Op.SUB] = lambda a, b: sum_of([to_form(a), -to_form(b)])
BUILDERS[Op.MUL] = lambda *args: product_of([to_form(a) for a in args])


# Quotients and remainders


@builder(Op.DIV)
def build_quotient(a: Expr, b: Expr) -> Expr:
    """Returns a // b in core form."""
    c = to_form(b).constant
    if c is None:
        return _by_variable(a, b)
    if c == 0:
        return apply(Op.DIV, a, b)
    if c == 1:
        return a
    if c == -1:
        return build(Op.MUL, a, const(-1))
    if c < 0:
        found = rewrite("divide by a negative", x=a, c=c)
        return found if found is not None else apply(Op.DIV, a, b)
    low, high = form_bounds(to_form(a))
    if low // c == high // c:
        found = rewrite("quotient known", x=a, c=c, k=low // c)
        if found is not None:
            return found
    for step in (_multiples, _common_factor, _nested, _upper_half, _negative, _divided_min):
        found = step(a, c)
        if found is not None:
            return found
    return apply(Op.DIV, a, const(c))


def _by_variable(a: Expr, b: Expr) -> Expr:
    """A quotient by a non-constant."""
    found = rewrite("quotient zero", x=a, y=b)
    if found is not None:
        return found
    parts = _multiple_of(to_form(a), to_form(b))
    if parts is not None:
        found = rewrite("multiple of the divisor", x=to_expr(parts[0]), z=b, y=to_expr(parts[1]))
        if found is not None:
            return found
    if a == const(0):
        found = rewrite("nothing divided", x=b)
        if found is not None:
            return found
    return apply(Op.DIV, a, b)


def _multiple_of(form: Form, divisor: Form) -> tuple[Form, Form] | None:
    """Splits off the summands that are multiples of a divisor: factor and rest, or None if there are none."""
    if form == divisor:
        return Form(1), ZERO
    if divisor.const or len(divisor.terms) != 1 or divisor.terms[0][1] == 0:
        return None
    ((factors, k),) = divisor.terms
    quotient, rest = [], []
    for monomial, coefficient in form.terms:
        left = cofactor(monomial, factors)
        if left is None or coefficient % k or coefficient == 0:
            rest.append((monomial, coefficient))
        else:
            quotient.append((left, coefficient // k))
    return (from_terms(quotient), Form(form.const, tuple(rest))) if quotient else None


def _multiples(a: Expr, c: int) -> Expr | None:
    """Takes out multiples of the divisor: coefficients end up in (-c/2, c/2], the constant in [0, c)."""
    form = to_form(a)
    half = (c - 1) // 2
    whole = collect(form.const // c, ((m, (k + half) // c) for m, k in form.terms if (k + half) // c))
    if whole == ZERO:
        return None
    rest = form - whole * c
    if not (small(a) and fits(whole) and fits(rest)):
        return None
    return rewrite("multiple of the divisor", x=to_expr(whole), y=to_expr(rest), z=c)


def _common_factor(a: Expr, c: int) -> Expr | None:
    """Cancels a common factor of numerator and divisor if the remainder is known not to matter."""
    form = to_form(a)
    for g in sorted({math.gcd(k, c) for _, k in form.terms if k} - {1, c}, reverse=True):
        x, y = form.multiples(g)
        low, high = form_bounds(y)
        if low // g == high // g:
            inner = build(Op.DIV, a, const(g))
            if to_form(inner) == x + low // g:
                return rewrite("nested quotient", backwards=True, x=a, c=g, k=c // g)
    return None


def _nested(a: Expr, c: int) -> Expr | None:
    """A quotient inside the numerator."""
    for inner, k, rest in to_form(a).applied(Op.DIV):
        whole, divisor = to_form(inner.args[0]), to_form(inner.args[1]).constant
        if k != 1 or divisor is None or divisor <= 0:
            continue
        if rest == ZERO or all(map(fits, (whole, rest, whole + rest * divisor))):
            numerator = build(Op.ADD, inner.args[0], to_expr((rest * divisor).wrapped()))
            found = rewrite("nested quotient", x=numerator, c=divisor, k=c)
            if found is not None:
                return found
    return None


def _upper_half(a: Expr, c: int) -> Expr | None:
    """(x + 1) // 2."""
    form = to_form(a)
    if c != 2 or form.const != 1 or not small(a):
        return None
    return rewrite("upper half", x=to_expr(form.varying))


def _negative(a: Expr, c: int) -> Expr | None:
    """A numerator with a negative first summand."""
    form = to_form(a)
    if not form.terms or form.terms[0][1] >= 0:
        return None
    opposite = -form + (c - 1)
    return rewrite("quotient of a negative", x=to_expr(opposite), c=c) if fits(opposite) else None


def _divided_min(a: Expr, c: int) -> Expr | None:
    """A multiple of a minimum or maximum, plus a constant, divided."""
    form = to_form(a)
    for inner, k, rest in form.applied(*DUAL):
        sides = [to_form(s) for s in inner.args]
        whole = [s * k + form.const for s in sides]
        if rest.terms or not all(map(fits, (*sides, *whole))):
            return None
        op = inner.op if k > 0 else DUAL[inner.op]
        return rewrite(f"{op.text} divided", x=to_expr(whole[0]), y=to_expr(whole[1]), c=c)
    return None


@builder(Op.MOD)
def build_remainder(a: Expr, b: Expr) -> Expr:
    """Returns a % b in core form."""
    form, c = to_form(a), to_form(b).constant
    if c == 1 and not may_trap(a):
        return const(0)
    if c is not None and c > 0 and c & (c - 1) == 0 and not fits(form):
        # A power of two divides 2^32, so its multiples vanish even if the sum wraps.
        rest = collect(form.const % c, ((m, k % c) for m, k in form.terms))
        if not may_trap(a):
            form, a = rest, to_expr(rest)
    if (c is None or c == 0 or fits(form)) and small(a, b):
        found = rewrite("remainder", x=a, y=b)
        if found is not None:
            return found
    return apply(Op.MOD, a, b)


# Shifts and bits


@builder(Op.SHL)
def build_shift_left(a: Expr, b: Expr) -> Expr:
    """Returns a << b in core form."""
    if isinstance(b, Const):
        found = rewrite("shift left", x=a, c=b)
        assert found is not None or may_trap(a)
        return found if found is not None else apply(Op.SHL, a, b)
    return _shift_of_zero("shift nothing left", Op.SHL, a, b)


@builder(Op.SHR)
def build_shift_right(a: Expr, b: Expr) -> Expr:
    """Returns a >> b in core form."""
    if isinstance(b, Const):
        amount = b.value % BITS
        found = rewrite("shift right", x=a, c=amount) if amount < BITS - 1 else None
        return found if found is not None else apply(Op.SHR, a, const(amount))
    return _shift_of_zero("shift nothing right", Op.SHR, a, b)


def _shift_of_zero(name: str, op: Op, a: Expr, b: Expr) -> Expr:
    found = rewrite(name, x=b) if a == const(0) else None
    return found if found is not None else apply(op, a, b)


_NEUTRAL = {Op.BIT_AND: -1, Op.BIT_OR: 0, Op.BIT_XOR: 0}


def build_bits(op: Op, *args: Expr) -> Expr:
    """Bitwise and, or, xor of any number of values, in core form."""
    constant, others = _NEUTRAL[op], []
    for argument in (x for a in args for x in operands(op, a)):
        if isinstance(argument, Const):
            constant = op.meaning(constant, argument.value)
        else:
            others.append(argument)
    if op is Op.BIT_XOR:
        counts = Counter(others)
        others = [a for a, n in counts.items() for _ in range(n if may_trap(a) else n % 2)]
    else:
        others = list(dict.fromkeys(others))
        dual = Op.BIT_OR if op is Op.BIT_AND else Op.BIT_AND
        plain = {a for a in others if not (isinstance(a, Apply) and a.op is dual)}
        others = [a for a in others if a in plain or may_trap(a) or plain.isdisjoint(operands(dual, a))]
    ends = {Op.BIT_AND: 0, Op.BIT_OR: -1}
    if not others or (constant == ends.get(op) and not any(map(may_trap, others))):
        return const(constant)
    others.sort(key=key)
    if op is Op.BIT_AND and constant >= 0:
        found = rewrite("mask", x=chain(op, others), c=constant)
        if found is not None:
            return found
    return chain(op, ([const(constant)] if constant != _NEUTRAL[op] else []) + others)


BUILDERS.update((op, functools.partial(build_bits, op)) for op in _NEUTRAL)
