"""Traversal and rewriting of tile programs: the only code that knows how statements nest.

`statements` and `walk` visit a body; `rewrite` maps it bottom-up. A pass that carries context top-down
(types, values, a scope) recurses through `map_bodies`. `executions` runs a program with known values, one
instruction at a time.
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
#: Result of rewriting a statement: another statement, several, or none.
Rewritten = Statement | Sequence[Statement]


class Instance(NamedTuple):
    """One execution of an instruction: its label and its iteration numbers, outermost loop first.

    Iterations count from 0, independent of the values of the loop variable.
    """

    label: str
    iteration: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.label}[{', '.join(map(str, self.iteration))}]" if self.iteration else self.label


#: An executed instruction with its iteration numbers.
Happening = tuple[Instruction, tuple[int, ...]]

# Nesting


def bodies(statement: Statement) -> tuple[Body, ...]:
    """The bodies of a statement: one for a loop, two for a branch."""
    if isinstance(statement, For | While):
        return (statement.body,)
    return (statement.body, statement.orelse) if isinstance(statement, If) else ()


def map_bodies(statement: S, change: Callable[[Body], Body]) -> S:
    """Applies `change` to each body of a statement, in text order."""
    made: Statement = statement
    if isinstance(statement, For | While):
        made = dataclasses.replace(statement, body=change(statement.body))
    elif isinstance(statement, If):
        body = change(statement.body)
        made = dataclasses.replace(statement, body=body, orelse=change(statement.orelse))
    return cast("S", made)


def statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """Yields all statements of a body, nested ones too, in text order."""
    for statement in body:
        yield statement
        for inner in bodies(statement):
            yield from statements(inner)


def walk(body: Iterable[Statement], around: Body = ()) -> Iterator[tuple[Statement, Body]]:
    """Yields all statements in text order, each with the loops and branches around it, outermost first."""
    for statement in body:
        yield statement, around
        for inner in bodies(statement):
            yield from walk(inner, (*around, statement))


def instructions(program: Program | Iterable[Statement]) -> list[Instruction]:
    """Lists the instructions of a program or body in text order."""
    body = program.body if isinstance(program, Program) else program
    return [s for s in statements(body) if isinstance(s, Instruction)]


# Names


def assigned(body: Iterable[Statement]) -> Counter[str]:
    """Counts the assignments to each scalar in a body; keys are in text order."""
    return Counter(s.target for s in statements(body) if isinstance(s, Assign))


def uses(body: Iterable[Statement]) -> Counter[str]:
    """Counts, for each variable that a body reads, the expressions that read it."""
    return Counter(v.name for s in statements(body) for e in expressions(s) for v in e.variables())


def used_names(program: Program) -> set[str]:
    """All names declared in a program: parameters, buffers, scalars, loop variables, labels."""
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
    """Yields names that a program does not use, for passes that add scalars or instructions."""
    taken, number = used_names(program), 0
    while True:
        if f"{stem}{number}" not in taken:
            yield f"{stem}{number}"
        number += 1


# Expressions


def expressions(statement: Statement) -> Iterator[Expr]:
    """Yields a statement's own expressions in text order, without those of nested statements."""
    if isinstance(statement, Instruction):
        for part in (*statement.reads, *statement.writes, *(o for _, o in statement.operands)):
            if isinstance(part, Expr):
                yield part
            elif isinstance(part, Region):
                for interval in part.box:
                    yield from (interval.start, interval.stop)
    yield from scalar_expressions(statement)


def scalar_expressions(statement: Statement) -> Iterator[Expr]:
    """Yields a statement's value, bounds, condition or predicate, but not the operands of an instruction."""
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
    """Applies `change` to every bound of a region."""
    box = tuple(Interval(change(i.start), change(i.stop)) for i in region.box)
    return dataclasses.replace(region, box=box)


def map_accesses(i: Instruction, change: Callable[[Region], Region]) -> Instruction:
    """Applies `change` to every region of an instruction: read, written, or given as an operand."""

    def access(a: Access) -> Access:
        return change(a) if isinstance(a, Region) else a

    return dataclasses.replace(
        i,
        reads=tuple(access(a) for a in i.reads),
        writes=tuple(access(a) for a in i.writes),
        operands=tuple((name, change(o) if isinstance(o, Region) else o) for name, o in i.operands),
    )


def map_expressions(statement: S, change: Callable[[Expr], Expr], *, regions: bool = True) -> S:
    """Applies `change` to a statement's own expressions, not to those of nested statements.

    Without `regions`, the bounds of regions are left alone: a warp does not evaluate them.
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
    """Maps a body bottom-up.

    Each expression becomes `expression(e)`, bounds of regions only with `regions`. Then `statement` receives
    each statement, with its bodies already rewritten, and returns its replacement: a statement, or a sequence
    of any number of them.
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
    """For `rewrite`: removes loops and branches with nothing in them."""
    return () if (nested := bodies(s)) and not any(nested) else s


# Execution


def executions(
    body: Iterable[Statement],
    values: dict[str, int],
    wanted: Callable[[Instruction], bool] | None = None,
    *,
    step: Callable[[Location | None], None] | None = None,
) -> Iterator[Happening]:
    """Yields the instructions executed, in order, each with its iteration numbers, outermost loop first.

    At each yield, `values` holds the current values of all variables. With `wanted`, only matching
    instructions are yielded, and loops without any are skipped. `step` is called in every iteration. Raises
    `IRError` on a failure.
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
    """Whether a statement assigns a scalar or contains a wanted instruction."""
    return any(isinstance(x, Assign) or (isinstance(x, Instruction) and wanted(x)) for x in statements((s,)))


def value_of(expr: Expr, values: Mapping[str, int], where: Location | None) -> int:
    """Evaluates an expression. Raises `IRError` for a division by zero or a variable without value."""
    try:
        return evaluate(expr, values)
    except KeyError as error:
        raise IRError(where, f"{error.args[0]!r} before it has a value", "an assignment before") from None
    except ZeroDivisionError:
        raise IRError(where, f"a division by zero in {expr}", "a divisor other than zero") from None
