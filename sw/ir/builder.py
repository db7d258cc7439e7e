"""Builds tile programs in Python: expressions with operators, loops as `with` blocks.

    b = ProgramBuilder("copy")
    n = b.parameter("n", 0, 64)
    a = b.buffer("a", 64)
    with b.loop(n, name="i") as i:
        b.instruction("touch", read=a[i], write=a[0:4], label="t")
    program = b.build()

The builder folds constants; every other simplification is left to the passes.
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
    """Converts an expression, integer, or truth value to an expression node."""
    if isinstance(value, Expr):
        return value
    return truth(value) if isinstance(value, bool) else const(value)


@dataclass(frozen=True)
class BufferValue:
    """A buffer that can be indexed as in the text form; the result is a region."""

    declared: Buffer

    def __getitem__(self, index: object) -> Region:
        """Returns the region for slices and single indices; dimensions without an index are taken whole.

        Raises `IndexError` if there are too many indices, `TypeError` for a slice with a step.
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
    """A tile program under construction. Names that the caller does not give are generated."""

    name: str
    parameters: list[Parameter] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    _bodies: list[list[Statement]] = field(default_factory=lambda: [[]])
    _taken: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)

    def parameter(self, name: str, low: int = LOW, high: int = HIGH) -> Var:
        """Declares an integer parameter with values in `low <= value < high`."""
        self._taken.add(name)
        self.parameters.append(Parameter(name, Type(Kind.INT, low, high)))
        return Var(name, self.parameters[-1].type)

    def buffer(
        self, name: str, *sizes: Scalar, element: str = "int8", space: str | None = None
    ) -> BufferValue:
        """Declares a buffer; `sizes` are its numbers of elements per dimension."""
        self._taken.add(name)
        self.buffers.append(Buffer(name, tuple(expression(size) for size in sizes), element, space))
        return BufferValue(self.buffers[-1])

    def fresh(self, stem: str) -> str:
        """Returns an unused name that starts with `stem`, and reserves it."""
        while True:
            number = self._numbers.get(stem, 0)
            self._numbers[stem] = number + 1
            if f"{stem}{number}" not in self._taken:
                self._taken.add(f"{stem}{number}")
                return f"{stem}{number}"

    def assign(self, name: str, value: Scalar) -> Var:
        """Assigns a value to a scalar, which may be new or already have a value."""
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
        """Appends an instruction and returns its label; `operands` are its additional arguments."""
        label = self.fresh(name) if label is None else label
        self._taken.add(label)
        others = tuple((key, _operand(value)) for key, value in operands.items())
        predicate = None if when is None else expression(when)
        made = Instruction(label, name, _accesses(read), _accesses(write), warp, predicate, others)
        self._bodies[-1].append(made)
        return label

    @contextlib.contextmanager
    def loop(self, count: Scalar, name: str | None = None) -> Iterator[Var]:
        """Opens a loop over `range(count)` and yields its variable."""
        variable = self.fresh("i") if name is None else name
        self._taken.add(variable)
        stop, depth = expression(count), len(self._bodies) - 1
        self._bodies.append([])
        yield Var(variable, loop_type(Const(0), stop, Const(1), depth))
        body = tuple(self._bodies.pop())
        self._bodies[-1].append(For(variable, Const(0), stop, Const(1), body))

    def build(self) -> Program:
        """Returns the program, checked by printing it and reading it back. Raises `IRError`."""
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
