"""Canonical form of whole programs: every expression, and branches that lead to the same.

Source: canonical.md, "Rank" and "Conditionals".
"""

from __future__ import annotations

import dataclasses

from sw.canonical.places import Places, marked, number_of, unmarked
from sw.canonical.simplify import canonicalize
from sw.ir.check import problems
from sw.ir.expression import Op, apply
from sw.ir.program import Assign, For, If, Instruction, Program, Statement, While
from sw.ir.scope import retype
from sw.ir.walk import map_expressions

#: How often a program is gone through again because its scalars have got narrower ranges.
ROUNDS = 8


def canonicalize_program(program: Program) -> Program:
    """The program with every expression in canonical form and merged branches; types must be up to date.

    What surely fails when it is reached can become so short that it shows, `x // (y - y)` as `x // 0`. Such a
    program would be refused when it is read again: the statements that are concerned stay as they are.
    """
    found = _settled(program, frozenset())
    if not problems(found) or problems(program):
        return found
    program = marked(program)
    places = Places(program)
    kept: frozenset[int] = frozenset()
    while wrong := problems(found := _settled(program, kept)):
        more = {number for e in wrong if (number := number_of(e.where)) is not None} - kept
        more = more or places.behind(kept) - kept
        if not more:
            return unmarked(program)
        kept |= more
    return unmarked(found)


def _settled(program: Program, kept: frozenset[int]) -> Program:
    """The program gone through until it stays; the statements of the numbers in `kept` stay as they are.

    A shorter value can be known to lie in a narrower range, which simplifies what uses it: the program is
    gone through again with the types that follow.
    """
    for _ in range(ROUNDS):
        found = retype(_once(program, kept))
        if found == program:
            break
        program = found
    return program


def _once(program: Program, kept: frozenset[int]) -> Program:
    """Every expression in canonical form for the types that its variables have, branches merged."""
    buffers = tuple(
        b
        if number_of(b.where) in kept
        else dataclasses.replace(b, shape=tuple(canonicalize(size) for size in b.shape))
        for b in program.buffers
    )
    return dataclasses.replace(program, buffers=buffers, body=_body(program.body, kept))


def _body(body: tuple[Statement, ...], kept: frozenset[int]) -> tuple[Statement, ...]:
    return tuple(_statement(s, kept) for s in body)


def _statement(s: Statement, kept: frozenset[int]) -> Statement:
    stays = number_of(s.where) in kept
    match s:
        case If():
            body, orelse = _body(s.body, kept), _body(s.orelse, kept)
            s = dataclasses.replace(s, body=body, orelse=orelse)
            return s if stays else _branch(s)
        case For() | While():
            changed = s if stays else map_expressions(s, canonicalize)
            return dataclasses.replace(changed, body=_body(s.body, kept))
        case Assign() | Instruction():
            return s if stays else map_expressions(s, canonicalize)


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
