"""Random expressions over variables of many kinds, values for them, and equivalent spellings."""

from __future__ import annotations

import random

from sw.ir.expression import (
    ASSOCIATIVE,
    Apply,
    Expr,
    Op,
    Var,
    apply,
    const,
    evaluate,
    truth,
)
from sw.ir.parse import parse_type
from sw.ir.types import Kind

#: Types of the variables a to f: small ranges, full ranges, ranges near the ends.
TYPES = (
    ("int[-256,256]", "int[0,64]", "loop0[0,16]", "loop1[0,4]", "int[-9,10]", "bool"),
    ("int32", "int32", "int[-3,3]", "loop0[0,1024]", "int[2147483000,2147483647]", "bool"),
    ("int[0,8]", "int[0,3]", "loop0[-3,4]", "loop1[1,5]", "int[0,256]", "bool"),
)
_NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, -1, -2, -3, -8, 16, 60, 255, 2**30, 2**31 - 1, -(2**31))
_FACTORS = (2, 3, 4, 5, 6, 7, 8, 16, -2, -3)
_INTEGERS = (
    (Op.ADD,) * 5
    + (Op.SUB, Op.MUL) * 4
    + (Op.DIV, Op.MOD, Op.SELECT) * 3
    + (Op.MIN, Op.MAX) * 2
    + (Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.SHL, Op.SHR)
)
_TRUTHS = (Op.AND, Op.OR) * 3 + (Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE) * 2 + (Op.NOT, Op.SELECT)


def variables(rng: random.Random) -> list[Var]:
    """Variables a to f of one of the sets of types."""
    return [Var(name, parse_type(text)) for name, text in zip("abcdef", rng.choice(TYPES), strict=True)]


def expression(rng: random.Random, known: list[Var], depth: int, kind: Kind) -> Expr:
    """A random expression of at most this depth."""
    fitting = [v for v in known if v.kind is kind]
    if depth <= 0 or rng.random() < 0.12:
        if rng.random() < 0.7:
            return rng.choice(fitting)
        return const(rng.choice(_NUMBERS)) if kind is Kind.INT else truth(rng.random() < 0.5)
    op = rng.choice(_INTEGERS if kind is Kind.INT else _TRUTHS)

    def part(kind: Kind) -> Expr:
        return expression(rng, known, depth - 1, kind)

    if op is Op.SELECT:
        return apply(op, part(Kind.BOOL), part(kind), part(kind))
    if op in (Op.AND, Op.OR):
        return apply(op, part(Kind.BOOL), part(Kind.BOOL))
    if op is Op.NOT:
        return apply(op, part(Kind.BOOL))
    if op in (Op.DIV, Op.MOD, Op.MUL) and rng.random() < 0.7:
        return apply(op, part(Kind.INT), rng.choice(_FACTORS))
    if op in (Op.SHL, Op.SHR) and rng.random() < 0.7:
        return apply(op, part(Kind.INT), rng.choice((0, 1, 2, 3, 8, 31, 33)))
    if op is Op.BIT_AND and rng.random() < 0.5:
        return apply(op, part(Kind.INT), rng.choice((1, 3, 6, 7, 15)))
    if op in (Op.EQ, Op.NE) and rng.random() < 0.15:
        return apply(op, part(Kind.BOOL), part(Kind.BOOL))
    return apply(op, part(Kind.INT), part(Kind.INT))


#: Ranges of the integers of `idiom`: narrow, of 9 bits, of 32 bits, some of each.
RANGES = (
    ("int[0,8]", "int[0,16]", "int[-3,4]", "int[1,5]"),
    ("int[-256,256]",) * 4,
    ("int32",) * 4,
    ("int[0,256]", "int32", "int[-256,256]", "loop0[0,16]"),
)
_LIMITS = (0, 1, 2, 3, 4, 5, 7, 8, -1, -2, -3, -8, 16, 60, 127, -128, 255)
_DIVISORS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 25, 100, 127, 128, 255)
_COMPARISONS = (Op.LT, Op.LE, Op.EQ, Op.GE, Op.GT, Op.NE)


