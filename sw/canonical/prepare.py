"""Prepares a program for the search for values to keep.

Canonical text is short but not always cheap. For example, a sum around a minimum is distributed again, so
that each operand of the minimum becomes a single induction variable.
"""

from __future__ import annotations

import dataclasses
import functools

from sw.canonical.affine import plus, sorted_sum, times
from sw.canonical.inline import inline
from sw.canonical.operands import DUAL
from sw.codegen.loops import mapped, simplify
from sw.codegen.operands import parameters, unbounded
from sw.codegen.parameters import safe
from sw.ir.expression import Apply, Const, Expr, Op, apply, const, names
from sw.ir.intrinsics import INTRINSICS
from sw.ir.linear import linear
from sw.ir.program import Instruction, Interval, Program, Region, Statement
from sw.ir.ranges import bounds
from sw.ir.scope import loop_depth, retype
from sw.ir.types import HIGH, LOW, Kind
from sw.ir.walk import map_accesses, rewrite


def prepare(program: Program) -> Program:
    """Inlines scalars and applies `prepared` to every expression."""
    program = retype(inline(retype(simplify(retype(program)))))
    # Once more: a branch that has lost its assignments may be small enough for predication.
    program = retype(simplify(program))
    unknown = unbounded(program)
    body = rewrite(program.body, lambda s: _safe(s, unknown))
    program = dataclasses.replace(program, body=body)
    return retype(mapped(program, prepared))


def prepared(expr: Expr) -> Expr:
    """Sorts sums, moves minima and maxima outside them, and turns equality in loops into equality with 0.

    The machine's predicates test a register for 0 at no cost.
    """
    return _tests(_cuts(sorted_sum(expr)))


def _safe(s: Statement, unknown: set[str]) -> Statement:
    """Makes parameters fit their registers even if the operation is predicated off.

    This must happen here: once values are kept, the ranges of scalars no longer show it, so it is assumed.
    """
    if not isinstance(s, Instruction):
        return s
    wanted = {n: e for n, e in parameters(s).items() if names(e).isdisjoint(unknown)}
    operands = tuple((n, safe(s, n, wanted[n]) if n in wanted else o) for n, o in s.operands)
    return _from_starts(dataclasses.replace(s, operands=operands))


def _from_starts(s: Instruction) -> Instruction:
    """Writes evaluated intervals of constant length as start and start + length.

    In canonical form both ends are sums, as in `a[4 - i : 7 - i]`, and would become two induction variables.
    """
    made = map_accesses(s, _from_start)
    return dataclasses.replace(made, reads=s.reads, writes=s.writes) if s.name in INTRINSICS else made


def _from_start(region: Region) -> Region:
    box = []
    for i in region.box:
        length = sorted_sum(apply(Op.SUB, i.stop, i.start)) if isinstance(i.start, Apply) else None
        fixed = isinstance(length, Const) and length.value != 0
        box.append(Interval(i.start, apply(Op.ADD, i.start, length)) if fixed and length else i)
    return dataclasses.replace(region, box=tuple(box))


@functools.lru_cache(maxsize=1 << 14)
def _cuts(expr: Expr) -> Expr:
    """Moves minima and maxima outside the constants added to them or multiplied with them."""
    if not isinstance(expr, Apply):
        return expr
    args = tuple(_cuts(a) for a in expr.args)
    expr = expr if args == expr.args else Apply(expr.op, args)
    if expr.op not in (Op.ADD, Op.SUB, Op.MUL, Op.SHL):
        return expr
    form = linear(expr)
    if len(form.factors) != 1:
        return expr
    ((cut, scale),) = form.factors.items()
    moved = _moved(cut, scale, form.constant) if isinstance(cut, Apply) and cut.op in DUAL else None
    return expr if moved is None else moved


def _moved(expr: Expr, scale: int, rest: int) -> Expr | None:
    """`expr * scale + rest` distributed into minima and maxima; None if that may exceed 32 bits."""
    low, high = sorted(b * scale + rest for b in bounds(expr))
    if low < LOW or high >= HIGH:
        return None
    if isinstance(expr, Apply) and expr.op in DUAL:
        sides = [_moved(a, scale, rest) for a in expr.args]
        op = expr.op if scale > 0 else DUAL[expr.op]
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
        # Use one form: predicates can test it in both senses.
        return _tests(apply(Op.NOT, Apply(Op.EQ, args)))
    if expr.op is Op.EQ and args[0].kind is Kind.INT and loop_depth(expr) is not None:
        difference = sorted_sum(apply(Op.SUB, *args))
        if bounds(difference) == (-1, 0):
            return apply(Op.NOT, apply(Op.EQ, sorted_sum(plus(difference, const(1))), 0))
        if linear(difference).factors:
            return Apply(expr.op, (difference, Const(0)))
    return expr if args == expr.args else Apply(expr.op, args)
