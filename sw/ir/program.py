"""Programs: buffers, instructions that read and write regions of them, scalars, loops and branches.

Everything is a frozen dataclass. Equality ignores where in a text something stood.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

from sw.ir.errors import Location
from sw.ir.expression import Expr
from sw.ir.types import Type

#: Spaces a buffer may lie in (docs/ir.md); None where none is stated.
SPACES = ("memory", "A", "B", "acc", "scratch", "out", "grid")
#: Element types with their size in bytes.
ELEMENTS = {"int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4}


@dataclass(frozen=True)
class Parameter:
    """A value given to the whole program: its type may bound it."""

    name: str
    type: Type
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Buffer:
    """A named piece of memory of its own: two buffers never alias. `shape` counts elements."""

    name: str
    shape: tuple[Expr, ...]
    element: str = "int8"
    space: str | None = None
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Interval:
    """Elements from `start` up to, not including, `stop`; empty where `stop` is not above `start`."""

    start: Expr
    stop: Expr


@dataclass(frozen=True)
class Region:
    """A box of a buffer: one interval per dimension."""

    buffer: str
    box: tuple[Interval, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class _Any:
    """Bytes at an unknown address: it may be any buffer."""

    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()
Access = Region | _Any


@dataclass(frozen=True)
class Instruction:
    """A call: what it reads and writes, which warp it runs on, whether it happens, and what else it takes.

    `operands` are the further arguments by name, expressions or regions; what an intrinsic of the machine
    does with them is in `sw.ir.intrinsics`, which `sw.ir.intrinsics.effects` takes into account. `reads` and
    `writes` hold what the text states by `read=` and `write=`.
    """

    label: str
    name: str
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    warp: int | None = None
    when: Expr | None = None
    operands: tuple[tuple[str, Expr | Region], ...] = ()
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Assign:
    """A scalar takes the value of an expression."""

    target: str
    value: Expr
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class For:
    """The body for every value of `range(start, stop, step)`; the bounds are evaluated once, before."""

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Statement, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class If:
    """One of two bodies."""

    condition: Expr
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    where: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class While:
    """The body as long as the condition holds; for analysis only, the machine has no such loops."""

    condition: Expr
    body: tuple[Statement, ...]
    where: Location | None = field(default=None, compare=False, repr=False)


Statement = Instruction | Assign | For | If | While


@dataclass(frozen=True)
class Program:
    """A whole program; parameters and buffers come before everything else."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    body: tuple[Statement, ...] = ()
    where: Location | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        from sw.ir.print import print_program

        return print_program(self)

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name; raises `KeyError`."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements of a body and of what is nested in it, in the order of the text."""
    for statement in body:
        yield statement
        if isinstance(statement, For | While):
            yield from statements(statement.body)
        elif isinstance(statement, If):
            yield from statements(statement.body)
            yield from statements(statement.orelse)


def instructions(program: Program) -> list[Instruction]:
    """The instructions of a program in the order of the text."""
    return [s for s in statements(program.body) if isinstance(s, Instruction)]


def expressions(statement: Statement) -> Iterator[Expr]:
    """The expressions of a statement itself, in the order of the text; not those nested in its bodies."""
    match statement:
        case Assign(_, value):
            yield value
        case For():
            yield from (statement.start, statement.stop, statement.step)
        case If() | While():
            yield statement.condition
        case Instruction():
            operands = [o for _, o in statement.operands]
            for part in (*statement.reads, *statement.writes, *operands):
                if isinstance(part, Expr):
                    yield part
                elif isinstance(part, Region):
                    for interval in part.box:
                        yield from (interval.start, interval.stop)
            if statement.when is not None:
                yield statement.when


def change_region(region: Region, change: Callable[[Expr], Expr]) -> Region:
    """The region with every bound changed."""
    box = tuple(Interval(change(i.start), change(i.stop)) for i in region.box)
    return dataclasses.replace(region, box=box)


S = TypeVar("S", bound=Statement)


def change_expressions(statement: S, change: Callable[[Expr], Expr]) -> S:
    """The statement with every expression of its own changed; not those nested in its bodies."""
    made: Statement = statement
    match statement:
        case Assign(_, value):
            made = dataclasses.replace(statement, value=change(value))
        case For(_, start, stop, step):
            made = dataclasses.replace(statement, start=change(start), stop=change(stop), step=change(step))
        case If(condition) | While(condition):
            made = dataclasses.replace(statement, condition=change(condition))
        case Instruction():

            def access(a: Access) -> Access:
                return change_region(a, change) if isinstance(a, Region) else a

            made = dataclasses.replace(
                statement,
                reads=tuple(access(a) for a in statement.reads),
                writes=tuple(access(a) for a in statement.writes),
                when=None if statement.when is None else change(statement.when),
                operands=tuple(
                    (name, change_region(o, change) if isinstance(o, Region) else change(o))
                    for name, o in statement.operands
                ),
            )
    return cast("S", made)
