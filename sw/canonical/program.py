"""Canonical form of whole programs: every expression, and branches that lead to the same.

Source: canonical.md, "Rank" and "Conditionals".
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Set
from dataclasses import dataclass

from sw.canonical.simplify import canonicalize
from sw.ir.check import problems
from sw.ir.errors import Location
from sw.ir.expression import Op, apply, names
from sw.ir.program import Assign, For, If, Instruction, Program, Statement
from sw.ir.scope import retype
from sw.ir.walk import expressions, map_accesses, map_expressions, rewrite, statements, walk

#: How often a program is gone through again because its scalars have got narrower ranges.
ROUNDS = 8

Where = Location | None


def canonicalize_program(program: Program) -> Program:
    """The program with every expression in canonical form and merged branches; types must be up to date.

    What surely fails when it is reached can become so short that it shows, `x // (y - y)` as `x // 0`. Such a
    program would be refused when it is read again: the statements that are concerned stay as they are.
    """
    found = _settled(program, frozenset())
    if not problems(found) or problems(program):
        return found
    program = _numbered(program)
    kept: frozenset[int] = frozenset()
    while wrong := problems(found := _settled(program, kept)):
        more = {e.where.number for e in wrong if isinstance(e.where, _Number)} - kept
        more = more or _behind(program, kept) - kept
        if not more:
            found = program
            break
        kept |= more
    return _relocated(found, lambda: lambda where: where.location if isinstance(where, _Number) else where)


def _settled(program: Program, kept: Set[int]) -> Program:
    """The program gone through until it stays; the statements of the numbers in `kept` stay as they are.

    A shorter value can be known to lie in a narrower range, which simplifies what uses it: the program is
    gone through again with the types that follow.
    """

    def statement(s: Statement) -> Statement:
        if _number(s.where) in kept:
            return s
        return _branch(s) if isinstance(s, If) else map_expressions(s, canonicalize)

    for _ in range(ROUNDS):
        buffers = tuple(
            b if _number(b.where) in kept else dataclasses.replace(b, shape=tuple(map(canonicalize, b.shape)))
            for b in program.buffers
        )
        body = rewrite(program.body, statement)
        found = retype(dataclasses.replace(program, buffers=buffers, body=body))
        if found == program:
            break
        program = found
    return program


def _branch(s: If) -> If:
    """A branch, merged with the one inside of it where two ways lead to the same statements."""
    condition, body, orelse = s.condition, s.body, s.orelse
    while True:
        if len(body) == 1 and isinstance(body[0], If) and body[0].orelse == orelse:
            condition, body = apply(Op.AND, condition, body[0].condition), body[0].body
        elif len(orelse) == 1 and isinstance(orelse[0], If) and orelse[0].body == body:
            condition, orelse = apply(Op.OR, condition, orelse[0].condition), orelse[0].orelse
        else:
            return dataclasses.replace(s, condition=canonicalize(condition), body=body, orelse=orelse)


# Statements are known again by numbers in their locations after their expressions changed.


@dataclass(frozen=True)
class _Number(Location):
    """The number of a statement or buffer, with the location itself."""

    number: int
    location: Where


def _number(where: Where) -> int | None:
    return where.number if isinstance(where, _Number) else None


def _numbered(program: Program) -> Program:
    """The program with numbered locations, of regions too."""
    numbers = itertools.count()

    def numbered() -> Callable[[Where], Where]:
        number = next(numbers)
        return lambda where: _Number("", 1, 1, number, where)

    return _relocated(program, numbered)


def _relocated(program: Program, change: Callable[[], Callable[[Where], Where]]) -> Program:
    """The program with other locations; `change` is asked once for every buffer and statement."""

    def statement(s: Statement) -> Statement:
        own = change()
        s = dataclasses.replace(s, where=own(s.where))
        if not isinstance(s, Instruction):
            return s
        return map_accesses(s, lambda region: dataclasses.replace(region, where=own(region.where)))

    buffers = tuple(dataclasses.replace(b, where=change()(b.where)) for b in program.buffers)
    return dataclasses.replace(program, buffers=buffers, body=rewrite(program.body, statement))


def _behind(program: Program, numbers: Set[int]) -> set[int]:
    """The statements around these, and those that give values to what these use."""
    around = {a[-1].where for s, a in walk(program.body) if a and _number(s.where) in numbers}
    used = [e for s in statements(program.body) if _number(s.where) in numbers for e in expressions(s)]
    used += [e for b in program.buffers if _number(b.where) in numbers for e in b.shape]
    wanted = frozenset().union(*map(names, used))
    for s in statements(program.body):
        if (isinstance(s, Assign) and s.target in wanted) or (isinstance(s, For) and s.variable in wanted):
            around.add(s.where)
    return {n for where in around if (n := _number(where)) is not None}
