"""Programs: buffers, instructions that read and write regions of them, scalars, loops and branches.

Everything is a frozen dataclass. Equality ignores where in a text something stood.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.dtypes import ELEMENTS
from sw.ir.errors import Location
from sw.ir.expression import Expr
from sw.ir.types import Type

#: Spaces a buffer may lie in (docs/ir.md); None where none is stated.
SPACES = ("memory", "A", "B", "acc", "scratch", "out", "grid")


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

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return ELEMENTS[self.element].bytes


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
