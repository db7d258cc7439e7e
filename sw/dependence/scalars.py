"""Scalar expressions evaluated over symbolic integers and truth values."""

from __future__ import annotations

from dataclasses import dataclass, field

from hw.semantics import BITS
from sw.dependence.conditions import Atom, Condition, Truth, atoms, between, decide, is_true, negate
from sw.dependence.forms import (
    Facts,
    Form,
    Symbols,
    Value,
    add,
    bounds,
    fits,
    make,
    scale,
    unwrapped,
    weigh,
    whole,
)
from sw.ir.expression import COMPARISONS, Apply, Const, Expr, Op, Var
from sw.ir.linear import linear
from sw.ir.ranges import bounds_of_operator
from sw.ir.types import LOW, Kind

Scalar = Value | Condition
_SUMS = (Op.ADD, Op.SUB, Op.MUL)
_COMMUTES = (Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.MIN, Op.MAX, Op.MUL)


@dataclass
class Evaluator:
    """Evaluates expressions; `values` holds the current value of every variable."""

    symbols: Symbols = field(default_factory=Symbols)
    values: dict[str, Scalar] = field(default_factory=dict)

    def integer(self, expr: Expr, facts: Facts) -> Value:
        """The value of an integer expression."""
        found = self.value(expr, facts)
        assert not isinstance(found, Condition)
        return found

    def truth(self, expr: Expr, facts: Facts) -> Truth:
        """The value of a condition; a symbolic one that the facts decide becomes a number."""
        found = self.value(expr, facts)
        if isinstance(found, int):
            return found
        assert isinstance(found, Condition)
        decided = decide(found, facts)
        return found if decided is None else int(decided)

    def value(self, expr: Expr, facts: Facts) -> Scalar:
        """The value of an expression."""
        if isinstance(expr, Const):
            return expr.value
        if isinstance(expr, Var):
            known = self.values.get(expr.name)
            if known is None:
                known = self.values[expr.name] = self.unknown(expr)
            return known
        assert isinstance(expr, Apply)
        op = expr.op
        if op in _SUMS:
            return self._sum(expr, facts)
        if op is Op.SELECT:
            return self._select(expr, facts)
        if op in (Op.AND, Op.OR, Op.NOT):
            return self._connective(expr, facts)
        args = [self.value(a, facts) for a in expr.args]
        a, b = args
        if isinstance(a, int) and isinstance(b, int):
            return self.arithmetic(op, a, b, facts)
        if isinstance(a, Condition) or isinstance(b, Condition) or expr.args[0].kind is Kind.BOOL:
            return self.equal(op, a, b)
        if op in COMPARISONS:
            return self.compare(op, a, b)
        return self.arithmetic(op, a, b, facts)

    def _sum(self, expr: Apply, facts: Facts) -> Value:
        """The value of a sum, all at once."""
        form = linear(expr)
        if expr in form.factors:
            # A product of two non-constants.
            a, b = (self.integer(arg, facts) for arg in expr.args)
            return self.arithmetic(expr.op, a, b, facts)
        parts = ((self.integer(atom, facts), factor) for atom, factor in form.factors.items())
        return make(*weigh(form.constant, parts))

    def unknown(self, variable: Var) -> Scalar:
        """A variable known by its type only."""
        if variable.kind is Kind.BOOL:
            return is_true(self.symbols.fresh(variable.name, 0, 1))
        return self.symbols.fresh(variable.name, variable.type.low, variable.type.high - 1)

    def arithmetic(self, op: Op, a: Value, b: Value, facts: Facts) -> Value:
        """The value of an operator of integers."""
        if isinstance(a, int) and isinstance(b, int):
            try:
                return int(op.meaning(a, b))
            except ZeroDivisionError:
                # A division by zero fails at run time, so any value will do.
                return self.symbols.fresh("undefined")
        if op is Op.MUL and (isinstance(a, int) or isinstance(b, int)):
            return scale(a, b) if isinstance(b, int) else scale(b, int(a))  # type: ignore[arg-type]
        if op is Op.SHL and isinstance(b, int):
            return scale(a, 1 << b % BITS)
        if op in (Op.MIN, Op.MAX):
            decided = self._pick(op, a, b, facts)
            if decided is not None:
                return decided
        if op is Op.SHR and isinstance(b, int) and b % BITS < BITS - 1:
            op, b = Op.DIV, 1 << b % BITS
        divided = False
        if op in (Op.DIV, Op.MOD) and isinstance(a, Form) and isinstance(b, int) and b > 0 and fits(a, facts):
            split = self._divide(op, a, b, facts)
            if split is not None:
                return split
            divided = fits(a)
        if op in _COMMUTES and _order(b) < _order(a):
            a, b = b, a
        limits = bounds_of_operator(op, bounds(a, facts), bounds(b, facts))
        # Facts hold only here; a shared symbol must have bounds that always hold.
        limits_always = bounds_of_operator(op, bounds(a), bounds(b))
        if limits[0] == limits[1]:
            return limits[0]
        kind, of, by = (op.text, a, b) if divided and isinstance(b, int) else ("", 0, 0)
        return self.symbols.named((op, a, b), f"({a} {op.text} {b})", limits_always, kind, of, by)

    def _divide(self, op: Op, a: Form, by: int, facts: Facts) -> Value | None:
        """Quotient or remainder of a form that does not wrap; multiples of the divisor are taken out.

        None if the rest inside may wrap.
        """
        inside = {s: f for s, f in a.terms if f % by}
        outside = tuple((s, f // by) for s, f in a.terms if f % by == 0)
        constant = a.constant % by
        multiple = a.constant // by
        rest: Value = Form(tuple(inside.items()), constant) if inside else constant
        quotient: Value = Form(outside, multiple) if outside else multiple
        low, high = whole(rest, facts)
        if low // by == high // by:
            turns = low // by
            return add(quotient, turns) if op is Op.DIV else add(rest, -turns * by)
        if not fits(rest) or not isinstance(rest, Form):
            return None
        limits = bounds_of_operator(op, bounds(rest), (by, by))
        name = f"({rest} {op.text} {by})"
        found = self.symbols.named((op, rest, by), name, limits, op.text, rest, by)
        return add(quotient, found) if op is Op.DIV else found

    @staticmethod
    def _pick(op: Op, a: Value, b: Value, facts: Facts) -> Value | None:
        """The smaller or larger of two forms, if it is known which; neither wraps."""
        if a == b:
            return a
        if fits(a, facts) and fits(b, facts):
            rest = _unwrapped_difference(a, b)
            if rest is not None:
                low, high = whole(rest, facts)
                if high <= 0 or low >= 0:
                    return a if (op is Op.MIN) == (high <= 0) else b
        return None

    def compare(self, op: Op, a: Value, b: Value) -> Truth:
        """A comparison of two integers."""
        if op in (Op.GT, Op.LE):
            found = self.compare(Op.LT, b, a)
            return found if op is Op.GT else negate(found)
        if op in (Op.GE, Op.NE):
            return negate(self.compare(Op.LT if op is Op.GE else Op.EQ, a, b))
        if a == b:
            return int(op is Op.EQ)
        if fits(a) and fits(b):
            rest = _unwrapped_difference(a, b)
            if rest is not None:
                low, high = whole(rest)
                if op is Op.LT:
                    if isinstance(rest, int) or high < 0 or low >= 0:
                        return int(high < 0)
                    return between(rest, 4 * LOW, -1)
                if isinstance(rest, int) or low > 0 or high < 0:
                    return int(low == high == 0)
                equal = self.symbols.named(("==", rest), f"({a} == {b})", (0, 1))
                return between(rest, 0, 0, Atom(equal.terms, 1, 1))
        if op is Op.EQ and _order(b) < _order(a):
            a, b = b, a
        return is_true(self.symbols.named((op, a, b), f"({a} {op.text} {b})", (0, 1)))

    def compared(self, op: Op, a: Value, b: Value, facts: Facts) -> Truth:
        """A comparison of two numbers that do not wrap; one that the facts decide becomes a number."""
        found = self.compare(op, a, b)
        decided = decide(found, facts)
        return found if decided is None else int(decided)

    def equal(self, op: Op, a: Scalar, b: Scalar) -> Truth:
        """`==` or `!=` of truth values."""
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int):
            assert not isinstance(a, Form)
            return a if (op is Op.EQ) == bool(b) else negate(a)
        if a == b:
            return int(op is Op.EQ)
        return is_true(self.symbols.named((op, a, b), "equal", (0, 1)))

    def _connective(self, expr: Apply, facts: Facts) -> Truth:
        parts = [self.truth(a, facts) for a in expr.args]
        return negate(parts[0]) if expr.op is Op.NOT else self.connect(expr.op.text, *parts)

    def connect(self, word: str, a: Truth, b: Truth) -> Truth:
        """`and` or `or` of two truth values."""
        absorbing = int(word == Op.OR.text)
        if absorbing in (a, b):
            return absorbing
        if isinstance(a, int):
            return b
        if isinstance(b, int) or a == b:
            return a
        key = self.symbols.named((word, a, b), word, (0, 1))
        return Condition(word, (a, b), key=atoms(is_true(key), True)[0])

    def _select(self, expr: Apply, facts: Facts) -> Scalar:
        condition = self.truth(expr.args[0], facts)
        if isinstance(condition, int):
            return self.value(expr.args[1 if condition else 2], facts)
        a, b = self.value(expr.args[1], facts), self.value(expr.args[2], facts)
        return self.either(condition, a, b)

    def either(self, condition: Condition, a: Scalar, b: Scalar) -> Scalar:
        """One of two values, as at a phi node; equal choices are one symbol."""
        if a == b:
            return a
        key = "select", condition, a, b
        if isinstance(a, Condition) or isinstance(b, Condition):
            return is_true(self.symbols.named(key, "phi", (0, 1)))
        (low, high), (other_low, other_high) = bounds(a), bounds(b)
        return self.symbols.named(key, "phi", (min(low, other_low), max(high, other_high)))


def _unwrapped_difference(a: Value, b: Value) -> Value | None:
    """A - b over the integers, for forms that do not wrap; None if its factors wrap."""
    factors, constant = weigh(0, ((a, 1), (b, -1)))
    return unwrapped(factors, constant) if any(factors.values()) else constant


def _order(a: Value) -> tuple[int, ...]:
    if isinstance(a, int):
        return (0, a)
    return (1, *(n for s, f in a.terms for n in (s.number, f)), a.constant)
