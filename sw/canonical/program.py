"""Canonical form of whole programs: every expression, and branches that lead to the same.

Source: canonical.md, "Rank" and "Conditionals".
"""

from __future__ import annotations

import dataclasses

from sw.canonical.simplify import canonicalize
from sw.ir.expression import Op, apply
from sw.ir.program import Assign, For, If, Instruction, Program, Statement, While, change_expressions
from sw.ir.scope import retype

#: How often a program is gone through again because its scalars have got narrower ranges.
ROUNDS = 8


def canonicalize_program(program: Program) -> Program:
    """The program with every expression in canonical form and merged branches; types must be up to date.

    A shorter value can be known to lie in a narrower range, which simplifies what uses it: the program is
    gone through again with the types that follow until it stays.
    """
    for _ in range(ROUNDS):
        found = retype(_once(program))
        if found == program:
            break
        program = found
    return program


def _once(program: Program) -> Program:
    """Every expression in canonical form for the types that its variables have, branches merged."""
    buffers = tuple(
        dataclasses.replace(b, shape=tuple(canonicalize(size) for size in b.shape)) for b in program.buffers
    )
    return dataclasses.replace(program, buffers=buffers, body=_body(program.body))


def _body(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    return tuple(_statement(s) for s in body)


def _statement(s: Statement) -> Statement:
    match s:
        case If():
            return _branch(s)
        case For() | While():
            return dataclasses.replace(change_expressions(s, canonicalize), body=_body(s.body))
        case Assign() | Instruction():
            return change_expressions(s, canonicalize)


def _branch(s: If) -> If:
    """A branch, merged with the one inside of it where two ways lead to the same statements."""
    body, orelse = _body(s.body), _body(s.orelse)
    condition = s.condition
    while True:
        if len(body) == 1 and isinstance(body[0], If) and body[0].orelse == orelse:
            condition, body = apply(Op.AND, condition, body[0].condition), body[0].body
        elif len(orelse) == 1 and isinstance(orelse[0], If) and orelse[0].body == body:
            condition, orelse = apply(Op.OR, condition, orelse[0].condition), orelse[0].orelse
        else:
            return dataclasses.replace(s, condition=canonicalize(condition), body=body, orelse=orelse)
