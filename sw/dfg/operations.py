"""The operations of a processing element: operands, latency, unit and meaning on 32-bit two's complement.

What the tile program's expressions share with a processing element has one meaning for both
(`sw.ir.expression.Op`).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

from sw.ir.expression import Op
from sw.ir.types import BITS, wrap

_MASK = (1 << BITS) - 1
#: Bits of a whole product; shift amounts of products count modulo this.
_PRODUCT = 2 * BITS


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
    shift %= _PRODUCT
    return wrap((a * b + (1 << shift >> 1)) >> shift)


def mul_shift_round_even(a: int, b: int, shift: int) -> int:
    """The 64-bit product shifted right, rounded to the nearest, halves to the even neighbour."""
    shift %= _PRODUCT
    product = a * b
    floor = product >> shift
    rest, half = product - (floor << shift), 1 << shift >> 1
    return wrap(floor + (shift > 0 and (rest > half or (rest == half and bool(floor & 1)))))


def shift_right_logical(a: int, b: int) -> int:
    """A shift to the right that brings in zeros; amounts count modulo 32."""
    return wrap((a & _MASK) >> b % BITS)


def clz(a: int) -> int:
    """The zeros above the highest one of the 32 bits: 32 for 0, 0 for negative numbers."""
    return BITS - (a & _MASK).bit_length()


def _shared(name: str, op: Op, unit: Unit = Unit.ALU, latency: int = 1, truth: bool = False) -> Operation:
    commutes = op in (Op.ADD, Op.MUL, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.MIN, Op.MAX, Op.EQ, Op.NE)
    return Operation(name, op.arity, unit, op.value.meaning, latency, commutes, truth)


def _product(name: str, meaning: Callable[..., int]) -> Operation:
    return Operation(name, 3, Unit.MULTIPLIER, meaning, latency=2)


#: All operations by name. Operands in order are I1, I2, I3.
OPERATIONS = {
    operation.name: operation
    for operation in (
        _shared("add", Op.ADD),
        _shared("sub", Op.SUB),
        _shared("mul", Op.MUL, Unit.MULTIPLIER, latency=2),
        _product("mul_shift_round", mul_shift_round),
        _product("mul_shift_round_even", mul_shift_round_even),
        _shared("shl", Op.SHL),
        _shared("shr", Op.SHR),
        Operation("shr_logical", 2, Unit.ALU, shift_right_logical),
        _shared("and", Op.BIT_AND),
        _shared("or", Op.BIT_OR),
        _shared("xor", Op.BIT_XOR),
        _shared("lt", Op.LT, truth=True),
        _shared("le", Op.LE, truth=True),
        _shared("gt", Op.GT, truth=True),
        _shared("ge", Op.GE, truth=True),
        _shared("eq", Op.EQ, truth=True),
        _shared("ne", Op.NE, truth=True),
        _shared("min", Op.MIN),
        _shared("max", Op.MAX),
        _shared("select", Op.SELECT),
        Operation("abs", 1, Unit.ALU, lambda a: wrap(abs(a))),
        Operation("clz", 1, Unit.ALU, clz),
        # A copy: what a loop-carried value needs that no operation of its own makes.
        Operation("mov", 1, Unit.ALU, lambda a: a),
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
