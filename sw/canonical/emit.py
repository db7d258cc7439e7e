"""Writes canonical expressions as cheap code: sorted by rank, grouped to the left.

Constants come first, then loop-invariant terms, then what the outermost loop changes, and so on. So each
prefix of a sum is invariant in all deeper loops. A sum may have several spellings (`sw.canonical.variants`);
the first of the cheapest is taken. The result reads back as the same core form.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter

from hw.semantics import wrap
from sw.canonical.compare import bound_of
from sw.canonical.facts import fits
from sw.canonical.linear import ZERO, Form, Monomial, Term, less, monomial_key, to_expr, to_form
from sw.canonical.operands import chain, operands
from sw.canonical.rank import key, rank, small
from sw.canonical.variants import quotient_of, variants, with_remainders
from sw.codegen.cost import turns
from sw.ir.expression import ASSOCIATIVE, Apply, Const, Expr, Op, Var, apply, const
from sw.ir.ranges import may_trap
from sw.ir.types import LOW, Kind

#: Number of variants, of those one step away, that are written in full.
FULL = 2
#: Longer sums are written in one way only.
WIDE = 12


def emit(expr: Expr) -> Expr:
    """Writes out an expression in core form."""
    return _SEARCHING.expr(expr)


class _Writer:
    """Writes expressions. Variants of a sum are compared without searching for variants of their parts."""

    def __init__(self, search: bool):
        self.search = search
        self.expr = functools.lru_cache(maxsize=1 << 16)(self._expr)
        self.form = functools.lru_cache(maxsize=1 << 16)(self._form)

    def _expr(self, expr: Expr) -> Expr:
        """Writes out an expression in core form."""
        if isinstance(expr, Const | Var):
            return expr
        assert isinstance(expr, Apply)
        if expr.op in (Op.ADD, Op.MUL, Op.DIV, Op.SELECT, Op.MIN, Op.MAX) and expr.kind is Kind.INT:
            return self.form(to_form(expr))
        if expr.op in (Op.EQ, Op.NE, Op.LE, Op.LT) and expr.args[0].kind is Kind.INT and not may_trap(expr):
            return self.comparison(expr)
        return self.operator(expr)

    def operator(self, expr: Apply) -> Expr:
        """Writes an operator on emitted operands."""
        if expr.op in (Op.MIN, Op.MAX):
            return self.extreme(expr)
        if expr.op in (Op.AND, Op.OR):
            return self.connective(expr)
        if expr.op in ASSOCIATIVE:
            return chain(expr.op, [self.expr(a) for a in operands(expr.op, expr)])
        return Apply(expr.op, tuple(self.expr(a) for a in expr.args))

    def extreme(self, expr: Apply) -> Expr:
        """Writes a minimum or maximum; for quotients by one number, as the quotient of the minimum."""
        args = operands(expr.op, expr)
        written = [v for a in args for v in operands(expr.op, self.expr(a))]
        numbers = [v.value for v in written if isinstance(v, Const)]
        if len(numbers) > 1:
            number = const(functools.reduce(expr.op.meaning, numbers))
            written = [number, *(v for v in written if not isinstance(v, Const))]
        # Sort by the emitted form: core form sorts sums by their first summands.
        found = chain(expr.op, sorted(written, key=key))
        parts = quotient_of(expr)
        if parts is None or may_trap(expr):
            return found
        return _cheapest([self.expr(apply(Op.DIV, *map(to_expr, parts))), found])

    def connective(self, expr: Apply) -> Expr:
        """Writes a connective; merges comparisons of one value with several into one with their extreme."""
        found = [self.expr(a) for a in operands(expr.op, expr)]
        while not may_trap(expr):
            pairs = itertools.combinations(found, 2)
            merged = next(((both, p) for p in pairs if (both := _together(expr.op, *p)) is not None), None)
            if merged is None:
                break
            rest = [x for x in found if x not in merged[1]]
            found = sorted((*rest, merged[0]), key=key)
        return chain(expr.op, found)

    def _form(self, form: Form) -> Expr:
        """Writes a sum of products in the cheapest way found."""
        found = [self.plain(f) for f in dict.fromkeys((with_remainders(form), form))]
        wide = not self.search or len(form.terms) > WIDE or not small(to_expr(form))
        ways = {} if wide else dict.fromkeys(variants(form))
        if ways:
            price = turns(_ROUGH.form(form))
            priced = sorted(((turns(_ROUGH.form(w)), w) for w in ways), key=itemgetter(0))
            found += [self.plain(w) for p, w in priced[:FULL] if p < price]
        return _cheapest(found)

    def plain(self, form: Form) -> Expr:
        """Writes a sum of its terms, or a product with a factor they share."""
        groups: dict[int, list[Term]] = {}
        for monomial, coefficient in form.terms:
            groups.setdefault(monomial_key(monomial)[0], []).append((monomial, coefficient))
        found = [self.sum(form.const, [Form(0, tuple(groups[level])) for level in sorted(groups)])]
        if len(groups) > 1 and _most_shared(form.varying) is not None:
            found.append(self.sum(form.const, [form.varying]))
        negative = form.const <= 0 and all(k < 0 for _, k in form.terms)
        common = -form.common if negative else form.common
        if form.count > 1 and common not in (-1, 0, 1, LOW):
            found.append(_multiplied(const(common), self.form(form // common)))
        return _cheapest(found)

    def sum(self, constant: int, groups: Sequence[Form]) -> Expr:
        """Writes the constant plus each group's sum; leading negative parts are subtracted later."""
        found: Expr | None = const(constant) if constant or not groups else None
        owed: Expr | None = None
        for group in groups:
            for value, negative in self.factored(group):
                if found is None and negative:
                    owed = value if owed is None else Apply(Op.ADD, (owed, value))
                elif found is None:
                    found = value if owed is None else Apply(Op.SUB, (value, owed))
                else:
                    found = Apply(Op.SUB if negative else Op.ADD, (found, value))
        if found is None:
            assert owed is not None
            return _negated(owed)
        return found

    def factored(self, form: Form) -> list[tuple[Expr, bool]]:
        """The summands as (value, negative), common factors pulled out, positive ones first."""
        shared = _most_shared(form)
        if shared is None:
            found = [self.product(m, c) for m, c in form.terms]
        else:
            factor, inside, outside = shared
            negative = inside.const <= 0 and all(c <= 0 for _, c in inside.terms)
            inner = self.form(-inside if negative else inside)
            found = [*self.factored(outside), (_multiplied(self.atom(factor), inner), negative)]
        return sorted(found, key=lambda f: (rank(f[0]), f[1]))

    def product(self, monomial: Monomial, coefficient: int) -> tuple[Expr, bool]:
        """A product and its sign."""
        negative = coefficient < 0 and coefficient != LOW
        magnitude = -coefficient if negative else coefficient
        if magnitude != 1:
            monomial, magnitude = _with_scaled_choice(monomial, magnitude)
        factors = sorted(map(self.atom, monomial), key=key)
        return chain(Op.MUL, factors if magnitude == 1 else [const(magnitude), *factors]), negative

    def atom(self, expr: Expr) -> Expr:
        """Writes a factor; a quotient, select or extreme is not rewritten as a sum again."""
        if isinstance(expr, Apply) and expr.op in (Op.DIV, Op.SELECT, Op.MIN, Op.MAX):
            return self.operator(expr)
        return self.expr(expr)

    def comparison(self, expr: Apply) -> Expr:
        """Writes a comparison as cheaply as possible; on a tie, with the deepest loop's terms on one side."""
        bound = bound_of(expr)
        if bound is not None:
            forms = dict.fromkeys((with_remainders(bound.form, exact=True), bound.form))
            ways = [w for f in forms if f.terms for w in _relations(bound.op, f) if all(map(fits, w[1:]))]
        elif expr.op in (Op.EQ, Op.NE):
            # Modulo 2^32, terms may move to either side.
            left, right = map(to_form, expr.args)
            form = with_remainders((left - right).wrapped())
            ways = [(op, a.wrapped(), b.wrapped()) for op, a, b in _relations(expr.op, form)]
        else:
            ways = []
        ways = sorted(dict.fromkeys(ways), key=lambda w: sum(turns(_ROUGH.form(f)) for f in w[1:]))
        found = [Apply(op, (self.form(a), self.form(b))) for op, a, b in ways[: FULL if self.search else 1]]
        return _cheapest(found) if found else self.operator(expr)


