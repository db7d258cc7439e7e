"""Facts about variables: their ranges, and the deepest loop that each depends on.

The type of a variable follows from the declarations, loops and assignments around it. After a program has
changed, `retype` computes the types again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from sw.ir.expression import Expr, Var, substitute
from sw.ir.program import Assign, For, Program, Statement, While
from sw.ir.ranges import bounds
from sw.ir.types import BOOL, INT, Kind, Type
from sw.ir.walk import Body, assigned, map_bodies, map_expressions, statements, walk

Types = Mapping[str, Type]


def with_types(expr: Expr, types: Types) -> Expr:
    """Replaces the types of an expression's variables, by name."""
    known = ((v, types.get(v.name, v.type)) for v in expr.variables())
    changed: dict[str, Expr] = {v.name: Var(v.name, t) for v, t in known if t != v.type}
    return substitute(expr, changed) if changed else expr


@functools.lru_cache(maxsize=1 << 16)
def loop_depth(expr: Expr) -> int | None:
    """Depth of the deepest loop that an expression depends on, or None if it depends on no loop."""
    return max((v.type.loop for v in expr.variables() if v.type.loop is not None), default=None)


def loop_type(start: Expr, stop: Expr, step: Expr, depth: int) -> Type:
    """The type of a loop variable for these bounds."""
    (low, high), (end_low, end_high), (slow, fast) = bounds(start), bounds(stop), bounds(step)
    if slow > 0:
        if low == high and end_low == end_high and slow == fast:
            end_high = low + (end_high - 1 - low) // slow * slow + 1
        return Type(Kind.INT, low, max(low + 1, end_high), depth)
    if fast < 0:
        return Type(Kind.INT, min(high, end_low + 1), high + 1, depth)
    return dataclasses.replace(INT, loop=depth)


def retype(program: Program) -> Program:
    """Recomputes the types of all variables.

    A scalar with a single assignment has the range and depth of its value. For a scalar with several, only
    the depth of the deepest loop around an assignment is known.
    """
    scope = _Scope(assigned(program.body), _loops_of(program))
    types: dict[str, Type] = {p.name: p.type for p in program.parameters}
    buffers = tuple(
        dataclasses.replace(b, shape=tuple(with_types(size, types) for size in b.shape))
        for b in program.buffers
    )
    return dataclasses.replace(program, buffers=buffers, body=scope.body(program.body, types, -1))


def _loops_of(program: Program) -> dict[str, int]:
    """Depth of the deepest loop in which each scalar is assigned, -1 if it is outside all loops."""
    found: dict[str, int] = {}
    for s, around in walk(program.body):
        if isinstance(s, Assign):
            depth = sum(isinstance(x, For | While) for x in around) - 1
            found[s.target] = max(found.get(s.target, -1), depth)
    return found


@dataclasses.dataclass
class _Scope:
    """Number of assignments to each scalar, and the depth of the deepest loop around one."""

    assigned: Mapping[str, int]
    loops: Mapping[str, int]

    def body(self, body: Body, types: dict[str, Type], depth: int) -> Body:
        """Retypes a body; adds the types of the scalars it assigns to `types`."""
        return tuple(self.statement(s, types, depth) for s in body)

    def statement(self, s: Statement, types: dict[str, Type], depth: int) -> Statement:
        if isinstance(s, While):
            self.carried(s.body, types)
        s = map_expressions(s, lambda e: with_types(e, types))
        depth += isinstance(s, For | While)
        if isinstance(s, Assign):
            types[s.target] = self.scalar(s.target, s.value)
        elif isinstance(s, For):
            self.carried(s.body, types)
            types[s.variable] = loop_type(s.start, s.stop, s.step, depth)
        return map_bodies(s, lambda body: self.body(body, types, depth))

    def carried(self, body: Body, types: dict[str, Type]) -> None:
        """Scalars that a loop changes have their general type from the start of the loop."""
        for s in statements(body):
            if isinstance(s, Assign) and self.assigned[s.target] > 1:
                types[s.target] = self.scalar(s.target, s.value)

    def scalar(self, target: str, value: Expr) -> Type:
        """The type of a scalar that is assigned this value."""
        if self.assigned[target] > 1:
            depth = self.loops[target]
            kind = BOOL if value.kind is Kind.BOOL else INT
            return dataclasses.replace(kind, loop=None if depth < 0 else depth)
        if value.kind is Kind.BOOL:
            return dataclasses.replace(BOOL, loop=loop_depth(value))
        low, high = bounds(value)
        return Type(Kind.INT, low, high + 1, loop_depth(value))
