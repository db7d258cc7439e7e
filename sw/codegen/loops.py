"""Known trip counts of loops and outcomes of branches, and the loop forms that they allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from sw.codegen.cost import operator_turns
from sw.codegen.operands import evaluated
from sw.ir.expression import Apply, Const, Expr, Op, apply, substitute
from sw.ir.program import For, If, Instruction, Program, Statement
from sw.ir.ranges import bounds
from sw.ir.walk import map_bodies, map_expressions, rewrite

#: Assumed trip count of a loop whose bounds are unknown.
ASSUMED_TRIPS = 8
#: Instructions up to which a branch becomes predicates: a jump costs one cycle, and so does each of those.
PREDICATED = 2


def trip_count(loop: For) -> int | None:
    """The trip count of a loop whose bounds are constants."""
    start, stop, step = loop.start, loop.stop, loop.step
    if isinstance(start, Const) and isinstance(stop, Const) and isinstance(step, Const) and step.value:
        return len(range(start.value, stop.value, step.value))
    if start == stop and isinstance(step, Const) and step.value:
        return 0
    return None


def expected_trips(loop: For) -> float:
    """The expected trip count of a loop: known, or the middle of what the ranges of its bounds allow."""
    count = trip_count(loop)
    if count is not None:
        return count
    (low, high), (first, last) = bounds(loop.stop), bounds(loop.start)
    step = loop.step.value if isinstance(loop.step, Const) and loop.step.value else 1
    ends = sorted((max(0, -(-(low - last) // step)), max(0, -(-(high - first) // step))))
    return sum(ends) / 2 if ends[1] < 1 << 20 else ASSUMED_TRIPS


def likelihood(condition: Expr) -> float:
    """The probability of a condition: values in a range are taken as equally likely."""
    low, high = bounds(condition)
    if low == high:
        return float(low)
    if not isinstance(condition, Apply):
        return 0.5
    args = condition.args
    match condition.op:
        case Op.NOT:
            return 1 - likelihood(args[0])
        case Op.AND:
            return likelihood(args[0]) * likelihood(args[1])
        case Op.OR:
            return 1 - (1 - likelihood(args[0])) * (1 - likelihood(args[1]))
        case Op.EQ | Op.NE if args[0].kind is args[1].kind:
            low, high = bounds(apply(Op.SUB, *args)) if args[0].kind.value == "int" else (0, 1)
            once = 1 / max(2, min(high - low + 1, 1 << 10)) if high - low < 1 << 31 else 1 / ASSUMED_TRIPS
            return once if condition.op is Op.EQ else 1 - once
    return 0.5


def simplify(program: Program) -> Program:
    """The program without loops of zero or one iteration, decided branches, and small branches.

    The contents of a small branch are predicated instead.
    """
    return dataclasses.replace(program, body=_body(program.body, {}))


def _body(body: tuple[Statement, ...], values: dict[str, Expr]) -> tuple[Statement, ...]:
    made: list[Statement] = []
    for s in body:
        made += _statement(s, values)
    return tuple(made)


def _statement(s: Statement, values: dict[str, Expr]) -> Sequence[Statement]:
    if values:
        s = map_expressions(s, lambda e: substitute(e, values))
    if isinstance(s, If):
        return _branch(s, values)
    if isinstance(s, Instruction) and s.when is not None:
        low, high = bounds(s.when)
        if low == high:
            return [dataclasses.replace(s, when=None)] if low else []
    if isinstance(s, For):
        count = trip_count(s)
        if count == 0:
            return []
        if count == 1:
            return _body(s.body, values | {s.variable: s.start})
    return [map_bodies(s, lambda body: _body(body, values))]


def _branch(s: If, values: dict[str, Expr]) -> Sequence[Statement]:
    condition = s.condition
    low, high = bounds(condition)
    if low == high:
        return _body(s.body if low else s.orelse, values)
    then, other = _body(s.body, values), _body(s.orelse, values)
    both = (*then, *other)
    if (
        len(both) <= PREDICATED
        and all(isinstance(x, Instruction) for x in both)
        and _worth(condition, then, other)
    ):
        return [_under(condition, x) for x in then] + [_under(apply(Op.NOT, condition), x) for x in other]
    if other and not then:
        # One jump instead of two.
        condition, then, other = apply(Op.NOT, condition), other, then
    return [dataclasses.replace(s, condition=condition, body=then, orelse=other)]


def _worth(condition: Expr, then: tuple[Statement, ...], other: tuple[Statement, ...]) -> bool:
    """Whether predicates cost no more than jumps; operands are computed even if a predicate is false."""
    free = set(condition.walk())
    mine, others = (
        {part for s in body if isinstance(s, Instruction) for e in evaluated(s) for part in e.walk()} - free
        for body in (then, other)
    )
    chance = likelihood(condition)
    jumps = 1 + (chance if then and other else 0)
    return (1 - chance) * _turns(mine - others) + chance * _turns(others - mine) <= jumps


def _turns(parts: set[Expr]) -> int:
    return sum(operator_turns(e) for e in parts if isinstance(e, Apply))


def _under(condition: Expr, s: Statement) -> Statement:
    assert isinstance(s, Instruction)
    when = condition if s.when is None else apply(Op.AND, condition, s.when)
    return dataclasses.replace(s, when=when)


def mapped(program: Program, change: Callable[[Expr], Expr]) -> Program:
    """The program with every expression that a warp evaluates changed; regions that only describe are not."""
    return dataclasses.replace(program, body=rewrite(program.body, expression=change, regions=False))
