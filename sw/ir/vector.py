"""Expressions over arrays: the value of one expression for many values of its variables at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.types import BITS, HIGH, LOW

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


#: Operators without errors and without choice; arguments are within 32 bits, so that nothing leaves 64.
_PLAIN: dict[Op, Callable[..., Column]] = {
    Op.NOT: lambda a: 1 - a,
    Op.LT: lambda a, b: _number(a < b),
    Op.LE: lambda a, b: _number(a <= b),
    Op.GT: lambda a, b: _number(a > b),
    Op.GE: lambda a, b: _number(a >= b),
    Op.EQ: lambda a, b: _number(a == b),
    Op.NE: lambda a, b: _number(a != b),
    Op.BIT_OR: lambda a, b: a | b,
    Op.BIT_XOR: lambda a, b: a ^ b,
    Op.BIT_AND: lambda a, b: a & b,
    Op.SHL: lambda a, b: _wrapped(
        a * (1 << b % BITS) if isinstance(b, int) else a * (np.int64(1) << b % BITS)
    ),
    Op.SHR: lambda a, b: a >> b % BITS,
    Op.ADD: lambda a, b: _wrapped(a + b),
    Op.SUB: lambda a, b: _wrapped(a - b),
    Op.MUL: lambda a, b: _wrapped(a * b),
    Op.MIN: _minimum,
    Op.MAX: _maximum,
}


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
            result = _wrapped(a // divisor) if expr.op is Op.DIV else a % divisor
            return result, wrong | wrong_b | zero
    if len(parts) == 1:
        return _PLAIN[expr.op](a), wrong
    return _PLAIN[expr.op](a, b), wrong | wrong_b


def _choose(condition: Column, then: Column, other: Column) -> Column:
    if isinstance(condition, int):
        return then if condition else other
    if then is other:
        return then
    return np.where(condition != 0, then, other)
