"""Builds programs from Python: expressions with operators, loops and branches as `with` blocks.

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
from sw.ir.expression import Const, Expr, Op, Var, const, truth, type_of
from sw.ir.expression import fold as fold_expression
from sw.ir.program import (
    ANY,
    Access,
    Assign,
    Buffer,
    For,
    If,
    Instruction,
    Interval,
    Parameter,
    Program,
    Region,
    Statement,
    While,
)
from sw.ir.scope import loop_type, retype
from sw.ir.types import BOOL, HIGH, LOW, Kind, Type


@dataclass(frozen=True, eq=False)
class Value:
    """An expression with Python's operators; `==` and `!=` are `equals` and `differs`."""

    expr: Expr

    def __add__(self, other: Scalar) -> Value:
        return fold(Op.ADD, self, other)

    def __radd__(self, other: Scalar) -> Value:
        return fold(Op.ADD, other, self)

    def __sub__(self, other: Scalar) -> Value:
        return fold(Op.SUB, self, other)

    def __rsub__(self, other: Scalar) -> Value:
        return fold(Op.SUB, other, self)

    def __mul__(self, other: Scalar) -> Value:
        return fold(Op.MUL, self, other)

    def __rmul__(self, other: Scalar) -> Value:
        return fold(Op.MUL, other, self)

    def __floordiv__(self, other: Scalar) -> Value:
        return fold(Op.DIV, self, other)

    def __rfloordiv__(self, other: Scalar) -> Value:
        return fold(Op.DIV, other, self)

    def __mod__(self, other: Scalar) -> Value:
        return fold(Op.MOD, self, other)

    def __rmod__(self, other: Scalar) -> Value:
        return fold(Op.MOD, other, self)

    def __lshift__(self, other: Scalar) -> Value:
        return fold(Op.SHL, self, other)

    def __rshift__(self, other: Scalar) -> Value:
        return fold(Op.SHR, self, other)

    def __and__(self, other: Scalar) -> Value:
        """Bits of integers, or both of two truth values."""
        return fold(Op.AND if self.expr.kind is Kind.BOOL else Op.BIT_AND, self, other)

    def __or__(self, other: Scalar) -> Value:
        """Bits of integers, or one of two truth values."""
        return fold(Op.OR if self.expr.kind is Kind.BOOL else Op.BIT_OR, self, other)

    def __xor__(self, other: Scalar) -> Value:
        return fold(Op.BIT_XOR, self, other)

    def __neg__(self) -> Value:
        return fold(Op.SUB, 0, self)

    def __invert__(self) -> Value:
        """The opposite of a truth value."""
        return fold(Op.NOT, self)

    def __lt__(self, other: Scalar) -> Value:
        return fold(Op.LT, self, other)

    def __le__(self, other: Scalar) -> Value:
        return fold(Op.LE, self, other)

    def __gt__(self, other: Scalar) -> Value:
        return fold(Op.GT, self, other)

    def __ge__(self, other: Scalar) -> Value:
        return fold(Op.GE, self, other)

    def equals(self, other: Scalar) -> Value:
        """Whether two values are equal."""
        return fold(Op.EQ, self, other)

    def differs(self, other: Scalar) -> Value:
        """Whether two values are not equal."""
        return fold(Op.NE, self, other)

    def __bool__(self) -> bool:
        raise TypeError("a value of a program is not known while the program is built; use choose or branch")


Scalar = Value | Expr | int


def expression(value: Scalar) -> Expr:
    """The expression of a value, expression, whole number or truth value."""
    if isinstance(value, Value):
        return value.expr
    if isinstance(value, Expr):
        return value
    return truth(value) if isinstance(value, bool) else const(value)


def fold(op: Op, *arguments: Scalar) -> Value:
    """An operator on values; computed now where all are constants, left out where it changes nothing.

    Raises `TypeError` where kinds do not fit.
    """
    return Value(fold_expression(op, *(expression(a) for a in arguments)))


def minimum(first: Scalar, *others: Scalar) -> Value:
    """The smallest of some values."""
    found = Value(expression(first))
    for other in others:
        found = fold(Op.MIN, found, other)
    return found


def maximum(first: Scalar, *others: Scalar) -> Value:
    """The largest of some values."""
    found = Value(expression(first))
    for other in others:
        found = fold(Op.MAX, found, other)
    return found


def choose(condition: Scalar, then: Scalar, other: Scalar) -> Value:
    """The first value where the condition holds, else the second."""
    return fold(Op.SELECT, condition, then, other)


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
    if not isinstance(index, Value | Expr | int):
        raise TypeError(f"an index must be a scalar or a slice, not {index!r}")
    return Interval(expression(index), (Value(expression(index)) + 1).expr)


