"""Ranks of expressions, and the fixed order of operands.

Source: canonical.md, "Rank" [claims 1-8].
"""

from __future__ import annotations

import functools

from sw.ir.expression import Apply, Const, Expr, Op, Var

#: Sort key of an operand: rank, opaque after arithmetic, size, text.
Key = tuple[int, int, int, str]

#: Larger expressions, in nodes, are not duplicated.
LARGE = 64
CONSTANT, NO_LOOP, OUTERMOST = 0, 1, 2
_ARITHMETIC = frozenset({Op.ADD, Op.SUB, Op.MUL})


@functools.lru_cache(maxsize=1 << 17)
def rank(expr: Expr) -> int:
    """0 for constants, 1 for loop-invariant expressions, otherwise 2 + the depth of the deepest loop."""
    if isinstance(expr, Const):
        return CONSTANT
    if isinstance(expr, Var):
        return NO_LOOP if expr.type.loop is None else OUTERMOST + expr.type.loop
    return max(rank(a) for a in expr.arguments)


@functools.lru_cache(maxsize=1 << 17)
def opaque(expr: Expr) -> bool:
    """Whether it contains more than sums and products of variables."""
    return isinstance(expr, Apply) and (expr.op not in _ARITHMETIC or any(map(opaque, expr.args)))


@functools.lru_cache(maxsize=1 << 17)
def size(expr: Expr) -> int:
    """Number of nodes."""
    return 1 + sum(size(a) for a in expr.arguments)


def small(*exprs: Expr) -> bool:
    """Whether expressions may be duplicated; nested duplication would double the size each time."""
    return sum(map(size, exprs)) <= LARGE


@functools.lru_cache(maxsize=1 << 17)
def key(expr: Expr) -> Key:
    """Sort key of operands: a total order for expressions whose variables differ by name."""
    return rank(expr), int(opaque(expr)), size(expr), str(expr)
