"""Candidate sites for the signal and the wait of a pair of instructions.

The signal goes after the source, or after a loop or branch around it. The wait goes before the sink, or
before a loop or branch around that. Further in, there are more tokens, but each orders less. A loop around
only one of the two can be skipped: the signal fires only in its last iteration, or the wait only in its
first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sw.ir.expression import Const, Expr, Op, Var, apply
from sw.ir.program import Assign, For
from sw.ir.walk import statements
from sw.warps.sites import Gap, Order, Spot, SyncSite, common

#: Up to this many loops on one side, all combinations of counted and skipped loops are tried; beyond, all or
#: none.
_MOST_LOOPS = 3


def meeting(source: Spot, sink: Spot) -> int:
    """The length of the path of the innermost block around both."""
    return common(source.gap.block, sink.gap.block)


def behind(gap: Gap) -> Gap:
    """The gap after the statement that a gap precedes."""
    return Gap(gap.block, gap.position + 1)


def sites(source: Spot, sink: Spot) -> tuple[list[tuple[SyncSite, int]], list[tuple[SyncSite, int]]]:
    """Sites after a source and before a sink, with the number of loops each counts that are not around both.

    The first of each are in the block around both.
    """
    around = meeting(source, sink)
    return list(_sites(source, around, last=True)), list(_sites(sink, around, last=False))


def _sites(spot: Spot, around: int, *, last: bool) -> Iterator[tuple[SyncSite, int]]:
    order = Order.SIGNAL if last else Order.WAIT
    for length in range(around, len(spot.gap.block) + 1):
        gap = spot.ancestor(length)
        gap = behind(gap) if last else gap
        loops = [loop for loop, depth in spot.loops if around < depth <= length]
        own = spot.instruction.when if length == len(spot.gap.block) else None
        guards: list[tuple[Expr | None, int]] = [(None, len(loops))]
        if loops:
            guards += _guards(loops, last)
        for guard, counted in guards:
            yield SyncSite(gap, order, guard), counted
            if own is not None:
                yield SyncSite(gap, order, own if guard is None else apply(Op.AND, guard, own)), counted


def _guards(loops: list[For], last: bool) -> Iterator[tuple[Expr, int]]:
    """Predicates that skip some of the loops, and how many loops remain."""
    masks = range(1, 1 << len(loops)) if len(loops) <= _MOST_LOOPS else [(1 << len(loops)) - 1]
    for mask in masks:
        chosen = [loop for n, loop in enumerate(loops) if mask >> n & 1]
        ends = [e for loop in chosen if (e := end_of(loop, last)) is not None]
        if len(ends) == len(chosen):
            yield functools.reduce(functools.partial(apply, Op.AND), ends), len(loops) - len(chosen)


def end_of(loop: For, last: bool) -> Expr | None:
    """Whether an iteration is the first or last of its loop; None if the bounds change inside the loop."""
    assigned = {s.target for s in statements(loop.body) if isinstance(s, Assign)}
    bounds = (loop.start, loop.stop, loop.step)
    if any(v.name in assigned for e in bounds for v in e.variables()) or not isinstance(loop.step, Const):
        return None
    step = loop.step.value
    variable = Var(loop.variable)
    if not last:
        return apply(Op.EQ, variable, loop.start)
    if isinstance(loop.start, Const) and isinstance(loop.stop, Const):
        steps = range(loop.start.value, loop.stop.value, step)
        return apply(Op.EQ, variable, steps[-1]) if steps else None
    return apply(Op.GE if step > 0 else Op.LE, apply(Op.ADD, variable, step), loop.stop)
