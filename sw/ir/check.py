"""Verifies what syntax cannot: scalars are defined before use, regions lie in their buffers, loops terminate.

The parser (`sw.ir.parse`) checks names and kinds, also for programs built in Python. This module rejects only
what is wrong in every run that reaches it; a statement that is legal for some parameter values passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sw.ir import grid
from sw.ir.errors import IRError, Location
from sw.ir.expression import Apply, Const, Expr, Op, Var, evaluate, substitute
from sw.ir.linear import always_holds, difference_bounds
from sw.ir.program import (
    Assign,
    Buffer,
    For,
    If,
    Instruction,
    Program,
    Region,
    Statement,
    While,
    nesting,
    print_access,
)
from sw.ir.ranges import bounds
from sw.ir.syntax import DEEPEST
from sw.ir.types import HIGH, LOW
from sw.ir.walk import assigned as assigned_in

#: Number of nested loops for which both the first and the last iteration are checked; loops further in
#: are checked at their first iteration only.
_CORNERS = 6
#: Largest expression, in nodes, that may replace a scalar. A chain of `x = x + x` would grow exponentially.
_LARGEST = 64


def check(program: Program) -> None:
    """Raises the first of `problems` as `IRError`, if there is one."""
    found = problems(program)
    if found:
        raise found[0]


def problems(program: Program) -> list[IRError]:
    """Lists everything that is wrong with a program, in text order (docs/ir.md, "What is refused").

    The types of variables must be up to date (`sw.ir.scope.retype`), as the parser and the passes leave them.
    """
    checker = _Checker(program)
    checker.buffers()
    checker.body(program.body, set(), _Surely((), {}))
    return [*checker.found, *grid.problems(program)]


@dataclass(frozen=True)
class _Surely:
    """Facts that hold whenever a statement executes.

    `loops` are the enclosing loops if all their iterations surely execute, or None under a condition.
    `values` maps scalars to equal expressions of loop variables.
    """

    loops: tuple[For, ...] | None
    values: dict[str, Expr]


@dataclass
class _Checker:
    """The checker's state: problems found so far and the current context."""

    program: Program
    found: list[IRError] = field(default_factory=list)
    declared: dict[str, Buffer] = field(default_factory=dict)
    #: Scalars assigned by exactly one statement.
    once: set[str] = field(default_factory=set)
    #: Nesting depth of the current statement, counting the program itself.
    depth: int = 1

    def say(self, where: Location | None, found: str, expected: str) -> None:
        self.found.append(IRError(where, found, expected))

    def too_deep(self, where: Location | None) -> None:
        """Reports nesting deeper than the parser accepts."""
        self.say(where, f"nesting deeper than {DEEPEST} levels", "less nesting")

    def buffers(self) -> None:
        parameters = {p.name for p in self.program.parameters}
        self.depth += 1
        for b in self.program.buffers:
            self.declared[b.name] = b
            for size in b.shape:
                self.expr(size, parameters, b.where)
                if bounds(size)[1] <= 0:
                    self.say(b.where, f"size {size} of {b.name!r}", "a positive size")
        self.depth -= 1
        self.once = {name for name, count in assigned_in(self.program.body).items() if count == 1}

    def expr(self, expr: Expr, assigned: set[str], where: Location | None) -> None:
        """Checks that every variable has a value and that nothing divides by zero."""
        if self.depth + nesting(expr) > DEEPEST:
            self.too_deep(where)
        for node in expr.walk():
            if isinstance(node, Var) and node.name not in assigned:
                expected = "an assignment on every path that leads here"
                self.say(where, f"scalar {node.name!r}, which may have no value", expected)
            elif isinstance(node, Apply) and node.op in (Op.DIV, Op.MOD) and bounds(node.args[1]) == (0, 0):
                self.say(where, f"a division by zero, {node}", "a divisor other than zero")

    def body(self, body: tuple[Statement, ...], assigned: set[str], surely: _Surely) -> None:
        """Checks a body; adds the scalars that surely have a value to `assigned` and `surely.values`."""
        assigned |= {p.name for p in self.program.parameters}
        self.depth += 1
        for s in body:
            self.statement(s, assigned, surely)
        self.depth -= 1

    def statement(self, s: Statement, assigned: set[str], surely: _Surely) -> None:
        if self.depth + isinstance(s, For | While | If) > DEEPEST:
            self.too_deep(s.where)
        match s:
            case Instruction():
                self.instruction(s, assigned, surely)
            case Assign(target, value):
                self.expr(value, assigned, s.where)
                assigned.add(target)
                if target in self.once:
                    value = substitute(value, surely.values)
                    if sum(1 for _ in itertools.islice(value.walk(), _LARGEST)) < _LARGEST:
                        surely.values[target] = value
            case If(condition, body, orelse):
                self.expr(condition, assigned, s.where)
                low, high = bounds(condition)
                then, other = set(assigned), set(assigned)
                self.body(body, then, surely if low else _Surely(None, dict(surely.values)))
                self.body(orelse, other, surely if not high else _Surely(None, dict(surely.values)))
                assigned |= then if low else other if not high else then & other
            case While(condition, body):
                self.expr(condition, assigned, s.where)
                if always_holds(condition):
                    found = f"while {condition}, which always holds"
                    self.say(s.where, found, "a loop that can end")
                self.body(body, set(assigned), _Surely(None, dict(surely.values)))
            case For():
                self.loop(s, assigned, surely)

    def loop(self, s: For, assigned: set[str], surely: _Surely) -> None:
        """Checks that the step leads to the loop's end."""
        for e in (s.start, s.stop, s.step):
            self.expr(e, assigned, s.where)
        if bounds(s.step) == (0, 0):
            found = f"step {s.step} of the loop over {s.variable!r}, which is zero"
            self.say(s.where, found, "a loop that can end")
        inside = {*assigned, s.variable}
        start, stop, step = (substitute(e, surely.values) for e in (s.start, s.stop, s.step))
        loops = None if surely.loops is None else (*surely.loops, For(s.variable, start, stop, step, ()))
        self.body(s.body, inside, _Surely(loops, dict(surely.values)))
        if _runs(s):
            assigned |= inside - {s.variable}

    def instruction(self, i: Instruction, assigned: set[str], surely: _Surely) -> None:
        if i.when is not None:
            self.expr(i.when, assigned, i.where)
            surely = _Surely(None, surely.values)
        for part in (*(operand for _, operand in i.operands), *i.reads, *i.writes):
            if isinstance(part, Region):
                self.region(part, i, assigned, surely)
            elif isinstance(part, Expr):
                self.expr(part, assigned, i.where)

    def region(self, r: Region, i: Instruction, assigned: set[str], surely: _Surely) -> None:
        """Checks that a region lies in its buffer."""
        where, before = r.where or i.where, len(self.found)
        for interval in r.box:
            self.expr(interval.start, assigned, where)
            self.expr(interval.stop, assigned, where)
        if len(self.found) == before:
            buffer = self.declared[r.buffer]
            found = _always_outside(r, buffer) or _once_outside(r, buffer, surely)
            if found:
                whole = ", ".join(f"0:{size}" for size in buffer.shape)
                self.say(where, found, f"a region inside of {buffer.name}[{whole}]")