_ROUGH, _SEARCHING = _Writer(search=False), _Writer(search=True)


def _together(op: Op, a: Expr, b: Expr) -> Expr | None:
    """`z <= x and z <= y` as `z <= min(x, y)`, for x and y of the same rank."""
    if not (isinstance(a, Apply) and isinstance(b, Apply) and a.op is b.op and a.op in (Op.LE, Op.LT)):
        return None
    for side in (0, 1):
        x, y = a.args[1 - side], b.args[1 - side]
        if a.args[side] == b.args[side] and rank(x) == rank(y) and not isinstance(x, Const):
            smallest = (op is Op.AND) == (side == 0)
            args = [e for x in (x, y) for e in operands(Op.MIN if smallest else Op.MAX, x)]
            value = chain(Op.MIN if smallest else Op.MAX, sorted(dict.fromkeys(args), key=key))
            return Apply(a.op, (value, a.args[1]) if side else (a.args[0], value))
    return None


def _cheapest(found: Sequence[Expr]) -> Expr:
    """The first of the cheapest expressions."""
    return min(found, key=turns)


def _negated(value: Expr) -> Expr:
    """Returns 0 - value, with the sign in a constant factor if that is cheaper."""
    factors = operands(Op.MUL, value)
    if isinstance(factors[0], Const):
        opposite = chain(Op.MUL, [const(-factors[0].value), *factors[1:]])
        return _cheapest([Apply(Op.SUB, (const(0), value)), opposite])
    return Apply(Op.SUB, (const(0), value))


