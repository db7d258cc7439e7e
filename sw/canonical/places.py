"""Numbers for the statements of a program, by which they are known again after their expressions changed."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sw.codegen.names import names
from sw.ir.errors import Location
from sw.ir.expression import Expr
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
)
from sw.ir.walk import expressions

Where = Location | None
#: Makes the new location of everything in one statement or buffer of the old one.
Change = Callable[[Where], Where]


@dataclass(frozen=True)
class _Numbered(Location):
    """The number of a statement or buffer in the order of the text, with the location itself."""

    number: int
    location: Where


def number_of(where: Where) -> int | None:
    """The number of the statement or buffer that a location belongs to; None without one."""
    return where.number if isinstance(where, _Numbered) else None


def marked(program: Program) -> Program:
    """The program with numbered locations, of regions too."""
    numbers = itertools.count()

    def numbered() -> Change:
        number = next(numbers)
        return lambda where: _Numbered("", 1, 1, number, where)

    return _located(program, numbered)


def unmarked(program: Program) -> Program:
    """The program with the locations that it had before it was `marked`."""

    def original(where: Where) -> Where:
        return where.location if isinstance(where, _Numbered) else where

    return _located(program, lambda: original)


def _located(program: Program, change: Callable[[], Change]) -> Program:
    """The program with other locations; `change` is asked once for every buffer and statement."""
    buffers = tuple(dataclasses.replace(b, where=change()(b.where)) for b in program.buffers)
    return dataclasses.replace(program, buffers=buffers, body=_body(program.body, change))


def _body(body: tuple[Statement, ...], change: Callable[[], Change]) -> tuple[Statement, ...]:
    return tuple(_statement(s, change) for s in body)


def _statement(s: Statement, change: Callable[[], Change]) -> Statement:
    own = change()
    s = dataclasses.replace(s, where=own(s.where))
    match s:
        case For() | While():
            return dataclasses.replace(s, body=_body(s.body, change))
        case If():
            return dataclasses.replace(s, body=_body(s.body, change), orelse=_body(s.orelse, change))
        case Instruction():
            return dataclasses.replace(
                s,
                reads=tuple(_region(a, own) if isinstance(a, Region) else a for a in s.reads),
                writes=tuple(_region(a, own) if isinstance(a, Region) else a for a in s.writes),
                operands=tuple((n, _region(o, own) if isinstance(o, Region) else o) for n, o in s.operands),
            )
    return s


def _region(region: Region, own: Change) -> Region:
    return dataclasses.replace(region, where=own(region.where))


class Places:
    """What the statements of a `marked` program stand in, and where what they use comes from."""

    def __init__(self, program: Program):
        self._around: dict[int, int] = {}
        self._sources: dict[str, set[int]] = {}
        self._used: dict[int, frozenset[str]] = {}
        for b in program.buffers:
            self._uses(b, b.shape)
        self._enter(program.body, None)

    def behind(self, numbers: frozenset[int]) -> set[int]:
        """The statements around these, and those that give values to what these use."""
        found = {self._around[n] for n in numbers if n in self._around}
        for n in numbers:
            for name in self._used[n]:
                found |= self._sources.get(name, set())
        return found

    def _enter(self, body: tuple[Statement, ...], around: int | None) -> None:
        for s in body:
            number = self._uses(s, expressions(s))
            if around is not None:
                self._around[number] = around
            if isinstance(s, Assign | For):
                name = s.target if isinstance(s, Assign) else s.variable
                self._sources.setdefault(name, set()).add(number)
            if isinstance(s, For | While | If):
                self._enter(s.body, number)
            if isinstance(s, If):
                self._enter(s.orelse, number)

    def _uses(self, s: Statement | Buffer, found: Iterable[Expr]) -> int:
        number = number_of(s.where)
        assert number is not None
        self._used[number] = frozenset().union(*(names(e) for e in found))
        return number
