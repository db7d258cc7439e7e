"""The form of a program in which values worth keeping are looked for.

Canonical text is short, not always cheap: a sum around a minimum, for one, is taken apart again, so that what
stands inside of it becomes one induction variable.
"""

from __future__ import annotations

import dataclasses
import functools

from sw.canonical.affine import linear, plus, sorted_sum, times
from sw.canonical.inline import inline
from sw.codegen.loops import mapped, simplify
from sw.codegen.names import depth, names
from sw.codegen.operands import parameters, unbounded
from sw.codegen.parameters import safe
from sw.ir.expression import Apply, Const, Expr, Op, apply, const
from sw.ir.intrinsics import INTRINSICS
from sw.ir.program import (
    Access,
    Assign,
    For,
    If,
    Instruction,
    Interval,
    Program,
    Region,
    Statement,
    While,
)
from sw.ir.ranges import bounds
from sw.ir.scope import retype
from sw.ir.types import HIGH, LOW, Kind

_OPPOSITE = {Op.MIN: Op.MAX, Op.MAX: Op.MIN}


def prepare(program: Program) -> Program:
    """The program with scalars replaced by what they stand for, and its expressions as `prepared`."""
    program = retype(inline(retype(simplify(retype(program)))))
    # Once more: a branch that has lost its assignments may be small enough for predicates.
    program = retype(simplify(program))
    program = dataclasses.replace(program, body=_safe(program.body, unbounded(program)))
    return retype(mapped(program, prepared))


def prepared(expr: Expr) -> Expr:
    """Sums sorted, minima outside of sums, and equality in loops as equality with 0.

    The machine's predicates test a register for 0 for nothing.
    """
    return _tests(_cuts(sorted_sum(expr)))


def _safe(body: tuple[Statement, ...], unknown: set[str]) -> tuple[Statement, ...]:
    """Parameters that fit their registers also where an operation does not happen.

    Only here: when values are kept, the ranges of scalars no longer show it, and it is taken for granted.
    """
    made: list[Statement] = []
    for s in body:
        match s:
            case Instruction():
                wanted = parameters(s)
                found = tuple(
                    (n, safe(s, n, wanted[n]) if n in wanted and names(wanted[n]).isdisjoint(unknown) else o)
                    for n, o in s.operands
                )
                made.append(_from_starts(dataclasses.replace(s, operands=found)))
            case For() | While():
                made.append(dataclasses.replace(s, body=_safe(s.body, unknown)))
            case If():
                then, other = _safe(s.body, unknown), _safe(s.orelse, unknown)
                made.append(dataclasses.replace(s, body=then, orelse=other))
            case Assign():
                made.append(s)
    return tuple(made)


def _from_starts(s: Instruction) -> Instruction:
    """The instruction with ends of intervals that it evaluates as start and length, where that is constant.

    In canonical form both are sums, `a[4 - i : 7 - i]`, of which the search would move on two, not one.
    """

    def access(a: Access) -> Access:
        return _from_start(a) if isinstance(a, Region) else a

    operands = tuple((n, _from_start(o) if isinstance(o, Region) else o) for n, o in s.operands)
    if s.name in INTRINSICS:
        return dataclasses.replace(s, operands=operands)
    reads, writes = tuple(map(access, s.reads)), tuple(map(access, s.writes))
    return dataclasses.replace(s, reads=reads, writes=writes, operands=operands)


def _from_start(region: Region) -> Region:
    box = []
    for i in region.box:
        length = sorted_sum(apply(Op.SUB, i.stop, i.start)) if isinstance(i.start, Apply) else None
        fixed = isinstance(length, Const) and length.value != 0
        box.append(Interval(i.start, apply(Op.ADD, i.start, length)) if fixed and length else i)
    return dataclasses.replace(region, box=tuple(box))


@functools.lru_cache(maxsize=1 << 14)
def _cuts(expr: Expr) -> Expr:
    """Minima and maxima outside of the constants that are added to them and that they are multiplied by."""
    if not isinstance(expr, Apply):
        return expr
    args = tuple(_cuts(a) for a in expr.args)
    expr = expr if args == expr.args else Apply(expr.op, args)
    if expr.op not in (Op.ADD, Op.SUB, Op.MUL, Op.SHL):
        return expr
    rest, terms = linear(expr)
    if len(terms) != 1:
        return expr
    ((cut, scale),) = terms.items()
    moved = _moved(cut, scale, rest) if isinstance(cut, Apply) and cut.op in _OPPOSITE else None
    return expr if moved is None else moved


def _moved(expr: Expr, scale: int, rest: int) -> Expr | None:
    """`expr * scale + rest`, inside of minima and maxima; None where that may exceed 32 bits."""
    low, high = sorted(b * scale + rest for b in bounds(expr))
    if low < LOW or high >= HIGH:
        return None
    if isinstance(expr, Apply) and expr.op in _OPPOSITE:
        sides = [_moved(a, scale, rest) for a in expr.args]
        op = expr.op if scale > 0 else _OPPOSITE[expr.op]
        left, right = sides
        return None if left is None or right is None else Apply(op, (left, right))
    return sorted_sum(plus(times(expr, const(scale)), const(rest)))


def _tests(expr: Expr) -> Expr:
    if not isinstance(expr, Apply):
        return expr
    args = tuple(_tests(a) for a in expr.args)
    if expr.op is Op.NOT and isinstance(args[0], Apply) and args[0].op is Op.NOT:
        return args[0].args[0]
    if expr.op is Op.NE:
        # One form of what predicates test in two senses.
        return _tests(apply(Op.NOT, Apply(Op.EQ, args)))
    if expr.op is Op.EQ and args[0].kind is Kind.INT and depth(expr) is not None:
        difference = sorted_sum(apply(Op.SUB, *args))
        if bounds(difference) == (-1, 0):
            return apply(Op.NOT, apply(Op.EQ, sorted_sum(plus(difference, const(1))), 0))
        if linear(difference)[1]:
            return Apply(expr.op, (difference, Const(0)))
    return expr if args == expr.args else Apply(expr.op, args)