def _runs(loop: For) -> bool:
    """Whether a loop surely runs at least one iteration."""
    (low, high), (end_low, end_high), (slow, fast) = bounds(loop.start), bounds(loop.stop), bounds(loop.step)
    return (slow > 0 and high < end_low) or (fast < 0 and low > end_high)


def _always_outside(r: Region, buffer: Buffer) -> str | None:
    """Describes a non-empty region that is out of bounds for all values of the variables, or returns None."""
    # A single index is stored as the interval from it to one more.
    wrapped = [
        bounds(i.start)[0] == HIGH - 1 and i.stop in (Const(LOW), Apply(Op.ADD, (i.start, Const(1))))
        for i in r.box
    ]
    if any(difference_bounds(i.stop, i.start)[0] <= 0 and not w for i, w in zip(r.box, wrapped, strict=True)):
        return None
    for interval, size, wraps in zip(r.box, buffer.shape, wrapped, strict=True):
        if wraps:
            # No buffer is this large.
            return f"{print_access(r)}, which starts at {_span(interval.start)}"
        if bounds(interval.start)[1] < 0:
            return f"{print_access(r)}, which starts at {_span(interval.start)}"
        if difference_bounds(interval.stop, size)[0] > 0:
            return f"{print_access(r)}, which ends at {_span(interval.stop)}"
    return None


def _span(expr: Expr) -> str:
    low, high = bounds(expr)
    if isinstance(expr, Const) or low == high:
        return str(low)
    return f"{expr}, from {low} to {high}"


def _once_outside(r: Region, buffer: Buffer, surely: _Surely) -> str | None:
    """Describes a region that is out of bounds in an iteration that surely executes, or returns None."""
    if surely.loops is None:
        return None
    box = [(substitute(i.start, surely.values), substitute(i.stop, surely.values)) for i in r.box]
    for values in _corners(surely.loops):
        try:
            ends = [(evaluate(a, values), evaluate(b, values)) for a, b in box]
            # An index equal to the largest integer: the end of its interval has wrapped.
            ends = [(a, HIGH if (a, b) == (HIGH - 1, LOW) else b) for a, b in ends]
            sizes = [evaluate(size, values) for size in buffer.shape]
        except (KeyError, ZeroDivisionError):
            continue
        if all(a < b for a, b in ends) and any(a < 0 or b > n for (a, b), n in zip(ends, sizes, strict=True)):
            used = {v.name for e in itertools.chain(*box) for v in e.variables()}
            at = ", ".join(f"{name} = {value}" for name, value in values.items() if name in used)
            text = f"{r.buffer}[{', '.join(f'{a}:{b}' for a, b in ends)}]"
            return f"{print_access(r)}, which is {text}{f' where {at}' if at else ''}"
    return None


def _corners(loops: tuple[For, ...], values: Mapping[str, int] | None = None) -> Iterator[dict[str, int]]:
    """Yields iterations that surely execute: the first and last ones of each loop."""
    values = dict(values or {})
    if not loops:
        yield values
        return
    loop, inner = loops[0], loops[1:]
    try:
        start, stop, step = (evaluate(e, values) for e in (loop.start, loop.stop, loop.step))
    except (KeyError, ZeroDivisionError):
        return
    if step == 0:
        return
    numbers = range(start, stop, step)
    ends = {numbers[0], numbers[-1]} if numbers else set()
    for value in sorted(ends)[: 2 if len(values) < _CORNERS else 1]:
        yield from _corners(inner, {**values, loop.variable: value})
