"""The names that an expression uses, remembered: they are asked for again and again."""

from __future__ import annotations

import functools

from sw.ir.expression import Apply, Expr, Var
from sw.ir.scope import depth_of


@functools.lru_cache(maxsize=1 << 16)
def names(expr: Expr) -> frozenset[str]:
    """The names of an expression's variables."""
    if isinstance(expr, Var):
        return frozenset((expr.name,))
    if not isinstance(expr, Apply):
        return frozenset()
    found: frozenset[str] = frozenset()
    for argument in expr.args:
        found |= names(argument)
    return found


@functools.lru_cache(maxsize=1 << 16)
def depth(expr: Expr) -> int | None:
    """The depth of the deepest loop that an expression depends on; None where it depends on none."""
    return depth_of(expr)
