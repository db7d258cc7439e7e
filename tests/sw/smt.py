"""Proofs of rewrite rules by an SMT solver: both sides are equal wherever the conditions hold.

Needs `z3-solver`, which only development installs. A rule is proved over bit vectors of a width, where every
name stands for every value, or over the integers. Equal means: an error on one side is an error on the other,
and without an error the values are the same.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass, field
from typing import Any

import z3

from hw.semantics import BITS
from sw.canonical.engine import exact, holds
from sw.canonical.rules import Rule, is_constant
from sw.ir.expression import Apply, Const, Expr, Op, Var, const
from sw.ir.types import Kind


class Verdict(enum.Enum):
    """What the solver said."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass
class _Bits:
    """Expressions as bit vectors of a width; `errors` says where a divisor is zero."""

    width: int
    names: dict[str, Any] = field(default_factory=dict)
    #: Whether what names stand for can raise: a symbol says so.
    raising: bool = False

    def name(self, variable: Var) -> Any:
        """A name as a symbol."""
        if variable.name not in self.names:
            bits = (
                z3.Bool(variable.name) if variable.kind is Kind.BOOL else z3.BitVec(variable.name, self.width)
            )
            self.names[variable.name] = bits
        return self.names[variable.name]

    def value(self, expr: Expr) -> tuple[Any, Any]:
        """Value and error of an expression."""
        if isinstance(expr, Const):
            constant = (
                z3.BoolVal(bool(expr.value))
                if expr.type is Kind.BOOL
                else z3.BitVecVal(expr.value, self.width)
            )
            return constant, z3.BoolVal(False)
        if isinstance(expr, Var):
            may = self.raising and not is_constant(expr.name)
            return self.name(expr), z3.Bool(f"{expr.name} raises") if may else z3.BoolVal(False)
        assert isinstance(expr, Apply)
        parts = [self.value(a) for a in expr.args]
        values, errors = [p[0] for p in parts], [p[1] for p in parts]
        a = values[0]
        if expr.op is Op.SELECT:
            return z3.If(a, values[1], values[2]), z3.Or(errors[0], z3.If(a, errors[1], errors[2]))
        if expr.op is Op.AND:
            return z3.And(*values), z3.Or(errors[0], z3.And(a, errors[1]))
        if expr.op is Op.OR:
            return z3.Or(*values), z3.Or(errors[0], z3.And(z3.Not(a), errors[1]))
        if expr.op in (Op.DIV, Op.MOD):
            errors.append(values[1] == 0)
        return self.operator(expr.op, values), z3.Or(*errors)

    def operator(self, op: Op, args: list[Any]) -> Any:
        """An operator without conditional evaluation."""
        if op is Op.NOT:
            return z3.Not(args[0])
        a, b = args
        if op in (Op.SHL, Op.SHR):
            # Amounts are taken modulo the width, which is a power of two.
            b = b & (self.width - 1)
        return _OPERATORS[op](a, b)

    def exact(self, expr: Expr) -> Any:
        """A term of a condition over the integers, as a bit vector wide enough for it."""
        if isinstance(expr, Const):
            return z3.BitVecVal(expr.value, max(self.width, 4))
        if isinstance(expr, Var):
            return self.name(expr)
        assert isinstance(expr, Apply)
        a, b = (self.exact(x) for x in expr.args)
        widths = a.size(), b.size()
        if expr.op is Op.SHL:
            # 2^width stands for everything that does not fit.
            size = self.width + 2
            large = z3.BitVecVal(1 << self.width, size)
            amount = z3.SignExt(size - b.size(), b) if size > b.size() else b
            return z3.If(amount >= self.width, large, z3.BitVecVal(1, size) << amount)
        size = sum(widths) if expr.op is Op.MUL else max(widths) + 1
        a, b = (z3.SignExt(size - x.size(), x) for x in (a, b))
        return _OPERATORS[expr.op](a, b)

    def condition(self, expr: Expr, fits: bool) -> Any:
        """Whether a condition of a rule holds."""
        exact = self.exact(expr)
        if not fits:
            return exact
        low, high = -(1 << self.width - 1), (1 << self.width - 1) - 1
        return z3.And(exact >= low, exact <= high) if exact.size() > self.width else z3.BoolVal(True)


