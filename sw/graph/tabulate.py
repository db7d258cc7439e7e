"""Turns functions of one byte into tables; for example, the swish of an 8-bit sum becomes one look-up.

`tabulated` extends existing tables: operators keep their number of tables and need fewer operations.
`with_tables` turns all products of bytes into tables, for fabrics with many table memories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sw.graph.expression import (
    Apply,
    Argument,
    Expression,
    Lookup,
    Number,
    evaluate,
    operations,
    parts_of,
    rewritten,
    walk,
)
from sw.graph.requantise import LIMITS, apply

#: Rounded products.
PRODUCTS = ("mul_shift_round", "mul_shift_round_even")
#: Entries of a table: the values of a byte.
VALUES = 256
#: The values of operands, by number; None for operands that are not known.
Constants = Sequence[np.ndarray | None]


def tabulated(value: Expression, elements: Sequence[str], constants: Constants = ()) -> Expression:
    """Replaces functions of one byte by tables if that saves operations.

    `elements` are the types of the operands; `constants` are the values of those that are known. A byte is an
    8-bit operand, or a value limited to at most 256 consecutive integers.
    """
    found, given = _shifted(value, constants), value
    for byte, low, high in list(_bytes(found, elements)):
        indices = _indices(byte, low, constants)
        made = min((_of_byte(found, byte, low, high, i) for i in indices), key=operations)
        if operations(made) < operations(found) and _tables(made) <= _tables(given):
            found = given = made
    return given


def with_tables(value: Expression, elements: Sequence[str]) -> Expression:
    """Replaces products that depend on one byte only by look-ups.

    `elements` are the types of the operands.
    """
    for byte, low, high in list(_bytes(value, elements)):
        value = _looked_up(value, byte, low, high, _is_product, _from_zero(byte, low, ()))
    return value


def _is_product(e: Expression) -> bool:
    return isinstance(e, Apply) and e.operation in ("mul", *PRODUCTS)


def _bytes(value: Expression, elements: Sequence[str]) -> Iterator[tuple[Expression, int, int]]:
    """Yields subexpressions with few values, with their range, operands before users."""
    for e in walk(value):
        match e:
            case Argument(index) if elements[index] in LIMITS and elements[index] != "int32":
                yield e, *LIMITS[elements[index]]
            case Apply("max", (Apply("min", (_, Number(high))), Number(low))) if 0 <= high - low < VALUES:
                yield e, low, high


def _shifted(value: Expression, constants: Constants) -> Expression:
    """Rewrites clamps that differ by a constant as a single clamp, to which constants are added."""
    clamps = {e: clamp for e in walk(value) if (clamp := _clamp(e, constants)) is not None}
    chosen: dict[tuple[Expression, int, int], Expression] = {}
    for e, (inner, more, low, high) in clamps.items():
        key = inner, low - more, high - more
        # The inner value itself needs no addition; a quantiser computes an index from 0 in one step.
        if key not in chosen or more == 0 or (low == 0 and clamps[chosen[key]].more):
            chosen[key] = e

    def shifted(e: Expression) -> Expression | None:
        if e not in clamps:
            return None
        inner, more, low, high = clamps[e]
        other = chosen[inner, low - more, high - more]
        return None if other == e else apply("add", other, more - clamps[other].more)

    return rewritten(value, shifted)


class _Clamp(NamedTuple):
    """The value `inner + more`, limited to `low` to `high`."""

    inner: Apply
    more: int
    low: int
    high: int


def _clamp(e: Expression, constants: Constants) -> _Clamp | None:
    """A clamp of a rounded product to which a constant may be added; None for others."""
    match e:
        case Apply("max", (Apply("min", (inner, Number(high))), Number(low))):
            more = 0
            match inner:
                case Apply("add", (inner, Number(more))):
                    pass
            if not isinstance(inner, Apply) or inner.operation not in PRODUCTS:
                return None
            if _reach(inner, constants) + abs(more) >= 1 << 31:
                return None  # The sum may wrap.
            return _Clamp(inner, more, low, high)
    return None


def _reach(scaled: Apply, constants: Constants) -> int:
    """An upper bound of a rounded product's magnitude."""
    total, factor, shift = scaled.operands
    most = 1 << 31
    match total:
        case Apply("max", (Apply("min", (_, Number(high))), Number(low))):
            most = max(abs(low), abs(high))
    factors, shifts = _values(factor, constants), _values(shift, constants)
    size = np.abs(np.float64(1 << 31) if factors is None else factors.astype(np.float64)) * most
    return int(np.max(size * 2.0 ** -(0 if shifts is None else shifts % 64))) + 2


