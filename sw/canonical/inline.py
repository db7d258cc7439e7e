"""Inlines scalars, so that equal values are recognised under any name."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sw.canonical.affine import sorted_sum
from sw.codegen.operands import behind, evaluated, modified
from sw.ir.expression import Apply, Expr, Op, Var, names, substitute
from sw.ir.program import Assign, For, Instruction, Program, Statement, nesting
from sw.ir.ranges import may_trap
from sw.ir.syntax import DEEPEST
from sw.ir.walk import (
    assigned,
    expressions,
    map_bodies,
    map_expressions,
    rewrite,
    scalar_expressions,
    statements,
)

#: Largest values, in nodes, that replace a scalar used once, several times, and several times as a sum or
#: product (needed for strength reduction). Chains of values used twice would grow exponentially.
ONCE, SEVERAL, LINEAR = 200, 24, 48
#: Largest nesting depth of an inlined expression; enclosing statements and later rewrites add levels.
DEEPEST_VALUE = DEEPEST // 2
_LINEAR = (Op.ADD, Op.SUB, Op.MUL, Op.SHL)


def inline(program: Program) -> Program:
    """Replaces scalars that have a single assignment by their values, in evaluated expressions.

    Only if the value is unchanged at the use, cannot trap and is small. Scalars with large values stay, and
    are assigned outside the loops that do not change them. Unused assignments are removed.
    """
    parts = (part for s in statements(program.body) for e in _evaluated(s) for part in e.walk())
    used = Counter(part.name for part in parts if isinstance(part, Var))
    return dataclasses.replace(program, body=_Inliner(assigned(program.body), used).run(program.body))


class _Inliner:
    """Values of the scalars that may be replaced."""

    def __init__(self, assigned: Counter[str], used: Counter[str]):
        self.assigned, self.used = assigned, used
        #: Scalars that stay because their values are large.
        self.large: set[str] = set()

    def run(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        made = self.body(body, {})
        sources: dict[str, set[str]] = {}
        for s in statements(made):
            if isinstance(s, Assign):
                sources.setdefault(s.target, set()).update(names(s.value))
        live = behind(set().union(*map(_described, statements(made))), sources)

        def needed(s: Statement) -> Sequence[Statement]:
            """Drops a statement that assigns an unused scalar."""
            return (s,) if not isinstance(s, Assign) or s.target in live or may_trap(s.value) else ()

        return rewrite(made, needed)

    def body(self, body: tuple[Statement, ...], values: dict[str, Expr]) -> tuple[Statement, ...]:
        """Inlines in a list of statements; adds to `values` what they assign."""
        made: list[Statement] = []
        for s in body:
            changed = self.statement(s, values)
            if isinstance(changed, For):
                made += self.moved(changed)
            else:
                made.append(changed)
        return tuple(made)

    def moved(self, loop: For) -> list[Statement]:
        """A loop, preceded by its large invariant values."""
        large = [isinstance(s, Assign) and s.target in self.large for s in loop.body]
        before: list[Statement] = []
        inside: list[Statement] = []
        fixed = [modified(s) for s, stays in zip(loop.body, large, strict=True) if not stays]
        changing = {loop.variable}.union(*fixed)
        for s, stays in zip(loop.body, large, strict=True):
            if stays and isinstance(s, Assign) and changing.isdisjoint(names(s.value)):
                before.append(s)
            else:
                inside.append(s)
                changing |= modified(s)
        return [*before, dataclasses.replace(loop, body=tuple(inside))]

    def small(self, target: str, value: Expr) -> bool:
        """Whether a value may replace its scalar at every use."""
        if self.used[target] < 2:
            limit = ONCE
        else:
            linear = all(e.op in _LINEAR for e in value.walk() if isinstance(e, Apply))
            limit = LINEAR if linear else SEVERAL
        return sum(1 for _ in itertools.islice(value.walk(), limit + 1)) <= limit

    def statement(self, s: Statement, values: dict[str, Expr]) -> Statement:
        if not isinstance(s, Assign):
            s = map_expressions(s, lambda e: _replaced(e, values)) if values else s
            return map_bodies(s, lambda body: self.body(body, dict(values)))
        value = sorted_sum(_replaced(s.value, values)) if values else s.value
        # A scalar with a single assignment keeps its value as long as this value is in scope.
        fixed = all(self.assigned[n] < 2 for n in names(value))
        if self.assigned[s.target] == 1 and fixed and not may_trap(value):
            if self.small(s.target, value):
                values[s.target] = value
            else:
                self.large.add(s.target)
        return dataclasses.replace(s, value=value)


def _replaced(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Substitutes values, unless the result would nest too deep."""
    found = substitute(expr, values)
    return expr if found is not expr and nesting(found) > max(DEEPEST_VALUE, nesting(expr)) else found


def _evaluated(s: Statement) -> Iterator[Expr]:
    """Evaluated expressions of a statement, without nested statements."""
    return evaluated(s) if isinstance(s, Instruction) else scalar_expressions(s)


def _described(s: Statement) -> set[str]:
    """Names used by a statement, whether evaluated or only described.

    An assignment counts only if it stays because it may trap.
    """
    if isinstance(s, Assign) and not may_trap(s.value):
        return set()
    return {n for e in (*expressions(s), *_evaluated(s)) for n in names(e)}
