"""Operands of associative operators, independent of grouping."""

from __future__ import annotations

from collections.abc import Sequence

from sw.ir.expression import Apply, Expr, Op

DUAL = {Op.MIN: Op.MAX, Op.MAX: Op.MIN}


def operands(op: Op, expr: Expr) -> list[Expr]:
    """Operands of an associative operator from left to right, however they are grouped."""
    found, todo = [], [expr]
    while todo:
        node = todo.pop()
        if isinstance(node, Apply) and node.op is op:
            todo.extend(reversed(node.args))
        else:
            found.append(node)
    return found


def chain(op: Op, args: Sequence[Expr]) -> Expr:
    """Applies an associative operator to operands, grouped to the left."""
    found = args[0]
    for argument in args[1:]:
        found = Apply(op, (found, argument))
    return found