Place = Access | BufferValue


@dataclass
class ProgramBuilder:
    """A program in the making; names that are not given are made up."""

    name: str
    parameters: list[Parameter] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    _bodies: list[list[Statement]] = field(default_factory=lambda: [[]])
    _loops: int = 0
    _taken: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)

    def parameter(self, name: str, low: int = LOW, high: int = HIGH) -> Value:
        """An integer parameter with values from `low` up to, not including, `high`."""
        return self._parameter(name, Type(Kind.INT, low, high))

    def flag(self, name: str) -> Value:
        """A parameter that is a truth value."""
        return self._parameter(name, BOOL)

    def _parameter(self, name: str, type_: Type) -> Value:
        self._take(name)
        self.parameters.append(Parameter(name, type_))
        return Value(Var(name, type_))

    def buffer(
        self, name: str, *sizes: Scalar, element: str = "int8", space: str | None = None
    ) -> BufferValue:
        """A buffer of so many elements in each dimension."""
        self._take(name)
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

    def _take(self, name: str) -> str:
        if name in self._taken:
            raise ValueError(f"the name {name!r} is taken")
        self._taken.add(name)
        return name

    def scalar(self, value: Scalar, name: str | None = None) -> Value:
        """A new scalar of this value; `assign` gives it others."""
        expr = expression(value)
        name = self.fresh("s") if name is None else self._take(name)
        self._bodies[-1].append(Assign(name, expr))
        return Value(Var(name, type_of(expr)))

    def assign(self, scalar: Value, value: Scalar) -> None:
        """Another value for a scalar."""
        if not isinstance(scalar.expr, Var):
            raise TypeError(f"only scalars take values, not {scalar.expr}")
        self._bodies[-1].append(Assign(scalar.expr.name, expression(value)))

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
        label = self.fresh(name) if label is None else self._take(label)
        others = tuple((key, _operand(value)) for key, value in operands.items())
        predicate = None if when is None else expression(when)
        made = Instruction(label, name, _accesses(read), _accesses(write), warp, predicate, others)
        self._bodies[-1].append(made)
        return label

    @contextlib.contextmanager
    def loop(
        self, start: Scalar, stop: Scalar | None = None, step: Scalar = 1, name: str | None = None
    ) -> Iterator[Value]:
        """A loop over `range(start, stop, step)`, or over `range(start)`; gives its variable."""
        first, last = (0, start) if stop is None else (start, stop)
        bounds = expression(first), expression(last), expression(step)
        # The variables of loops that stand side by side may have one name.
        variable = name if name is not None else self.fresh("i")
        if name is not None and name in self._taken:
            raise ValueError(f"the name {name!r} is taken")
        self._taken.add(variable)
        self._bodies.append([])
        self._loops += 1
        yield Value(Var(variable, loop_type(*bounds, self._loops - 1)))
        self._loops -= 1
        if name is not None:
            self._taken.discard(name)
        body = tuple(self._bodies.pop())
        self._bodies[-1].append(For(variable, *bounds, body))

    @contextlib.contextmanager
    def repeat(self, condition: Scalar) -> Iterator[None]:
        """A `while` loop, for analysis only."""
        self._bodies.append([])
        self._loops += 1
        yield
        self._loops -= 1
        body = tuple(self._bodies.pop())
        self._bodies[-1].append(While(expression(condition), body))

    @contextlib.contextmanager
    def branch(self, condition: Scalar) -> Iterator[None]:
        """What happens where the condition holds."""
        self._bodies.append([])
        yield
        body = tuple(self._bodies.pop())
        self._bodies[-1].append(If(expression(condition), body))

    @contextlib.contextmanager
    def otherwise(self) -> Iterator[None]:
        """What happens where the condition of the branch just before does not hold."""
        before = self._bodies[-1][-1] if self._bodies[-1] else None
        if not isinstance(before, If) or before.orelse:
            raise ValueError("there is no branch just before that could have another side")
        self._bodies.append([])
        yield
        body = tuple(self._bodies.pop())
        self._bodies[-1][-1] = If(before.condition, before.body, body)

    def build(self) -> Program:
        """The program, checked. Raises `IRError`."""
        if len(self._bodies) != 1:
            raise ValueError("a loop or branch is still open")
        program = Program(self.name, tuple(self.parameters), tuple(self.buffers), tuple(self._bodies[0]))
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


__all__ = [
    "ANY",
    "BufferValue",
    "ProgramBuilder",
    "Value",
    "choose",
    "expression",
    "fold",
    "maximum",
    "minimum",
]
