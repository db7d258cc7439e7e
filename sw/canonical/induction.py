"""Induction variables: expressions that each loop step changes by a known amount.

A value is kept through a loop nest. At the end of each loop's step it moves to what the next step needs: the
loop's own increment, minus the total increment of the loop inside. If the result is 0, one counter runs
through both loops (canonical.md, "Hoisting").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sw.canonical.affine import factor, folded, minus, replaced, sorted_sum, times
from sw.codegen.loops import trip_count
from sw.codegen.virtual import fits
from sw.ir.expression import Apply, Const, Expr, Op, Var, apply, const, names
from sw.ir.program import For
from sw.ir.types import LOW, Kind, Type

_PARITIES = ((Op.MOD, Const(2)), (Op.BIT_AND, Const(1)))


@dataclass(frozen=True)
class Induction:
    """An induction variable: its initial value and its update in each loop, outermost first.

    Updates are expressions of `SELF`, the variable's value; None if a loop does not change it.
    """

    start: Expr
    updates: tuple[Expr | None, ...]


#: The variable's own value in its updates.
SELF = "self "


def induction(expr: Expr, loops: Sequence[For]) -> Induction | None:
    """Finds an induction variable for an expression in nested loops, outermost first, or None.

    Inside the outermost loop only the loop variables may change the expression, and all inner loops need a
    known trip count.
    """
    if not all(isinstance(loop.step, Const) and loop.step.value for loop in loops):
        return None
    inner = loops[1:]
    if any(trip_count(loop) is None or not isinstance(loop.start, Const) for loop in inner):
        return None
    start = replaced(expr, {loop.variable: loop.start for loop in loops})
    me = Var(SELF, Type(expr.kind) if expr.kind is Kind.INT else Type(Kind.BOOL, 0, 2))
    amounts = _amounts(expr, loops)
    both = _two_values(expr, loops[-1])
    if both is not None and not (amounts and _immediate(amounts[-1]) and not fits(both[0] ^ both[1])):
        return Induction(start, (*[None] * len(inner), _turned(me, *both)))
    if amounts is not None and expr.kind is Kind.INT:
        return Induction(start, tuple(None if a == Const(0) else _moved(me, a) for a in amounts))
    rotation = _rotation(expr, loops)
    if rotation is None:
        return None
    odd, values = rotation
    return Induction(start, tuple(_turned(me, *values) if turns else None for turns in odd))


def _two_values(expr: Expr, loop: For) -> tuple[int, int] | None:
    """The two values between which an expression alternates that only a loop of two steps changes."""
    if names(expr) != {loop.variable} or trip_count(loop) != 2:
        return None
    assert isinstance(loop.start, Const)
    assert isinstance(loop.step, Const)
    first = replaced(expr, {loop.variable: loop.start})
    second = replaced(expr, {loop.variable: const(loop.start.value + loop.step.value)})
    if isinstance(first, Const) and isinstance(second, Const):
        return first.value, second.value
    return None


def _immediate(amount: Expr) -> bool:
    return isinstance(amount, Const) and (fits(amount.value) or fits(-amount.value))


def _moved(me: Expr, amount: Expr) -> Expr:
    if isinstance(amount, Const) and amount.value < 0 and amount.value != LOW:
        return apply(Op.SUB, me, -amount.value)
    return apply(Op.ADD, me, amount)


def _amounts(expr: Expr, loops: Sequence[For]) -> list[Expr] | None:
    """The increment at each loop's step, after undoing the total increment of the inner loop."""
    variables = {loop.variable for loop in loops}
    found: list[Expr] = []
    whole: Expr = Const(0)
    for loop in reversed(loops):
        by = factor(expr, loop.variable)
        if by is None or names(by) & variables:
            return None
        step = sorted_sum(times(by, loop.step))
        found.insert(0, sorted_sum(minus(step, whole)))
        count = trip_count(loop)
        whole = sorted_sum(times(step, const(count))) if count is not None else Const(0)
    return found


def _rotation(expr: Expr, loops: Sequence[For]) -> tuple[list[bool], tuple[int, int]] | None:
    """For an expression with a remainder by 2: which loops toggle it, and its two values."""
    variables = {loop.variable for loop in loops}
    inner = (r for r in expr.walk() if isinstance(r, Apply) and (r.op, r.args[-1]) in _PARITIES)
    turning = {r for r in inner if names(r) & variables}
    if len(turning) != 1:
        return None
    (remainder,) = turning
    first, second = (_put(expr, remainder, Const(i)) for i in (0, 1))
    amounts = _amounts(remainder.arguments[0], loops)
    if amounts is None or not (isinstance(first, Const) and isinstance(second, Const)):
        return None
    steps = [a.value for a in amounts if isinstance(a, Const)]
    if len(steps) != len(amounts):
        return None
    return [step % 2 != 0 for step in steps], (first.value, second.value)


def _put(expr: Expr, part: Expr, value: Expr) -> Expr:
    if expr == part:
        return value
    if not isinstance(expr, Apply):
        return expr
    return folded(Apply(expr.op, tuple(_put(a, part, value) for a in expr.args)))


def _turned(me: Var, first: int, second: int) -> Expr | None:
    """The update that toggles between two values."""
    if first == second:
        return None
    return apply(Op.NOT, me) if me.kind is Kind.BOOL else apply(Op.BIT_XOR, me, first ^ second)
