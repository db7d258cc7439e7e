"""Induction variables: expressions that a step of a loop changes by a known amount.

A value is kept through a nest of loops. Each loop's step, at its end, moves it to where the next step wants
it: its own amount, less what the loop inside moved it in all its steps. The amount may come out as 0: then
one counter runs through both loops (canonical.md, "Hoisting").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hw.semantics import BITS
from sw.canonical.affine import factor, folded, minus, replaced, sorted_sum, times
from sw.codegen.loops import trip_count
from sw.codegen.virtual import fits
from sw.ir.expression import Apply, Const, Expr, Op, Var, apply, const, names
from sw.ir.linear import linear
from sw.ir.program import For
from sw.ir.ranges import bounds
from sw.ir.types import HIGH, LOW, Kind, Type

#: Stands for the remainder inside an expression that rotates.
_TURN = "turn "


@dataclass(frozen=True)
class Level:
    """What happens to the value at the end of each step of one loop: statements in terms of its name."""

    updates: tuple[Expr, ...]


@dataclass(frozen=True)
class Induction:
    """How a value is kept through loops, outermost first: its first value, and its updates per loop.

    Updates are expressions of `SELF`, which stands for the value.
    """

    start: Expr
    levels: tuple[Level, ...]


#: The value itself, in its updates.
SELF = "self "


def induction(expr: Expr, loops: Sequence[For]) -> Induction | None:
    """How to keep an expression through nested loops, outermost first; None where it cannot be kept.

    Nothing else than the loops' variables may change the expression inside of the outermost loop. Loops
    inside must run a known number of times.
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
        turned = Level(tuple(_turned(me, 1, list(both), 2)))
        return Induction(start, (*[Level(())] * len(inner), turned))
    if amounts is not None and expr.kind is Kind.INT:
        levels = tuple(Level(() if a == Const(0) else (_moved(me, a),)) for a in amounts)
        return Induction(start, levels)
    rotation = _rotation(expr, loops)
    if rotation is None:
        return None
    turns, values, divisor = rotation
    found = tuple(Level(tuple(_turned(me, turn, values, divisor))) for turn in turns)
    return Induction(start, found)


def _two_values(expr: Expr, loop: For) -> tuple[int, int] | None:
    """The values of an expression that only a loop of two steps changes: it goes to and fro between them."""
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
    """What each loop's step adds, after what the loop inside added is taken back."""
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


def _rotation(expr: Expr, loops: Sequence[For]) -> tuple[list[int], list[int], int] | None:
    """Remainders that each loop's step adds, the values by remainder (the first two), and the divisor."""
    variables = {loop.variable for loop in loops}
    inside = {r for r in _remainders(expr) if names(r) & variables}
    # Of nested remainders the outermost one counts.
    outermost = {r for r in inside if not any(r is not o and r in set(o.walk()) for o in inside)}
    if len(outermost) != 1:
        return None
    (turning,) = outermost
    number, divisor = turning.args[0], _divisor(turning)
    values = [_at(expr, turning, i) for i in (0, 1)]
    if divisor is None or any(v is None for v in values):
        return None
    known = [v for v in values if v is not None]
    if divisor > 2 and not (_grows(expr, turning) and _roomy(known, divisor)):
        return None
    if divisor & divisor - 1 and not _exact(number):
        return None
    amounts = _amounts(number, loops)
    if amounts is None or not all(isinstance(a, Const) for a in amounts):
        return None
    turns = [a.value % divisor for a in amounts if isinstance(a, Const)]
    return turns, known, divisor


def _remainders(expr: Expr) -> Iterator[Apply]:
    """Parts that are the remainder of a division by a constant above 0."""
    for part in expr.walk():
        if isinstance(part, Apply) and _divisor(part) is not None:
            yield part


def _divisor(part: Apply) -> int | None:
    by = part.args[-1]
    if not isinstance(by, Const) or by.value <= 0:
        return None
    if part.op is Op.MOD:
        return by.value if by.value > 1 else None
    if part.op is Op.BIT_AND and by.value & by.value + 1 == 0:
        return by.value + 1 if by.value < HIGH - 1 else None
    return None


def _at(expr: Expr, turning: Apply, remainder: int) -> int | None:
    """The value of an expression for one remainder, if it is a constant then."""
    found = _put(expr, turning, Const(remainder))
    return found.value if isinstance(found, Const) else None


def _put(expr: Expr, part: Expr, value: Expr) -> Expr:
    if expr == part:
        return value
    if not isinstance(expr, Apply):
        return expr
    return folded(Apply(expr.op, tuple(_put(a, part, value) for a in expr.args)))


def _grows(expr: Expr, turning: Apply) -> bool:
    """Whether an expression grows by a constant with the remainder."""
    by = factor(_put(expr, turning, Var(_TURN)), _TURN)
    return isinstance(by, Const) and expr.kind is Kind.INT


def _roomy(values: list[int], divisor: int) -> bool:
    """Whether a value that was moved on, but not yet back, still fits 32 bits."""
    return abs(values[0]) + 2 * abs(values[1] - values[0]) * divisor < HIGH


def _exact(number: Expr) -> bool:
    """Whether a sum cannot exceed 32 bits, whatever the order of its parts."""
    low, high = linear(number).bounds(bounds)
    return low >= LOW and high < HIGH


def _turned(me: Var, turn: int, values: list[int], divisor: int) -> Iterator[Expr]:
    """Updates that turn the value on by so many remainders."""
    first, second = values
    if turn == 0 or first == second:
        return
    if divisor == 2:
        yield apply(Op.NOT, me) if me.kind is Kind.BOOL else apply(Op.BIT_XOR, me, first ^ second)
        return
    step = second - first
    whole = step * divisor
    if first == 0 and step > 0 and whole & whole - 1 == 0 and whole <= 1 << BITS - 2:
        moved = apply(Op.ADD, me, turn * step)
        yield apply(Op.BIT_AND, moved, whole - 1)
        return
    if turn == 1:
        yield _moved(me, const(step))
        yield apply(Op.SELECT, apply(Op.EQ, me, first + whole), first, me)
    elif turn == divisor - 1:
        yield _moved(me, const(-step))
        yield apply(Op.SELECT, apply(Op.EQ, me, first - step), first + whole - step, me)
    else:
        yield _moved(me, const(turn * step))
        beyond = Op.GE if step > 0 else Op.LE
        yield apply(Op.SELECT, apply(beyond, me, first + whole), _moved(me, const(-whole)), me)
