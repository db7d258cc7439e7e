"""Walks and rewrites of tile programs: the only code that knows how statements nest.

`statements` and `walk` visit a body, `rewrite` maps it from the inside out. A pass that carries something
from the outside in (types, values, a scope) calls itself through `map_bodies`. `executions` follows a program
whose values are known, one instruction at a time.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from sw.ir.errors import IRError, Location
from sw.ir.expression import Expr, evaluate
from sw.ir.program import (
    Access,
    Assign,
    For,
    If,
    Instruction,
    Interval,
    Program,
    Region,
    Statement,
    While,
)

Body = tuple[Statement, ...]
S = TypeVar("S", bound=Statement)
#: What a rewrite makes of a statement: another one, several, or none.
Rewritten = Statement | Sequence[Statement]


class Instance(NamedTuple):
    """One execution of an instruction: its label and the numbers of the iterations, outermost first.

    Iterations count from 0, whatever the values of the loop's variable.
    """

    label: str
    iteration: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.label}[{', '.join(map(str, self.iteration))}]" if self.iteration else self.label


#: An instruction that happens, with the numbers of its iterations.
Happening = tuple[Instruction, tuple[int, ...]]

# What is nested


def bodies(statement: Statement) -> tuple[Body, ...]:
    """The bodies of a statement: one of a loop, both of a branch."""
    if isinstance(statement, For | While):
        return (statement.body,)
    return (statement.body, statement.orelse) if isinstance(statement, If) else ()


def map_bodies(statement: S, change: Callable[[Body], Body]) -> S:
    """The statement with each of its bodies changed, in the order of the text."""
    made: Statement = statement
    if isinstance(statement, For | While):
        made = dataclasses.replace(statement, body=change(statement.body))
    elif isinstance(statement, If):
        body = change(statement.body)
        made = dataclasses.replace(statement, body=body, orelse=change(statement.orelse))
    return cast("S", made)


def statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """All statements of a body and of what is nested in it, in the order of the text."""
    for statement in body:
        yield statement
        for inner in bodies(statement):
            yield from statements(inner)


def walk(body: Iterable[Statement], around: Body = ()) -> Iterator[tuple[Statement, Body]]:
    """All statements in the order of the text, with the loops and branches around it, outermost first."""
    for statement in body:
        yield statement, around
        for inner in bodies(statement):
            yield from walk(inner, (*around, statement))


def instructions(program: Program | Iterable[Statement]) -> list[Instruction]:
    """The instructions of a program or body in the order of the text."""
    body = program.body if isinstance(program, Program) else program
    return [s for s in statements(body) if isinstance(s, Instruction)]


# Names


def assigned(body: Iterable[Statement]) -> Counter[str]:
    """The scalars that a body assigns, in the order of the text, with the number of assignments to each."""
    return Counter(s.target for s in statements(body) if isinstance(s, Assign))


def uses(body: Iterable[Statement]) -> Counter[str]:
    """The variables that a body reads, each with the number of expressions that do."""
    return Counter(v.name for s in statements(body) for e in expressions(s) for v in e.variables())


def used_names(program: Program) -> set[str]:
    """All names that a program declares: parameters, buffers, scalars, loop variables, labels."""
    found = {p.name for p in program.parameters} | {b.name for b in program.buffers}
    for s in statements(program.body):
        if isinstance(s, Assign):
            found.add(s.target)
        elif isinstance(s, For):
            found.add(s.variable)
        elif isinstance(s, Instruction):
            found.add(s.label)
    return found


def fresh_names(program: Program, stem: str) -> Iterator[str]:
    """Names that a program does not use, for passes that add scalars or instructions."""
    taken, number = used_names(program), 0
    while True:
        if f"{stem}{number}" not in taken:
            yield f"{stem}{number}"
        number += 1


# Expressions


def expressions(statement: Statement) -> Iterator[Expr]:
    """The expressions of a statement itself, in the order of the text; not those nested in its bodies."""
    if isinstance(statement, Instruction):
        for part in (*statement.reads, *statement.writes, *(o for _, o in statement.operands)):
            if isinstance(part, Expr):
                yield part
            elif isinstance(part, Region):
                for interval in part.box:
                    yield from (interval.start, interval.stop)
    yield from scalar_expressions(statement)


def scalar_expressions(statement: Statement) -> Iterator[Expr]:
    """A statement's value, bounds, or condition: its expressions but those that an instruction is given."""
    match statement:
        case Assign(_, value):
            yield value
        case For():
            yield from (statement.start, statement.stop, statement.step)
        case If(condition) | While(condition):
            yield condition
        case Instruction() if statement.when is not None:
            yield statement.when


def map_region(region: Region, change: Callable[[Expr], Expr]) -> Region:
    """The region with every bound changed."""
    box = tuple(Interval(change(i.start), change(i.stop)) for i in region.box)
    return dataclasses.replace(region, box=box)


