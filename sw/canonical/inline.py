"""Scalars replaced by what they stand for, so that values can be found wherever they were named."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

from sw.canonical.affine import sorted_sum
from sw.codegen.names import names
from sw.codegen.operands import evaluated, modified
from sw.codegen.select import may_trap
from sw.ir.expression import Apply, Expr, Op, Var, substitute
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement, While, nesting
from sw.ir.syntax import DEEPEST
from sw.ir.walk import map_expressions, statements

#: Nodes up to which a value replaces a scalar that is used once, several times, and several times as a sum or
#: product (strength reduction needs these): chains of values used twice are huge trees.
ONCE, SEVERAL, LINEAR = 200, 24, 48
#: Levels that an expression with values in it may nest: statements around it, and what it becomes, nest too.
DEEPEST_VALUE = DEEPEST // 2
_LINEAR = (Op.ADD, Op.SUB, Op.MUL, Op.SHL)


def inline(program: Program) -> Program:
    """The program with scalars that one statement assigns replaced by their values in what is evaluated.

    Only where that value is still the same at the use, cannot trap, and is small. Scalars whose values are
    large stay; they are assigned outside of the loops in which they do not change. What nothing uses is left
    out.
    """
    assigned = Counter(s.target for s in statements(program.body) if isinstance(s, Assign))
    used = Counter(n for s in statements(program.body) for e in _expressions(s) for n in _mentioned(e))
    return dataclasses.replace(program, body=_Inliner(assigned, used).run(program.body))


class _Inliner:
    """Scalars that can be replaced."""

    def __init__(self, assigned: Counter[str], used: Counter[str]):
        self.assigned, self.used = assigned, used
        self.live: set[str] = set()
        #: Scalars that stay because of their size.
        self.large: set[str] = set()

    def run(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        made = self.body(body, {})
        for s in statements(made):
            self.live |= _described(s)
        changed = True
        while changed:
            before = len(self.live)
            for s in statements(made):
                if isinstance(s, Assign) and s.target in self.live:
                    self.live |= names(s.value)
            changed = len(self.live) != before
        return self.prune(made)

    def body(self, body: tuple[Statement, ...], values: dict[str, Expr]) -> tuple[Statement, ...]:
        """Statements in order; `values` holds what can be replaced here, and gains what they assign."""
        made: list[Statement] = []
        for s in body:
            changed = self.statement(s, values)
            if isinstance(changed, For):
                made += self.moved(changed)
            else:
                made.append(changed)
        return tuple(made)

    def moved(self, loop: For) -> list[Statement]:
        """A loop, behind the large values of it that do not change in it."""
        if not any(isinstance(s, Assign) and s.target in self.large for s in loop.body):
            return [loop]
        before: list[Statement] = []
        inside: list[Statement] = []
        changing = {loop.variable}.union(
            *(modified(s) for s in loop.body if not isinstance(s, Assign) or s.target not in self.large)
        )
        for s in loop.body:
            large = isinstance(s, Assign) and s.target in self.large
            if isinstance(s, Assign) and large and changing.isdisjoint(names(s.value)):
                before.append(s)
                continue
            inside.append(s)
            if isinstance(s, Assign):
                changing.add(s.target)
        return [*before, dataclasses.replace(loop, body=tuple(inside))]

    def small(self, target: str, value: Expr) -> bool:
        """Whether a value may stand wherever its scalar is used."""
        if self.used[target] < 2:
            limit = ONCE
        else:
            linear = all(e.op in _LINEAR for e in value.walk() if isinstance(e, Apply))
            limit = LINEAR if linear else SEVERAL
        return sum(1 for _ in itertools.islice(value.walk(), limit + 1)) <= limit

    def statement(self, s: Statement, values: dict[str, Expr]) -> Statement:
        match s:
            case Instruction():
                return map_expressions(s, lambda e: _replaced(e, values)) if values else s
            case Assign(target, value):
                value = sorted_sum(_replaced(value, values)) if values else value
                # What is assigned once stays the same as long as this value is in scope.
                fixed = all(self.assigned[n] < 2 for n in names(value))
                if self.assigned[target] == 1 and fixed and not may_trap(value):
                    if self.small(target, value):
                        values[target] = value
                    else:
                        self.large.add(target)
                return dataclasses.replace(s, value=value)
            case For():
                start, stop, step = (_replaced(e, values) for e in (s.start, s.stop, s.step))
                inner = dict(values)
                made = self.body(s.body, inner)
                return dataclasses.replace(s, start=start, stop=stop, step=step, body=made)
            case If():
                condition = _replaced(s.condition, values)
                then, other = self.body(s.body, dict(values)), self.body(s.orelse, dict(values))
                return dataclasses.replace(s, condition=condition, body=then, orelse=other)
            case While():
                condition = _replaced(s.condition, values)
                return dataclasses.replace(s, condition=condition, body=self.body(s.body, dict(values)))

    def prune(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """Without assignments that nothing uses."""
        made: list[Statement] = []
        for s in body:
            match s:
                case Assign(target, value):
                    if target in self.live or may_trap(value):
                        made.append(s)
                case For() | While():
                    made.append(dataclasses.replace(s, body=self.prune(s.body)))
                case If():
                    made.append(dataclasses.replace(s, body=self.prune(s.body), orelse=self.prune(s.orelse)))
                case _:
                    made.append(s)
        return tuple(made)


def _replaced(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with values in it, as it is where that would nest too deep."""
    found = substitute(expr, values)
    return expr if found is not expr and nesting(found) > max(DEEPEST_VALUE, nesting(expr)) else found


def _expressions(s: Statement) -> tuple[Expr, ...]:
    """Expressions of a statement that are evaluated, without those of the statements in it."""
    match s:
        case Instruction():
            return tuple(evaluated(s))
        case Assign(_, value):
            return (value,)
        case For():
            return (s.start, s.stop, s.step)
        case If() | While():
            return (s.condition,)


def _mentioned(expr: Expr) -> Iterator[str]:
    """Names of variables, as often as they are mentioned."""
    return (e.name for e in expr.walk() if isinstance(e, Var))


def _described(s: Statement) -> set[str]:
    """Names that a statement uses, in what is evaluated or only described.

    An assignment uses them for others, unless it stays because it may trap.
    """
    found: set[str] = set()
    match s:
        case Instruction():
            for expr in (*evaluated(s), *(o for _, o in s.operands if isinstance(o, Expr))):
                found |= names(expr)
            regions = [a for a in (*s.reads, *s.writes) if isinstance(a, Region)]
            regions += [o for _, o in s.operands if isinstance(o, Region)]
            for region in regions:
                for interval in region.box:
                    found |= names(interval.start) | names(interval.stop)
        case Assign(_, value) if may_trap(value):
            found |= names(value)
        case For():
            found |= names(s.start) | names(s.stop) | names(s.step)
        case If() | While():
            found |= names(s.condition)
        case _:
            pass
    return found