def _floor_divide(a: Any, b: Any) -> Any:
    quotient = a / b
    inexact = z3.SRem(a, b) != 0
    return z3.If(z3.And(inexact, (a < 0) != (b < 0)), quotient - 1, quotient)


_OPERATORS: dict[Op, Any] = {
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.BIT_OR: lambda a, b: a | b,
    Op.BIT_XOR: lambda a, b: a ^ b,
    Op.BIT_AND: lambda a, b: a & b,
    Op.SHL: lambda a, b: a << b,
    Op.SHR: lambda a, b: a >> b,
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.DIV: _floor_divide,
    # Z3's % on bit vectors has the sign of the divisor, as ours.
    Op.MOD: lambda a, b: a % b,
    Op.MIN: lambda a, b: z3.If(a <= b, a, b),
    Op.MAX: lambda a, b: z3.If(a >= b, a, b),
}


#: Names whose values are gone through one by one at small widths: products of symbols are hard for a solver.
ONE_BY_ONE = {
    "multiple of the divisor": ("z",),
    "nested quotient": ("c", "k"),
}


def prove(rule: Rule, bits: int, timeout: float = 60.0) -> Verdict:
    """Prove or refute a rule over bit vectors of a width (a power of two); the time limit is in seconds."""
    names = ONE_BY_ONE.get(rule.name, ()) if bits <= 8 else ()
    low, high = -(1 << bits - 1), 1 << bits - 1
    alone = [c for c in rule.conditions if all(v.name in names for v in c.expr.variables())]
    for chosen in itertools.product(range(low, high), repeat=len(names)):
        bound = {n: const(v) for n, v in zip(names, chosen, strict=True)}
        if not all(low <= exact(c.expr, bound).const < high if c.fits else holds(c, bound) for c in alone):
            continue
        world = _Bits(bits, {n: z3.BitVecVal(v, bits) for n, v in zip(names, chosen, strict=True)})
        verdict = _prove(rule, world, timeout)
        if verdict is not Verdict.PROVED:
            return verdict
    return Verdict.PROVED


def prove_errors(rule: Rule, bits: int = 8, timeout: float = 60.0) -> Verdict:
    """Prove or refute that a rule keeps errors in what its names stand for: all raise where one side does."""
    world = _Bits(bits, raising=True)
    left, right = world.value(rule.left), world.value(rule.right)
    conditions = [world.condition(c.expr, c.fits) for c in rule.conditions]
    return _check([*conditions, left[1] != right[1]], timeout)


def _prove(rule: Rule, world: _Bits, timeout: float) -> Verdict:
    conditions = [world.condition(c.expr, c.fits) for c in rule.conditions]
    left, right = world.value(rule.left), world.value(rule.right)
    wrong = z3.Or(left[1] != right[1], z3.And(z3.Not(left[1]), left[0] != right[0]))
    return _check([*conditions, wrong], timeout)


def _check(assertions: list[Any], timeout: float) -> Verdict:
    solver = z3.Solver()
    solver.set("timeout", int(timeout * 1000))
    solver.add(*assertions)
    result = solver.check()
    if result == z3.unsat:
        return Verdict.PROVED
    return Verdict.REFUTED if result == z3.sat else Verdict.UNKNOWN