def idiom_variables(rng: random.Random) -> list[Var]:
    """Integers a to d of one of the sets of ranges, and a truth value p."""
    types = (*rng.choice(RANGES), "bool")
    return [Var(name, parse_type(text)) for name, text in zip("abcdp", types, strict=True)]


def idiom(rng: random.Random, known: list[Var], depth: int, kind: Kind) -> Expr:
    """A random expression of what address code is made of: clamps, remainders, choices, quotients, sums."""

    def part(kind: Kind = Kind.INT) -> Expr:
        return idiom(rng, known, depth - 1, kind)

    def limit() -> Expr:
        return const(rng.choice(_LIMITS))

    if kind is Kind.BOOL:
        if depth <= 0:
            return known[-1] if rng.random() < 0.5 else apply(rng.choice(_COMPARISONS), part(), limit())
        if rng.random() < 0.4:
            return apply(rng.choice((Op.AND, Op.OR)), part(kind), part(kind))
        return apply(rng.choice(_COMPARISONS), part(), limit() if rng.random() < 0.4 else part())
    if depth <= 0 or rng.random() < 0.1:
        return rng.choice(known[:-1]) if rng.random() < 0.75 else limit()
    made = {
        "clamp": lambda: apply(Op.MAX, apply(Op.MIN, part(), limit()), limit()),
        "other clamp": lambda: apply(Op.MIN, apply(Op.MAX, part(), limit()), limit()),
        "remainder": lambda: apply(Op.MOD, part(), rng.choice(_DIVISORS)),
        "quotient": lambda: apply(Op.DIV, part(), rng.choice((1, 1, 1, -1)) * rng.choice(_DIVISORS)),
        "choice": lambda: apply(Op.SELECT, part(Kind.BOOL), part(), part()),
        "sum": lambda: apply(Op.ADD, part(), part()),
        "difference": lambda: apply(Op.SUB, rng.choice((part(), limit())), part()),
        "multiple": lambda: apply(Op.MUL, part(), rng.choice(_DIVISORS)),
        "product": lambda: apply(Op.MUL, part(), part()),
        "extreme": lambda: apply(rng.choice((Op.MIN, Op.MAX)), part(), part()),
    }
    return made[rng.choice(list(made))]()


def values(rng: random.Random, known: list[Var]) -> dict[str, int]:
    """Values within the ranges: the ends, small ones, and any."""
    found = {}
    for v in known:
        low, high = v.type.low, v.type.high - 1
        small = max(low, min(high, rng.randrange(-10, 10)))
        found[v.name] = rng.choice((low, high, small, rng.randint(low, high)))
    return found


def result(expr: Expr, at: dict[str, int]) -> int | None:
    """The value, None for an error."""
    try:
        return evaluate(expr, at)
    except ZeroDivisionError:
        return None


def respelled(rng: random.Random, expr: Expr) -> Expr:
    """The expression with operands of associative operators in another order and grouping."""
    if not isinstance(expr, Apply):
        return expr
    if expr.op not in ASSOCIATIVE:
        return Apply(expr.op, tuple(respelled(rng, a) for a in expr.args))
    flat, todo = [], [expr]
    while todo:
        node = todo.pop()
        if isinstance(node, Apply) and node.op is expr.op:
            todo += node.args
        else:
            flat.append(respelled(rng, node))
    return grouped(rng, expr.op, flat)


def grouped(rng: random.Random, op: Op, args: list[Expr]) -> Expr:
    """An associative operator on operands in random order and grouping."""
    left = rng.sample(args, len(args))
    while len(left) > 1:
        i = rng.randrange(len(left) - 1)
        left[i : i + 2] = [Apply(op, (left[i], left[i + 1]))]
    return left[0]


def distributed(rng: random.Random, expr: Expr) -> Expr:
    """The expression with some products multiplied out."""
    if not isinstance(expr, Apply):
        return expr
    args = [distributed(rng, a) for a in expr.args]
    if expr.op is Op.MUL:
        for one, other in (args, args[::-1]):
            if isinstance(one, Apply) and one.op in (Op.ADD, Op.SUB) and rng.random() < 0.7:
                return Apply(one.op, tuple(distributed(rng, apply(Op.MUL, a, other)) for a in one.args))
    return Apply(expr.op, tuple(args))
