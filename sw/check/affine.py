"""Numbers that follow the parameters: computed for one choice of values, true for a whole box around it.

A run of a program for certain values decides comparisons, numbers of iterations, roundings. Each decision is
noted as a condition that the values nearby must meet to be decided alike, and the box of values is cut down
until all of it does. What is left is a box for whose values the run takes the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hw.semantics import BITS
from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.types import HIGH, LOW

#: By parameter the smallest and the largest value, both included.
Box = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Affine:
    """A sum of parameters with factors, and its value for the chosen values."""

    factors: tuple[tuple[str, int], ...]
    constant: int
    value: int


Number = int | Affine


def value(a: Number) -> int:
    """The value for the chosen values."""
    return a if isinstance(a, int) else a.value


@dataclass
class Around:
    """The chosen values, and the box around them in which everything so far is decided alike.

    Methods compute on numbers as the expressions and the machine do, in 32 bits.
    """

    values: Mapping[str, int]
    box: Box
    parameters: dict[str, Number] = field(init=False)

    def __post_init__(self) -> None:
        self.box = dict(self.box)
        self.parameters = {
            name: v if self.box[name] == (v, v) else Affine(((name, 1),), 0, v)
            for name, v in self.values.items()
        }

    def range(self, a: Number) -> tuple[int, int]:
        """The smallest and the largest value in the box, both included."""
        if isinstance(a, int):
            return a, a
        ends = [sorted((f * self.box[name][0], f * self.box[name][1])) for name, f in a.factors]
        return a.constant + sum(low for low, _ in ends), a.constant + sum(high for _, high in ends)

    # Conditions

    def at_least(self, a: Number, low: int) -> None:
        """Keep those values for which a number is not below a limit, as it is for the chosen ones."""
        slack = value(a) - low
        assert slack >= 0
        if isinstance(a, int):
            return
        for name, factor in a.factors:
            first, last = self.box[name]
            chosen = self.values[name]
            if factor > 0:
                first = max(first, chosen - slack // factor)
                slack -= factor * (chosen - first)
            else:
                last = min(last, chosen + slack // -factor)
                slack += factor * (last - chosen)
            self.box[name] = first, last

    def keep(self, a: Number) -> int:
        """Keep those values for which a number is what it is; returns it."""
        self.at_least(a, value(a))
        self.at_least(plus(0, a, -1), -value(a))
        return value(a)

    def less(self, a: Number, b: Number) -> bool:
        """Whether a number is below another, everywhere in the box that is left."""
        difference = plus(b, a, -1)
        if value(difference) > 0:
            self.at_least(difference, 1)
            return True
        self.at_least(plus(a, b, -1), 0)
        return False

    def equal(self, a: Number, b: Number) -> bool:
        """Whether two numbers are equal, everywhere in the box that is left."""
        difference = plus(a, b, -1)
        if value(difference) == 0:
            self.keep(difference)
            return True
        if value(difference) < 0:
            self.less(a, b)
        else:
            self.less(b, a)
        return False

    def true(self, a: Number) -> bool:
        """Whether a number is not 0."""
        return not self.equal(a, 0)

    # Arithmetic

    def wrapped(self, a: Number) -> Number:
        """The number modulo 2^32; it wraps equally often everywhere in the box that is left."""
        times = (value(a) - LOW) >> BITS
        self.at_least(a, LOW + (times << BITS))
        self.at_least(plus(0, a, -1), -(HIGH - 1 + (times << BITS)))
        return plus(a, -(times << BITS), 1)

    def add(self, a: Number, b: Number) -> Number:
        """The sum."""
        return self.wrapped(plus(a, b, 1))

    def subtract(self, a: Number, b: Number) -> Number:
        """The difference."""
        return self.wrapped(plus(a, b, -1))

    def multiply(self, a: Number, b: Number) -> Number:
        """The product."""
        if isinstance(a, int):
            a, b = b, a
        return self.wrapped(plus(0, a, self.keep(b)))

    def divide(self, a: Number, b: Number) -> Number:
        """The quotient, rounded down; raises `ZeroDivisionError`."""
        divisor = self.keep(b)
        if divisor == 0:
            raise ZeroDivisionError("division by zero")
        if isinstance(a, Affine) and not any(f % divisor for _, f in a.factors):
            factors = tuple((name, f // divisor) for name, f in a.factors)
            return self.wrapped(Affine(factors, a.constant // divisor, a.value // divisor))
        quotient = value(a) // divisor
        # The remainder has the sign of the divisor.
        rest = plus(a, quotient * divisor, -1)
        low, high = (0, divisor - 1) if divisor > 0 else (divisor + 1, 0)
        self.at_least(rest, low)
        self.at_least(plus(0, rest, -1), -high)
        return self.wrapped(quotient)

    def remainder(self, a: Number, b: Number) -> Number:
        """What a division leaves; raises `ZeroDivisionError`."""
        divisor = self.keep(b)
        if divisor == 0:
            raise ZeroDivisionError("division by zero")
        quotient = plus(0, self.divide(a, divisor), divisor)
        return self.wrapped(plus(a, quotient, -1))

    def minimum(self, a: Number, b: Number) -> Number:
        """The smaller."""
        return b if self.less(b, a) else a

    def maximum(self, a: Number, b: Number) -> Number:
        """The larger."""
        return b if self.less(a, b) else a

    def shift_left(self, a: Number, b: Number) -> Number:
        """The number times a power of two."""
        return self.wrapped(plus(0, a, 1 << self.keep(b) % BITS))

    def shift_right(self, a: Number, b: Number) -> Number:
        """The number divided by a power of two."""
        return self.divide(a, 1 << self.keep(b) % BITS)

    def bits(self, op: Op, a: Number, b: Number) -> Number:
        """Bitwise operators; masks of low bits are remainders."""
        if op is Op.BIT_AND and isinstance(b, int) and b >= 0 and b & (b + 1) == 0:
            return self.remainder(a, b + 1)
        result: int = op.meaning(self.keep(a), self.keep(b))
        return result

    def evaluate(self, expr: Expr, values: Mapping[str, Number]) -> Number:
        """The value of an expression; as `sw.ir.expression.evaluate`."""
        if isinstance(expr, Const):
            return expr.value
        if isinstance(expr, Var):
            return values[expr.name]
        assert isinstance(expr, Apply)
        op, args = expr.op, expr.args
        first = self.evaluate(args[0], values)
        if op is Op.SELECT:
            return self.evaluate(args[1] if self.true(first) else args[2], values)
        if op is Op.NOT:
            return int(not self.true(first))
        if op in (Op.AND, Op.OR):
            decided = op is Op.OR
            return int(decided) if self.true(first) == decided else self.evaluate(args[1], values)
        return self.apply(op, first, self.evaluate(args[1], values))

    def apply(self, op: Op, a: Number, b: Number) -> Number:
        """An operator of two numbers."""
        match op:
            case Op.LT:
                return int(self.less(a, b))
            case Op.GT:
                return int(self.less(b, a))
            case Op.LE:
                return int(not self.less(b, a))
            case Op.GE:
                return int(not self.less(a, b))
            case Op.EQ:
                return int(self.equal(a, b))
            case Op.NE:
                return int(not self.equal(a, b))
            case Op.BIT_AND | Op.BIT_OR | Op.BIT_XOR:
                return self.bits(op, a, b)
        return _ARITHMETIC[op](self, a, b)


_ARITHMETIC = {
    Op.ADD: Around.add,
    Op.SUB: Around.subtract,
    Op.MUL: Around.multiply,
    Op.DIV: Around.divide,
    Op.MOD: Around.remainder,
    Op.MIN: Around.minimum,
    Op.MAX: Around.maximum,
    Op.SHL: Around.shift_left,
    Op.SHR: Around.shift_right,
}


def plus(a: Number, b: Number, times: int = 1) -> Number:
    """The first and so many times the second, as whole numbers that do not wrap."""
    if isinstance(b, int):
        if isinstance(a, int):
            return a + times * b
        return Affine(a.factors, a.constant + times * b, a.value + times * b)
    factors = dict(a.factors) if isinstance(a, Affine) else {}
    for name, factor in b.factors:
        factors[name] = factors.get(name, 0) + times * factor
    left = tuple((name, f) for name, f in sorted(factors.items()) if f)
    constant = (a if isinstance(a, int) else a.constant) + times * b.constant
    return Affine(left, constant, value(a) + times * b.value) if left else constant
