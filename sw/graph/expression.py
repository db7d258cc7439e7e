"""What is computed for every element of a tensor, on 32-bit two's complement: expressions and their value.

Operations are those of a processing element (`sw.dfg.operations`), so an expression is the body of a loop on
the grid as it stands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.dfg.operations import OPERATIONS

Integers = npt.NDArray[np.int64]

#: Operations that have a sign in Python and in texts.
SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "shl": "<<",
    "shr": ">>",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}


@dataclass(frozen=True)
class Argument:
    """The element of the operand of this number that belongs to the element that is computed."""

    index: int


@dataclass(frozen=True)
class Number:
    """A number of 32 bits, signed."""

    value: int

    def __post_init__(self) -> None:
        if not -(1 << 31) <= self.value < 1 << 31:
            raise InputError(f"a number must have 32 bits, not be {self.value}")


@dataclass(frozen=True)
class Apply:
    """An operation of a processing element on expressions."""

    operation: str
    operands: tuple[Expression, ...]

    def __post_init__(self) -> None:
        operation = OPERATIONS.get(self.operation)
        if operation is None or operation.meaning is None:
            raise InputError(f"{self.operation!r} is no operation on numbers")
        if len(self.operands) != operation.operands:
            raise InputError(
                f"{self.operation} takes {operation.operands} operands, not {len(self.operands)}"
            )


@dataclass(frozen=True)
class Lookup:
    """Word of a table; an index outside of it is an error, which those who build expressions exclude."""

    table: tuple[int, ...]
    index: Expression


Expression = Argument | Number | Apply | Lookup


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all in it, operands before what uses them; what occurs twice comes twice."""
    match expression:
        case Apply(_, operands):
            for operand in operands:
                yield from walk(operand)
        case Lookup(_, index):
            yield from walk(index)
        case _:
            pass
    yield expression


def evaluate(expression: Expression, operands: Sequence[npt.ArrayLike]) -> npt.NDArray[np.int32]:
    """The value for operands that broadcast against each other, int32.

    Raises `InputError` for an index outside of its table.
    """
    arrays = [np.asarray(x).astype(np.int64) for x in operands]
    known: dict[Expression, Integers] = {}

    def value(e: Expression) -> Integers:
        found = known.get(e)
        if found is None:
            found = known[e] = _value(e, value, arrays)
        return found

    result: npt.NDArray[np.int32] = value(expression).astype(np.int32)
    return result


def operate(operation: str, *operands: npt.ArrayLike) -> Integers:
    """An operation of a processing element on arrays of 32-bit numbers that broadcast, as int64."""
    return _MEANING[operation](*(np.asarray(x, np.int64) for x in operands))


def _value(e: Expression, value: Callable[[Expression], Integers], arrays: Sequence[Integers]) -> Integers:
    match e:
        case Argument(index):
            return arrays[index]
        case Number(number):
            return np.asarray(number, np.int64)
        case Lookup(table, index):
            place = value(index)
            wrong = place[(place < 0) | (place >= len(table))]
            if wrong.size:
                raise InputError(f"the index of a table must be 0 to {len(table) - 1}, not {int(wrong[0])}")
            return np.asarray(table, np.int64)[place]
        case Apply(operation, operands):
            return _MEANING[operation](*(value(x) for x in operands))


def _wrapped(x: Integers) -> Integers:
    return x.astype(np.int32).astype(np.int64)


def _shifted(a: Integers, b: Integers, shift: Integers, even: bool) -> Integers:
    """The 64-bit product shifted right and rounded; NumPy's int64 holds any product of two int32."""
    shift = shift % 64
    product = a * b
    # A shift of 63 leaves the sign; NumPy shifts int64 by up to 63.
    floor = product >> shift
    rest = product - (floor << shift)
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    up = (rest > half) | ((rest == half) & ((floor & 1) == 1)) if even else rest >= half
    return _wrapped(floor + ((shift > 0) & up))


def _leading_zeros(a: Integers) -> Integers:
    word = a & 0xFFFFFFFF
    # frexp is exact here: doubles hold 53 bits.
    return np.asarray(32 - np.frexp(word.astype(np.float64))[1], np.int64)


_MEANING: dict[str, Callable[..., Integers]] = {
    "add": lambda a, b: _wrapped(a + b),
    "sub": lambda a, b: _wrapped(a - b),
    "mul": lambda a, b: _wrapped(a * b),
    "mul_shift_round": functools.partial(_shifted, even=False),
    "mul_shift_round_even": functools.partial(_shifted, even=True),
    "shl": lambda a, b: _wrapped(a << (b % 32)),
    "shr": lambda a, b: a >> (b % 32),
    "shr_logical": lambda a, b: _wrapped((a & 0xFFFFFFFF) >> (b % 32)),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "lt": lambda a, b: (a < b).astype(np.int64),
    "le": lambda a, b: (a <= b).astype(np.int64),
    "gt": lambda a, b: (a > b).astype(np.int64),
    "ge": lambda a, b: (a >= b).astype(np.int64),
    "eq": lambda a, b: (a == b).astype(np.int64),
    "ne": lambda a, b: (a != b).astype(np.int64),
    "min": np.minimum,
    "max": np.maximum,
    "select": lambda c, a, b: np.asarray(np.where(c != 0, a, b), np.int64),
    "abs": lambda a: _wrapped(np.abs(a)),
    "clz": _leading_zeros,
    "mov": lambda a: a,
}
