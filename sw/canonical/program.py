"""Canonical form of whole programs: canonicalises every expression and merges equal branches.

Source: canonical.md, "Rank" and "Conditionals".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from sw.canonical.simplify import canonicalize
from sw.ir.check import problems
from sw.ir.errors import Location
from sw.ir.expression import Op, apply, names
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement
from sw.ir.scope import retype
from sw.ir.walk import expressions, map_expressions, rewrite, statements, walk

#: Most rounds over a program; narrower ranges of scalars require another one.
ROUNDS = 8


def canonicalize_program(program: Program) -> Program:
    """Brings every expression into canonical form and merges branches; types must be up to date.

    A statement that surely fails can become so short that the failure shows: `x // (y - y)` becomes `x // 0`.
    The parser would reject that, so such statements (identified by location) stay as they are.
    """
    kept: frozenset[Location] = frozenset()
    while wrong := problems(found := _settled(program, kept)):
        if problems(program):
            break
        owners = _owners(program)
        more = {owners[e.where] for e in wrong if e.where in owners} - kept
        more = more or _behind(program, kept) - kept
        if not more:
            return program
        kept |= more
    return found


def _settled(program: Program, kept: Set[Location]) -> Program:
    """Repeats canonicalisation until nothing changes; statements and buffers in `kept` stay as they are.

    A shorter value may have a narrower known range, which simplifies its users. So types are computed again
    after every round.
    """

    def statement(s: Statement) -> Statement:
        if s.where in kept:
            return s
        return _branch(s) if isinstance(s, If) else map_expressions(s, canonicalize)

    for _ in range(ROUNDS):
        buffers = tuple(
            b if b.where in kept else dataclasses.replace(b, shape=tuple(map(canonicalize, b.shape)))
            for b in program.buffers
        )
        body = rewrite(program.body, statement)
        found = retype(dataclasses.replace(program, buffers=buffers, body=body))
        if found == program:
            break
        program = found
    return program


def _branch(s: If) -> If:
    """Merges a branch with one nested in it, if two paths lead to the same statements."""
    condition, body, orelse = s.condition, s.body, s.orelse
    while True:
        if len(body) == 1 and isinstance(body[0], If) and body[0].orelse == orelse:
            condition, body = apply(Op.AND, condition, body[0].condition), body[0].body
        elif len(orelse) == 1 and isinstance(orelse[0], If) and orelse[0].body == body:
            condition, orelse = apply(Op.OR, condition, orelse[0].condition), orelse[0].orelse
        else:
            return dataclasses.replace(s, condition=canonicalize(condition), body=body, orelse=orelse)


def _owners(program: Program) -> dict[Location | None, Location]:
    """Maps locations, also those of regions, to the location of their statement or buffer."""
    found: dict[Location | None, Location] = {b.where: b.where for b in program.buffers if b.where}
    for s in statements(program.body):
        if s.where is not None:
            accesses = (*s.reads, *s.writes, *dict(s.operands).values()) if isinstance(s, Instruction) else ()
            places = [a.where for a in accesses if isinstance(a, Region) and a.where]
            found |= dict.fromkeys((s.where, *places), s.where)
    return found


def _behind(program: Program, places: Set[Location]) -> set[Location]:
    """Statements around these locations, and those that assign what they use."""
    around = {a[-1].where for s, a in walk(program.body) if a and s.where in places}
    used = [e for s in statements(program.body) if s.where in places for e in expressions(s)]
    used += [e for b in program.buffers if b.where in places for e in b.shape]
    wanted = frozenset().union(*map(names, used))
    for s in statements(program.body):
        if (isinstance(s, Assign) and s.target in wanted) or (isinstance(s, For) and s.variable in wanted):
            around.add(s.where)
    return {where for where in around if where is not None}
