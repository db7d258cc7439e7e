"""The operations that a processing element can be configured to execute: number, operands, unit, latency.

Their meaning is that of the operations of the same name in data-flow graphs (docs/dfg.md).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Unit(enum.StrEnum):
    """Units of a processing element."""

    ALU = "alu"
    MULTIPLIER = "multiplier"
    TABLE = "table"
    MEMORY = "memory"


@dataclass(frozen=True)
class Operation:
    """An operation: its number in a configuration, data operands, unit (None: any PE), latency in steps."""

    name: str
    number: int
    operands: int
    unit: Unit | None
    latency: int = 1


_ALU = (
    ("add", 2),
    ("sub", 2),
    ("and", 2),
    ("or", 2),
    ("xor", 2),
    ("shl", 2),
    ("shr", 2),
    ("shr_logical", 2),
    ("lt", 2),
    ("le", 2),
    ("gt", 2),
    ("ge", 2),
    ("eq", 2),
    ("ne", 2),
    ("min", 2),
    ("max", 2),
    ("select", 3),
    ("abs", 1),
    ("clz", 1),
    ("mov", 1),
    ("const", 0),
)
_OTHERS = (
    Operation("mul", 32, 2, Unit.MULTIPLIER, 2),
    Operation("mul_shift_round", 33, 3, Unit.MULTIPLIER, 2),
    Operation("mul_shift_round_even", 34, 3, Unit.MULTIPLIER, 2),
    Operation("table", 40, 1, Unit.TABLE, 2),
    Operation("load", 48, 1, Unit.MEMORY, 2),
    Operation("store", 49, 2, Unit.MEMORY),
    # Operators of which only the name is known.
    Operation("opaque_memory", 62, 3, Unit.MEMORY),
    Operation("opaque", 63, 3, None),
)
#: Bits of an operation's number; 0 is no operation.
OPERATION_BITS = 6
#: All operations by name.
OPERATIONS = {
    operation.name: operation
    for operation in (
        *(Operation(name, i, operands, Unit.ALU) for i, (name, operands) in enumerate(_ALU, start=1)),
        *_OTHERS,
    )
}
#: All operations by number.
BY_NUMBER = {operation.number: operation for operation in OPERATIONS.values()}
