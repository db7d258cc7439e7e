"""Expressions over arrays: the value of one expression for many values of its variables at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from hw.semantics import BITS
from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.types import HIGH, LOW

Array = npt.NDArray[np.int64]
#: What a variable is: one number for all rows, or a number for each.
Column = int | Array

_MODULUS = 1 << BITS


def _wrapped(value: Column) -> Column:
    if isinstance(value, int):
        return (value - LOW) % _MODULUS + LOW
    if value.size and (value.min() < LOW or value.max() >= HIGH):
        return (value - LOW) % _MODULUS + LOW
    return value


def _minimum(a: Column, b: Column) -> Column:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def _maximum(a: Column, b: Column) -> Column:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def _number(truth: object) -> Column:
    return truth.astype(np.int64) if isinstance(truth, np.ndarray) else int(bool(truth))


#: Operators whose scalar formula chooses, which arrays cannot.
_CHOOSING: dict[Op, Callable[..., Column]] = {
    Op.LT: lambda a, b: _number(a < b),
    Op.LE: lambda a, b: _number(a <= b),
    Op.GT: lambda a, b: _number(a > b),
    Op.GE: lambda a, b: _number(a >= b),
    Op.EQ: lambda a, b: _number(a == b),
    Op.NE: lambda a, b: _number(a != b),
    Op.MIN: _minimum,
    Op.MAX: _maximum,
}


def _apply(op: Op, *values: Column) -> Column:
    """An operator that cannot fail; its arguments are within 32 bits, so that its value is within 64."""
    found: Column = (_CHOOSING.get(op) or op.semantics.exact)(*values)
    return _wrapped(found) if op.semantics.wraps else found


def evaluate_rows(expr: Expr, columns: Mapping[str, Column]) -> tuple[Column, Column]:
    """The values of an expression, and 1 where it divides by zero (the value there means nothing).

    An expression of numbers alone gives a number. Only what `sw.ir.expression.evaluate` would evaluate counts
    as a division. Raises `KeyError` for a variable without value.
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
            zero = _number(b == 0)
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
