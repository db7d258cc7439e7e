"""Programs with numbers for their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr, substitute
from sw.ir.program import Program
from sw.ir.scope import retype
from sw.ir.walk import rewrite


def with_values(program: Program, values: Mapping[str, int]) -> Program:
    """The program with numbers in the place of its parameters.

    Raises `IRError` for a parameter without a value, and a value out of its range.
    """
    known: dict[str, Expr] = {}
    for p in program.parameters:
        if p.name not in values:
            raise IRError(p.where, f"no value of the parameter {p.name}", "one among the inputs")
        value = values[p.name]
        if not p.type.low <= value < p.type.high:
            raise IRError(p.where, f"{p.name} = {value}", f"a value of {p.type}")
        known[p.name] = Const(int(value), p.type.kind)

    def change(expr: Expr) -> Expr:
        return substitute(expr, known)

    buffers = tuple(
        dataclasses.replace(b, shape=tuple(change(size) for size in b.shape)) for b in program.buffers
    )
    body = rewrite(program.body, expression=change)
    return retype(dataclasses.replace(program, parameters=(), buffers=buffers, body=body))
