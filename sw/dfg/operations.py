"""The operations of a processing element: operands, latency, unit and meaning on 32-bit two's complement.

Their meaning is that of `hw.semantics`, which warps and tile programs share.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

from hw.semantics import SEMANTICS


class Unit(enum.Enum):
    """What executes an operation."""

    ALU = "ALU"
    MULTIPLIER = "multiplier"
    TABLE = "table"
    MEMORY = "memory port"
    CONSTANT = "constant"


@dataclass(frozen=True)
class Operation:
    """An operation: number of data operands, control steps until the value is there, unit, meaning.

    `meaning` is None where the operation reads or writes more than its operands.
    """

    name: str
    operands: int
    unit: Unit
    meaning: Callable[..., int] | None = None
    latency: int = 1
    commutative: bool = False
    #: Whether it gives 0 or 1.
    truth: bool = False


def mul_shift_round(a: int, b: int, shift: int) -> int:
    """The 64-bit product shifted right, halves rounded up: `(a * b + 2^(shift - 1)) >> shift`."""
    return SEMANTICS["mul_shift_round"].value(a, b, shift)


def mul_shift_round_even(a: int, b: int, shift: int) -> int:
    """The 64-bit product shifted right, rounded to the nearest, halves to the even neighbour."""
    return SEMANTICS["mul_shift_round_even"].value(a, b, shift)


def shift_right_logical(a: int, b: int) -> int:
    """A shift to the right that brings in zeros; amounts count modulo 32."""
    return SEMANTICS["shr_logical"].value(a, b)


def clz(a: int) -> int:
    """The zeros above the highest one of the 32 bits: 32 for 0, 0 for negative numbers."""
    return SEMANTICS["clz"].value(a)


def _computed(name: str, unit: Unit = Unit.ALU, latency: int = 1) -> Operation:
    of = SEMANTICS[name]
    return Operation(name, of.operands, unit, of.value, latency, name in _COMMUTATIVE, name in _TRUTHS)


_TRUTHS = ("lt", "le", "gt", "ge", "eq", "ne")
_COMMUTATIVE = ("add", "mul", "and", "or", "xor", "min", "max", "eq", "ne")


#: All operations by name. Operands in order are I1, I2, I3.
OPERATIONS = {
    operation.name: operation
    for operation in (
        _computed("add"),
        _computed("sub"),
        _computed("mul", Unit.MULTIPLIER, latency=2),
        _computed("mul_shift_round", Unit.MULTIPLIER, latency=2),
        _computed("mul_shift_round_even", Unit.MULTIPLIER, latency=2),
        _computed("shl"),
        _computed("shr"),
        _computed("shr_logical"),
        _computed("and"),
        _computed("or"),
        _computed("xor"),
        _computed("lt"),
        _computed("le"),
        _computed("gt"),
        _computed("ge"),
        _computed("eq"),
        _computed("ne"),
        _computed("min"),
        _computed("max"),
        _computed("select"),
        _computed("abs"),
        _computed("clz"),
        # A copy: what a loop-carried value needs that no operation of its own makes.
        _computed("mov"),
        # The immediate of the node.
        Operation("const", 0, Unit.CONSTANT),
        # I1 is the index of an element.
        Operation("table", 1, Unit.TABLE, latency=2),
        Operation("load", 1, Unit.MEMORY, latency=2),
        # I1 is the index of an element, I2 the value.
        Operation("store", 2, Unit.MEMORY),
    )
}
_OPAQUE_MEMORY = re.compile(r"load|store|oload|ostore")


def unit(name: str, opaque: bool) -> Unit:
    """What executes an operation; of opaque operators only those of memory are told from the others."""
    if not opaque:
        return OPERATIONS[name].unit
    return Unit.MEMORY if _OPAQUE_MEMORY.match(name) else Unit.ALU


def latency(name: str, opaque: bool) -> int:
    """Control steps after which the value can be used."""
    return 1 if opaque else OPERATIONS[name].latency
