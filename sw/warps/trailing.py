"""At the end of a program nobody takes the tokens for places that are not used again: the last ones go.

The signal of the last iteration gets a predicate that is false there. That is done for the warp of the
program's last instruction: all others are done by then, and what it still signals holds up the end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from sw.ir.expression import Const, Expr, Op, Var, apply
from sw.ir.program import For, Program, Statement
from sw.ir.walk import instructions
from sw.warps.sites import Gap, SyncSite
from sw.warps.tokens import Sync, World, warp_of

#: The loops around a place: the number of the iteration, and how many there are.
Counters = list[tuple[Expr, int]]


def without_last(world: World, syncs: Sequence[Sync]) -> list[Sync]:
    """The syncs, one for each ordered pair of warps, without the last warp's last tokens that nobody takes.

    Left alone are channels that are signalled in several places or under predicates, and loops of unknown
    bounds.
    """
    last = warp_of(list(instructions(world.program))[-1])
    return [_without_last(world, s) if s.warps[0] == last else s for s in syncs]


def _without_last(world: World, sync: Sync) -> Sync:
    program = world.program
    given, taken = executions(program, sync.signals), executions(program, sync.waits)
    if len(sync.signals) > 1 or given is None or taken is None:
        return sync
    (site,) = sync.signals
    guard = _not_last(counters(program, site.gap) or [], given + sync.lead - taken)
    if guard is None:
        return sync
    guarded = dataclasses.replace(site, when=guard)
    world.add((guarded,))
    return dataclasses.replace(sync, signals=(guarded,))


def _not_last(loops: Counters, left_over: int) -> Expr | None:
    """Whether an iteration is not the last of the outermost loops that pass on no more than so many tokens.

    None where there is no such iteration, or no other one. All loops count as one: comparing that with a
    constant costs an instruction in each iteration.
    """
    number: Expr = Const(0)
    for depth, (counter, count) in enumerate(loops, 1):
        number = counter if depth == 1 else apply(Op.ADD, apply(Op.MUL, number, count), counter)
        total = math.prod(c for _, c in loops[:depth])
        if total > 1 and math.prod(c for _, c in loops[depth:]) <= left_over:
            return apply(Op.NE, number, total - 1)
    return None


def executions(program: Program, sites: Sequence[SyncSite]) -> int | None:
    """How many tokens all sites give or take in a run; None where that is not known from the text."""
    total = 0
    for site in sites:
        loops = counters(program, site.gap)
        if loops is None or site.when is not None:
            return None
        total += site.count * math.prod(count for _, count in loops)
    return total


def counters(program: Program, gap: Gap) -> Counters | None:
    """The loops around a place, from the outside in; None in a branch, or where bounds are not constants."""
    body: Sequence[Statement] = program.body
    found: Counters = []
    for position, _ in gap.block:
        loop = body[position]
        if not isinstance(loop, For):
            return None
        bounds = [e.value for e in (loop.start, loop.stop, loop.step) if isinstance(e, Const)]
        if len(bounds) != 3 or bounds[2] != 1:
            return None
        variable = Var(loop.variable)
        number = apply(Op.SUB, variable, bounds[0]) if bounds[0] else variable
        found.append((number, len(range(*bounds))))
        body = loop.body
    return found