def _values(e: Expression, constants: Constants) -> np.ndarray | None:
    """The values that a number or a constant operand has; None if they are not known."""
    match e:
        case Number(value):
            return np.array(value)
        case Argument(index) if index < len(constants) and (known := constants[index]) is not None:
            # Repeated elements count once.
            return known[tuple(slice(None if step else 1) for step in known.strides)]
    return None


def _of_byte(
    value: Expression, byte: Expression, low: int, high: int, index: Expression | None
) -> Expression:
    """Replaces each maximal function of this byte that contains a table by one table."""
    return _looked_up(value, byte, low, high, lambda e: isinstance(e, Lookup), index)


def _indices(byte: Expression, low: int, constants: Constants) -> tuple[Expression | None, ...]:
    """Possible table indices for a byte: first counted from zero, which a quantiser computes in one step."""
    from_zero = _from_zero(byte, low, constants) if low < 0 else None
    return (None,) if from_zero is None else (from_zero, None)


def _looked_up(
    value: Expression,
    byte: Expression,
    low: int,
    high: int,
    wanted: Callable[[Expression], bool],
    index: Expression | None = None,
) -> Expression:
    """Replaces each maximal function of this byte that contains a wanted part by one table.

    `index` is the byte minus `low`; without it, the byte's lowest eight bits are the index.
    """
    follows: dict[Expression, bool] = {byte: True}
    found: set[Expression] = set()
    for e in walk(value):
        parts = parts_of(e)
        own = bool(parts) and all(follows[p] for p in parts)
        follows.setdefault(e, isinstance(e, Number) or own)
        if e != byte and follows[e] and (wanted(e) or found.intersection(parts)):
            found.add(e)

    def table(e: Expression) -> Expression | None:
        if e == byte:
            return e
        return _table(e, byte, low, high, index) if e in found else None

    return rewritten(value, table)


def _table(function: Expression, byte: Expression, low: int, high: int, index: Expression | None) -> Lookup:
    """The table of a function of a byte, looked up by `index` or by the byte's lowest eight bits."""
    given = np.arange(low, high + 1)
    if index is not None:
        place, size = given - low, high - low + 1
    elif low >= 0 and high < VALUES:
        place, size, index = given, high + 1, byte
    else:
        place, size, index = given & VALUES - 1, VALUES, apply("and", byte, VALUES - 1)
    words = np.zeros(size, np.int64)
    words[place] = evaluate(rewritten(function, {byte: Argument(0)}.get), [given])
    return Lookup(tuple(words.tolist()), index)


def _from_zero(byte: Expression, low: int, constants: Constants) -> Expression | None:
    """A limited value minus its minimum, at the cost of the value itself; None if there is no such form."""
    clamp = _clamp(byte, constants)
    if clamp is None or clamp.low != low:
        return None
    more = clamp.more - low
    if _reach(clamp.inner, constants) + abs(more) >= 1 << 31:
        return None  # The sum may wrap.
    return apply("max", apply("min", apply("add", clamp.inner, more), clamp.high - low), 0)


def _tables(value: Expression) -> int:
    return len({e.table for e in walk(value) if isinstance(e, Lookup)})
