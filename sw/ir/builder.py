"""Builds tile programs in Python: expressions with operators, loops as `with` blocks.

    b = ProgramBuilder("copy")
    n = b.parameter("n", 0, 64)
    a = b.buffer("a", 64)
    with b.loop(n, name="i") as i:
        b.instruction("touch", read=a[i], write=a[0:4], label="t")
    program = b.build()

Constants are folded on the way, and nothing else is: passes do the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sw.ir.check import check
from sw.ir.expression import Const, Expr, Var, const, truth, type_of
from sw.ir.parse import parse_program
from sw.ir.program import (
    Access,
    Assign,
    Buffer,
    For,
    Instruction,
    Interval,
    Parameter,
    Program,
    Region,
    Statement,
)
from sw.ir.scope import loop_type, retype
from sw.ir.types import HIGH, LOW, Kind, Type

Scalar = Expr | int


def expression(value: Scalar) -> Expr:
    """The expression of an expression, whole number or truth value."""
    if isinstance(value, Expr):
        return value
    return truth(value) if isinstance(value, bool) else const(value)


@dataclass(frozen=True)
class BufferValue:
    """A buffer; indexing it as in the text gives regions."""

    declared: Buffer

    def __getitem__(self, index: object) -> Region:
        """The region of slices and single indices, one per dimension; the rest is taken whole.

        Raises `IndexError` for too many, `TypeError` for a slice with a step.
        """
        given = list(index) if isinstance(index, tuple) else [index]
        shape = self.declared.shape
        if len(given) > len(shape):
            raise IndexError(f"{self.declared.name} has {len(shape)} dimensions, not {len(given)}")
        given += [slice(None)] * (len(shape) - len(given))
        box = tuple(_interval(one, size) for one, size in zip(given, shape, strict=True))
        return Region(self.declared.name, box)


def _interval(index: object, size: Expr) -> Interval:
    if isinstance(index, slice):
        if index.step is not None:
            raise TypeError("an interval has no step")
        start = Const(0) if index.start is None else expression(index.start)
        return Interval(start, size if index.stop is None else expression(index.stop))
    if not isinstance(index, Expr | int):
        raise TypeError(f"an index must be a scalar or a slice, not {index!r}")
    return Interval(expression(index), expression(index) + 1)


Place = Access | BufferValue


@dataclass
class ProgramBuilder:
    """A program in the making; names that are not given are made up."""

    name: str
    parameters: list[Parameter] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    _bodies: list[list[Statement]] = field(default_factory=lambda: [[]])
    _taken: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)

    def parameter(self, name: str, low: int = LOW, high: int = HIGH) -> Var:
        """An integer parameter with values from `low` up to, not including, `high`."""
        self._taken.add(name)
        self.parameters.append(Parameter(name, Type(Kind.INT, low, high)))
        return Var(name, self.parameters[-1].type)

    def buffer(
        self, name: str, *sizes: Scalar, element: str = "int8", space: str | None = None
    ) -> BufferValue:
        """A buffer of so many elements in each dimension."""
        self._taken.add(name)
        self.buffers.append(Buffer(name, tuple(expression(size) for size in sizes), element, space))
        return BufferValue(self.buffers[-1])

    def fresh(self, stem: str) -> str:
        """A name that is not taken yet, and now is."""
        while True:
            number = self._numbers.get(stem, 0)
            self._numbers[stem] = number + 1
            if f"{stem}{number}" not in self._taken:
                self._taken.add(f"{stem}{number}")
                return f"{stem}{number}"

    def assign(self, name: str, value: Scalar) -> Var:
        """A value for a scalar, a new one or one that has had others."""
        self._taken.add(name)
        self._bodies[-1].append(Assign(name, expression(value)))
        return Var(name, type_of(expression(value)))

    def instruction(
        self,
        name: str,
        *,
        read: Place | Sequence[Place] = (),
        write: Place | Sequence[Place] = (),
        warp: int | None = None,
        when: Scalar | None = None,
        label: str | None = None,
        **operands: Scalar | Region | BufferValue,
    ) -> str:
        """An instruction; `operands` are its further arguments. Returns the label."""
        label = self.fresh(name) if label is None else label
        self._taken.add(label)
        others = tuple((key, _operand(value)) for key, value in operands.items())
        predicate = None if when is None else expression(when)
        made = Instruction(label, name, _accesses(read), _accesses(write), warp, predicate, others)
        self._bodies[-1].append(made)
        return label

    @contextlib.contextmanager
    def loop(self, count: Scalar, name: str | None = None) -> Iterator[Var]:
        """A loop over `range(count)`; gives its variable."""
        variable = self.fresh("i") if name is None else name
        self._taken.add(variable)
        stop, depth = expression(count), len(self._bodies) - 1
        self._bodies.append([])
        yield Var(variable, loop_type(Const(0), stop, Const(1), depth))
        body = tuple(self._bodies.pop())
        self._bodies[-1].append(For(variable, Const(0), stop, Const(1), body))

    def build(self) -> Program:
        """The program, checked as its text is: names and kinds by reading it back. Raises `IRError`."""
        if len(self._bodies) != 1:
            raise ValueError("a loop is still open")
        program = Program(self.name, tuple(self.parameters), tuple(self.buffers), tuple(self._bodies[0]))
        parse_program(str(program))
        program = retype(program)
        check(program)
        return program


def _operand(value: Scalar | Region | BufferValue) -> Expr | Region:
    if isinstance(value, BufferValue):
        return value[()]
    return value if isinstance(value, Region) else expression(value)


def _accesses(given: Place | Sequence[Place]) -> tuple[Access, ...]:
    places = list(given) if isinstance(given, Sequence) else [given]
    return tuple(p[()] if isinstance(p, BufferValue) else p for p in places)
