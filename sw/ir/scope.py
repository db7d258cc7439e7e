"""What is known of a program's variables: ranges, and the deepest loop that each depends on.

The types that variables carry follow from the declarations, loops and assignments of the program around
them. `retype` brings them up to date after a program was changed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from sw.ir.expression import Apply, Expr, Var
from sw.ir.program import (
    Assign,
    For,
    If,
    Instruction,
    Program,
    Statement,
    While,
    change_expressions,
    statements,
)
from sw.ir.ranges import bounds
from sw.ir.types import BOOL, INT, Kind, Type

Types = Mapping[str, Type]


def with_types(expr: Expr, types: Types) -> Expr:
    """The expression with the types of its variables replaced by name."""
    if isinstance(expr, Var):
        known = types.get(expr.name, expr.type)
        return expr if known == expr.type else Var(expr.name, known)
    if not isinstance(expr, Apply):
        return expr
    args = tuple(with_types(a, types) for a in expr.args)
    return expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else Apply(expr.op, args)


def depth_of(expr: Expr) -> int | None:
    """The depth of the deepest loop that an expression depends on; None where it depends on none."""
    return max((v.type.loop for v in expr.variables() if v.type.loop is not None), default=None)


def loop_type(start: Expr, stop: Expr, step: Expr, depth: int) -> Type:
    """The type of the variable of a loop with these bounds."""
    (low, high), (end_low, end_high), (slow, fast) = bounds(start), bounds(stop), bounds(step)
    if slow > 0:
        if low == high and end_low == end_high and slow == fast:
            end_high = low + (end_high - 1 - low) // slow * slow + 1
        return Type(Kind.INT, low, max(low + 1, end_high), depth)
    if fast < 0:
        return Type(Kind.INT, min(high, end_low + 1), high + 1, depth)
    return dataclasses.replace(INT, loop=depth)


def retype(program: Program) -> Program:
    """The program with the types of all variables as they follow from it.

    A scalar that one statement assigns has the range and depth of the value; of one that several assign only
    the depth of the deepest loop around an assignment is known.
    """
    assigned = Counter(s.target for s in statements(program.body) if isinstance(s, Assign))
    scope = _Scope(dict(assigned), {})
    _loops_of(program.body, None, scope.loops)
    types: dict[str, Type] = {p.name: p.type for p in program.parameters}
    buffers = tuple(
        dataclasses.replace(b, shape=tuple(with_types(size, types) for size in b.shape))
        for b in program.buffers
    )
    return dataclasses.replace(program, buffers=buffers, body=scope.body(program.body, types, None))


def _loops_of(body: tuple[Statement, ...], depth: int | None, found: dict[str, int | None]) -> None:
    """The depth of the deepest loop in which each scalar is assigned."""
    for statement in body:
        match statement:
            case Assign(target):
                known = found.get(target)
                found[target] = depth if known is None else max(known, -1 if depth is None else depth)
            case For() | While():
                _loops_of(statement.body, 0 if depth is None else depth + 1, found)
            case If():
                _loops_of(statement.body, depth, found)
                _loops_of(statement.orelse, depth, found)
            case _:
                pass


@dataclasses.dataclass
class _Scope:
    """How often each scalar is assigned, and in how deep a loop."""

    assigned: dict[str, int]
    loops: dict[str, int | None]

    def body(
        self, body: tuple[Statement, ...], types: dict[str, Type], depth: int | None
    ) -> tuple[Statement, ...]:
        """The statements with types; `types` gains what they assign."""
        return tuple(self.statement(s, types, depth) for s in body)

    def statement(self, s: Statement, types: dict[str, Type], depth: int | None) -> Statement:
        match s:
            case Assign(target, value):
                value = with_types(value, types)
                types[target] = self.scalar(target, value)
                return dataclasses.replace(s, value=value)
            case Instruction():
                return change_expressions(s, lambda e: with_types(e, types))
            case If(condition, body, orelse):
                return dataclasses.replace(
                    s,
                    condition=with_types(condition, types),
                    body=self.body(body, types, depth),
                    orelse=self.body(orelse, types, depth),
                )
            case For(variable, start, stop, step, body):
                start, stop, step = (with_types(e, types) for e in (start, stop, step))
                inner = 0 if depth is None else depth + 1
                self.carried(body, types)
                types[variable] = loop_type(start, stop, step, inner)
                return dataclasses.replace(
                    s, start=start, stop=stop, step=step, body=self.body(body, types, inner)
                )
            case While(condition, body):
                self.carried(body, types)
                condition = with_types(condition, types)
                inner = 0 if depth is None else depth + 1
                return dataclasses.replace(s, condition=condition, body=self.body(body, types, inner))

    def carried(self, body: tuple[Statement, ...], types: dict[str, Type]) -> None:
        """What a loop changes has its general type from the start of the loop on."""
        for s in statements(body):
            if isinstance(s, Assign) and self.assigned[s.target] > 1:
                types[s.target] = self.scalar(s.target, s.value)

    def scalar(self, target: str, value: Expr) -> Type:
        """The type of a scalar that takes this value."""
        if self.assigned[target] == 1:
            if value.kind is Kind.BOOL:
                return dataclasses.replace(BOOL, loop=depth_of(value))
            low, high = bounds(value)
            return Type(Kind.INT, low, high + 1, depth_of(value))
        depth = self.loops.get(target)
        kind = BOOL if value.kind is Kind.BOOL else INT
        return dataclasses.replace(kind, loop=None if depth in (None, -1) else depth)
