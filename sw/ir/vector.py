"""Evaluates an expression for many values of its variables at once, with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hw.semantics import BITS
from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.types import HIGH, LOW

Array = npt.NDArray[np.int64]
#: Values of a variable: one number for all rows, or an array with one per row.
Column = int | Array

#: Operators whose scalar formula branches, which arrays cannot.
_CHOOSING: dict[Op, Callable[..., npt.NDArray[Any]]] = {
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.GT: np.greater,
    Op.GE: np.greater_equal,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
}


def _apply(op: Op, *values: Column) -> Column:
    """Applies an operator that cannot fail. Arguments fit in 32 bits, so the result fits in 64."""
    if all(isinstance(v, int) for v in values):
        return op.meaning(*values)
    if op in _CHOOSING:
        return _CHOOSING[op](*values).astype(np.int64)
    found: Array = op.semantics.exact(*values)
    if op.semantics.wraps and found.size and (found.min() < LOW or found.max() >= HIGH):
        return (found - LOW) % (1 << BITS) + LOW
    return found


def evaluate_rows(expr: Expr, columns: Mapping[str, Column]) -> tuple[Column, Column]:
    """Returns the values of an expression, and 1 where it divides by zero (the value is meaningless there).

    The result is a number if all columns used are numbers. Only divisions that `sw.ir.expression.evaluate`
    would execute count. Raises `KeyError` for a variable without value.
    """
    if isinstance(expr, Const):
        return expr.value, 0
    if isinstance(expr, Var):
        return columns[expr.name], 0
    assert isinstance(expr, Apply)
    parts = [evaluate_rows(a, columns) for a in expr.args]
    (a, wrong), (b, wrong_b) = parts[0], parts[-1]
    match expr.op:
        case Op.SELECT:
            then, wrong_then = parts[1]
            return _choose(a, then, b), wrong | _choose(a, wrong_then, wrong_b)
        case Op.AND:
            return a & b, wrong | a & wrong_b
        case Op.OR:
            return a | b, wrong | (1 - a) & wrong_b
        case Op.DIV | Op.MOD:
            zero = _apply(Op.EQ, b, 0)
            divisor = b + zero
            return _apply(expr.op, a, divisor), wrong | wrong_b | zero
    if len(parts) == 1:
        return _apply(expr.op, a), wrong
    return _apply(expr.op, a, b), wrong | wrong_b


def _choose(condition: Column, then: Column, other: Column) -> Column:
    if isinstance(condition, int):
        return then if condition else other
    if then is other:
        return then
    return np.where(condition != 0, then, other)