def map_accesses(i: Instruction, change: Callable[[Region], Region]) -> Instruction:
    """The instruction with every region changed: read, written, and given as operand."""

    def access(a: Access) -> Access:
        return change(a) if isinstance(a, Region) else a

    return dataclasses.replace(
        i,
        reads=tuple(access(a) for a in i.reads),
        writes=tuple(access(a) for a in i.writes),
        operands=tuple((name, change(o) if isinstance(o, Region) else o) for name, o in i.operands),
    )


def map_expressions(statement: S, change: Callable[[Expr], Expr], *, regions: bool = True) -> S:
    """The statement with every expression of its own changed; not those nested in its bodies.

    Without `regions` the bounds of regions stay: a warp does not evaluate them.
    """
    made: Statement = statement
    match statement:
        case Assign(_, value):
            made = dataclasses.replace(statement, value=change(value))
        case For(_, start, stop, step):
            made = dataclasses.replace(statement, start=change(start), stop=change(stop), step=change(step))
        case If(condition) | While(condition):
            made = dataclasses.replace(statement, condition=change(condition))
        case Instruction():
            made = map_accesses(statement, lambda r: map_region(r, change)) if regions else statement
            made = dataclasses.replace(
                made,
                when=None if made.when is None else change(made.when),
                operands=tuple((n, o if isinstance(o, Region) else change(o)) for n, o in made.operands),
            )
    return cast("S", made)


# Rewriting


def rewrite(
    body: Iterable[Statement],
    statement: Callable[[Statement], Rewritten] | None = None,
    expression: Callable[[Expr], Expr] | None = None,
    *,
    regions: bool = True,
) -> Body:
    """The body mapped from the inside out.

    Every expression becomes `expression(e)` (with `regions` those of regions too). Then `statement` is given
    each statement, whose bodies are rewritten already; it returns what takes its place: a statement, or a
    sequence of any number of them.
    """
    made: list[Statement] = []
    for s in body:
        s = map_bodies(s, lambda inner: rewrite(inner, statement, expression, regions=regions))
        if expression is not None:
            s = map_expressions(s, expression, regions=regions)
        found = s if statement is None else statement(s)
        if isinstance(found, Sequence):
            made += found
        else:
            made.append(found)
    return tuple(made)


def without_empty(s: Statement) -> Rewritten:
    """For `rewrite`: leaves out loops and branches in which nothing is left."""
    return () if (nested := bodies(s)) and not any(nested) else s


# Execution


def executions(
    body: Iterable[Statement],
    values: dict[str, int],
    wanted: Callable[[Instruction], bool] | None = None,
    *,
    step: Callable[[Location | None], None] | None = None,
) -> Iterator[Happening]:
    """The instructions that happen, in order, each with the numbers of its iterations, outermost loop first.

    While one is looked at, `values` holds the values of all variables there. With `wanted` only such
    instructions are given, and loops without any are skipped. `step` is called for every iteration. Raises
    `IRError` for what fails.
    """
    matters: dict[int, bool] = {}

    def number(expr: Expr, where: Location | None) -> int:
        return value_of(expr, values, where)

    def idle(s: Statement) -> bool:
        if wanted is None:
            return False
        if id(s) not in matters:
            matters[id(s)] = _matters(s, wanted)
        return not matters[id(s)]

    def iterations(s: For | While) -> Iterator[int]:
        if isinstance(s, For):
            start, stop, by = (number(e, s.where) for e in (s.start, s.stop, s.step))
            if by == 0:
                raise IRError(s.where, f"step {s.step} = 0", "a step other than zero")
            for n, values[s.variable] in enumerate(range(start, stop, by)):
                yield n
            values.pop(s.variable, None)
            return
        for n in itertools.count():
            if not number(s.condition, s.where):
                return
            yield n

    def run(body: Iterable[Statement], iteration: tuple[int, ...]) -> Iterator[Happening]:
        for s in body:
            if idle(s):
                continue
            match s:
                case Instruction():
                    if s.when is None or number(s.when, s.where):
                        yield s, iteration
                case Assign(target, expr):
                    values[target] = number(expr, s.where)
                case If():
                    yield from run(s.body if number(s.condition, s.where) else s.orelse, iteration)
                case For() | While():
                    for n in iterations(s):
                        if step is not None:
                            step(s.where)
                        yield from run(s.body, (*iteration, n))

    yield from run(body, ())


def _matters(s: Statement, wanted: Callable[[Instruction], bool]) -> bool:
    """Whether a statement assigns a scalar, or has an instruction that is wanted."""
    return any(isinstance(x, Assign) or (isinstance(x, Instruction) and wanted(x)) for x in statements((s,)))


def value_of(expr: Expr, values: Mapping[str, int], where: Location | None) -> int:
    """The value of an expression; raises `IRError` for a division by zero and a variable without value."""
    try:
        return evaluate(expr, values)
    except KeyError as error:
        raise IRError(where, f"{error.args[0]!r} before it has a value", "an assignment before") from None
    except ZeroDivisionError:
        raise IRError(where, f"a division by zero in {expr}", "a divisor other than zero") from None
