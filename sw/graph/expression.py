"""Elementwise expressions on 32-bit two's complement, and their evaluation.

Operations are those of a processing element (`sw.dfg.operations`), so an expression can directly become the
body of a loop on the CGRA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from hw.semantics import SEMANTICS
from sw.dfg.operations import OPERATIONS

Integers = npt.NDArray[np.int64]

#: Operations with an infix sign in Python and in texts.
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
    """The element of operand `index` that corresponds to the computed element."""

    index: int


@dataclass(frozen=True)
class Number:
    """A signed 32-bit number."""

    value: int

    def __post_init__(self) -> None:
        if not -(1 << 31) <= self.value < 1 << 31:
            raise InputError(f"a number must have 32 bits, not be {self.value}")


@dataclass(frozen=True)
class Apply:
    """An operation of a processing element on expressions."""

    operation: str
    operands: tuple[Expression, ...]
    #: Number of operations, repeated ones counted each time.
    size: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(size(x) for x in self.operands))
        # Computed once, from integers: subexpressions are shared widely, and string hashes differ between
        # processes.
        object.__setattr__(self, "_hash", hash((int.from_bytes(self.operation.encode()), self.operands)))
        operation = OPERATIONS.get(self.operation)
        if operation is None or operation.meaning is None:
            raise InputError(f"{self.operation!r} is not an operation on numbers")
        wanted = operation.arguments
        if len(self.operands) != wanted:
            raise InputError(f"{self.operation} takes {wanted} operands, not {len(self.operands)}")

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Lookup:
    """A table look-up. Whoever builds the expression must keep the index within the table."""

    table: tuple[int, ...]
    index: Expression
    #: As in `Apply`.
    size: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + size(self.index))
        object.__setattr__(self, "_hash", hash((self.table, self.index)))

    def __hash__(self) -> int:
        return self._hash


Expression = Argument | Number | Apply | Lookup


def size(expression: Expression) -> int:
    """The number of operations in an expression, with repeated ones counted each time."""
    return expression.size if isinstance(expression, Apply | Lookup) else 0


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all its parts, each once, operands before users."""
    seen: set[Expression] = set()

    def visit(e: Expression) -> Iterator[Expression]:
        if e in seen:
            return
        seen.add(e)
        for part in parts_of(e):
            yield from visit(part)
        yield e

    return visit(expression)


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The direct parts of an expression."""
    match expression:
        case Apply(_, operands):
            return operands
        case Lookup(_, index):
            return (index,)
    return ()


def operations(expression: Expression) -> int:
    """The number of distinct operations in an expression."""
    return sum(isinstance(e, Apply | Lookup) for e in walk(expression))


def rewritten(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """An expression in which `change` replaces parts, largest first; None means to try inside a part."""
    known: dict[Expression, Expression] = {}

    def made(e: Expression) -> Expression:
        if e not in known:
            other = change(e)
            known[e] = changed(e, made) if other is None else other
        return known[e]

    return made(expression)


def changed(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """An expression with its direct parts changed."""
    match expression:
        case Apply(operation, operands):
            return Apply(operation, tuple(change(x) for x in operands))
        case Lookup(table, index):
            return Lookup(table, change(index))
        case _:
            return expression


def evaluate(expression: Expression, operands: Sequence[npt.ArrayLike]) -> npt.NDArray[np.int32]:
    """The value for operands that broadcast against each other, int32; float32 and uint32 count as int32.

    Raises `InputError` for an index outside of its table.
    """
    arrays = [_word(np.asarray(x)).astype(np.int64) for x in operands]
    known: dict[Expression, Integers] = {}

    def value(e: Expression) -> Integers:
        found = known.get(e)
        if found is None:
            found = known[e] = _value(e, value, arrays)
        return found

    result: npt.NDArray[np.int32] = value(expression).astype(np.int32)
    return result


def _word(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.view(np.int32) if array.dtype in (np.float32, np.uint32) else array


def operate(operation: str, *operands: npt.ArrayLike) -> Integers:
    """An operation of a processing element on arrays of 32-bit numbers that broadcast, as int64."""
    meaning = SEMANTICS[operation]
    with np.errstate(over="ignore"):
        compute = _ON_ARRAYS.get(operation, meaning.exact)
        found = compute(*(np.asarray(x, np.int64) for x in operands))
    return np.asarray(found).astype(np.int32 if meaning.wraps else np.int64).astype(np.int64)


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
            return operate(operation, *(value(x) for x in operands))


def _rounded(a: Integers, b: Integers, shift: Integers) -> Integers:
    """The 64-bit product shifted right, halves rounded up, without leaving int64."""
    product, shift = a * b, shift % 64
    return (product >> shift) + np.where(shift > 0, product >> np.maximum(shift - 1, 0) & 1, 0)


def _byte(rounded: Integers, packed: Integers) -> Integers:
    """A rounded product with the zero point and within the limits of `hw.semantics.quantisation`."""
    zero = ((packed >> 6 & 511) ^ 256) - 256
    value = (rounded.astype(np.int32).astype(np.int64) + zero).astype(np.int32).astype(np.int64)
    low, high = (
        np.where((packed < 0) | (limit < 128), limit, limit - 256)
        for limit in (packed >> 15 & 255, packed >> 23 & 255)
    )
    byte = np.where(value > high, high, np.where(value < low, low, value)) & 255
    return byte - 256 * ((low < 0) & ((value < 0) | (high < 0)))


#: Operations whose scalar formula branches, which arrays cannot, or needs more than 64 bits.
_ON_ARRAYS: dict[str, Callable[..., Any]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "min": np.minimum,
    "max": np.maximum,
    "select": lambda c, a, b: np.asarray(np.where(c != 0, a, b)),
    # frexp is exact here: doubles have 53 bits.
    "clz": lambda a: 32 - np.frexp((a & 0xFFFFFFFF).astype(np.float64))[1],
    "mul_shift_round": _rounded,
    "requantise": lambda a, b, c: _byte(_rounded(a, b, c), c),
    "requantise_even": lambda a, b, c: _byte(operate("mul_shift_round_even", a, b, c), c),
    "requantise_sum": lambda a, b, c, d: operate("requantise", operate("add", a, c), b, d),
    "requantise_sum_even": lambda a, b, c, d: operate("requantise_even", operate("add", a, c), b, d),
}