@dataclass
class _Integers:
    """Expressions over the integers; a quotient and its remainder are symbols with their equation."""

    names: dict[str, Any] = field(default_factory=dict)
    facts: list[Any] = field(default_factory=list)
    divisions: dict[tuple[Any, Any], tuple[Any, Any]] = field(default_factory=dict)
    #: What each factor is multiplied with.
    products: dict[str, dict[str, Any]] = field(default_factory=dict)

    def name(self, variable: Var) -> Any:
        """A name as a symbol within 32 bits."""
        if variable.name not in self.names:
            if variable.kind is Kind.BOOL:
                self.names[variable.name] = z3.Bool(variable.name)
            else:
                symbol = z3.Int(variable.name)
                self.names[variable.name] = symbol
                self.facts.append(within(symbol))
        return self.names[variable.name]

    def value(self, expr: Expr) -> Any:
        """The value of an expression; divisors are not zero."""
        if isinstance(expr, Const):
            return z3.BoolVal(bool(expr.value)) if expr.type is Kind.BOOL else z3.IntVal(expr.value)
        if isinstance(expr, Var):
            return self.name(expr)
        assert isinstance(expr, Apply)
        args = [self.value(a) for a in expr.args]
        if expr.op is Op.SELECT:
            return z3.If(*args)
        if expr.op in (Op.AND, Op.OR):
            return (z3.And if expr.op is Op.AND else z3.Or)(*args)
        if expr.op is Op.NOT:
            return z3.Not(args[0])
        if expr.op in (Op.DIV, Op.MOD):
            quotient, remainder = self.division(*args)
            return quotient if expr.op is Op.DIV else remainder
        if expr.op in (Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.SHL, Op.SHR):
            raise NotImplementedError(f"{expr.op.text} over the integers")
        if expr.op is Op.MUL:
            self.product(*args)
            self.product(*reversed(args))
        return _OPERATORS[expr.op](*args)

    def division(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Quotient and remainder, rounded towards minus infinity."""
        key = (a.sexpr(), b.sexpr())
        if key not in self.divisions:
            quotient, remainder = z3.Ints(f"q{len(self.divisions)}_ r{len(self.divisions)}_")
            self.facts += [
                b != 0,
                a == quotient * b + remainder,
                z3.If(b > 0, z3.And(remainder >= 0, remainder < b), z3.And(b < remainder, remainder <= 0)),
            ]
            self.divisions[key] = quotient, remainder
            self.product(quotient, b)
        return self.divisions[key]

    def product(self, a: Any, factor: Any) -> None:
        """Say that products with one factor are monotonous in the other: no solver finds that soon."""
        others = self.products.setdefault(factor.sexpr(), {})
        if a.sexpr() in others:
            return
        for other in others.values():
            self.facts += [*_monotonous(a, other, factor), *_monotonous(other, a, factor)]
        others[a.sexpr()] = a


def _monotonous(a: Any, b: Any, factor: Any) -> list[Any]:
    """A < b brings products at least the factor apart, in the order that its sign says."""
    return [
        z3.Implies(z3.And(a < b, factor > 0), a * factor + factor <= b * factor),
        z3.Implies(z3.And(a < b, factor < 0), a * factor + factor >= b * factor),
    ]


def within(value: Any) -> Any:
    """Whether a whole number lies within 32 bits."""
    return z3.And(value >= -(1 << BITS - 1), value < 1 << BITS - 1)


def prove_over_integers(rule: Rule, timeout: float = 60.0) -> Verdict:
    """Prove or refute that both sides are equal over the integers, all names within 32 bits.

    Divisors must not be zero: that errors stay is what the proof at 8 bits shows. The sides are reckoned
    without wrapping, so the rule holds where what is divided, compared and chosen among on its left side lies
    within 32 bits, which its conditions must say.
    """
    world = _Integers()
    try:
        left, right = world.value(rule.left), world.value(rule.right)
        conditions = [within(world.value(c.expr)) if c.fits else world.value(c.expr) for c in rule.conditions]
    except NotImplementedError:
        return Verdict.UNKNOWN
    return _check([*world.facts, *conditions, left != right], timeout)