def _multiplied(factor: Expr, inner: Expr) -> Expr:
    """Multiplies by a factor; if the value is a product, into one product sorted by rank."""
    return chain(Op.MUL, sorted((factor, *operands(Op.MUL, inner)), key=key))


def _most_shared(form: Form) -> tuple[Expr, Form, Form] | None:
    """The factor shared by most products, these without it, and the rest; None if no product is saved."""
    counts: Counter[Expr] = Counter()
    for monomial, c in form.terms:
        if c and (len(monomial) > 1 or abs(c) > 1):
            counts.update(set(monomial))
        if abs(c) > 1 and c != LOW:
            counts[const(abs(c))] += 1
    repeated = [f for f, n in counts.items() if n > 1]
    if not repeated:
        return None
    # Among equally shared factors, take the one invariant in the most loops.
    best = min(repeated, key=lambda f: (-counts[f], isinstance(f, Const), key(f)))
    if not isinstance(best, Const):
        return best, *form.parts(best)
    inside = Form(0, tuple(t for t in form.terms if abs(t[1]) == best.value))
    return best, inside // best.value, Form(0, tuple(t for t in form.terms if abs(t[1]) != best.value))


def _with_scaled_choice(monomial: Monomial, factor: int) -> Term:
    """A product times a number, which moves into a select between two numbers if there is one."""
    for choice in monomial:
        if isinstance(choice, Apply) and choice.op is Op.SELECT:
            a, b = choice.args[1:]
            if isinstance(a, Const) and isinstance(b, Const):
                scaled = (const(wrap(factor * s.value)) for s in (a, b))
                return (*less(monomial, choice), Apply(Op.SELECT, (choice.args[0], *scaled))), 1
    return monomial, factor


def _splits(form: Form) -> Iterator[tuple[Form, Form]]:
    """Ways to split a sum (without constant) into a difference: by deepest loop, by sign, not at all."""
    whole, deepest = form.varying, _depth(form)
    deep = Form(0, tuple(t for t in form.terms if monomial_key(t[0])[0] == deepest))
    still = whole - deep
    signs = {c >= 0 for _, c in deep.terms}
    if still.terms and len(signs) == 1:
        yield (deep, -still) if signs == {True} else (still, -deep)
    positive = Form(0, tuple(t for t in form.terms if t[1] >= 0))
    yield positive, positive - whole
    yield whole, ZERO
    yield ZERO, -whole


def _relations(op: Op, form: Form) -> Iterator[tuple[Op, Form, Form]]:
    """`form` >= 0, == 0 or != 0 as comparisons of two sums over the integers."""
    for right, left in _splits(form):
        for strict in (False, True) if op is Op.LE else (False,):
            constant = form.const + strict
            for shift in dict.fromkeys((max(0, -constant), -constant, 0)):
                sides = left + shift, right + (constant + shift)
                if op is Op.LE:
                    yield Op.LT if strict else Op.LE, *sides
                else:
                    first, second = sorted((sides[1], sides[0]), key=_depth, reverse=True)
                    yield op, first, second


def _depth(form: Form) -> int:
    """The deepest rank in a sum; lowest for a constant."""
    return max((monomial_key(m)[0] for m, _ in form.terms), default=-1)
