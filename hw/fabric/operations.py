"""The operations of a processing element (PE): number, operands, unit, latency, meaning.

Data-flow graphs, mapper, configurations, decoder, RTL and models all use this table. `hw.semantics` defines
what the operations compute.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from hw.semantics import SEMANTICS


class Unit(enum.StrEnum):
    """Units of a processing element."""

    ALU = "alu"
    MULTIPLIER = "multiplier"
    TABLE = "table"
    MEMORY = "memory"
    LANES = "lanes"
    QUANTISER = "quantiser"


@dataclass(frozen=True)
class PEOperation:
    """An operation: its number in a configuration, data operands, unit (None: any PE), latency in steps."""

    name: str
    number: int
    operands: int
    unit: Unit | None
    latency: int = 1

    @property
    def meaning(self) -> Callable[..., int] | None:
        """The function on signed 32-bit numbers; None if the result depends on more than the operands."""
        return SEMANTICS[self.name].value if self.name in SEMANTICS else None

    @property
    def commutative(self) -> bool:
        """Whether its two operands may be exchanged."""
        return self.name in ("add", "mul", "and", "or", "xor", "min", "max", "eq", "ne")

    @property
    def constant(self) -> bool:
        """Whether the constant of its entry is one more operand, after those of data."""
        return self.name in _SUMS

    @property
    def arguments(self) -> int:
        """How many numbers its meaning takes."""
        return self.operands + self.constant

    @property
    def truth(self) -> bool:
        """Whether the result is 0 or 1."""
        return self.name in ("lt", "le", "gt", "ge", "eq", "ne")

    @property
    def of_lanes(self) -> bool:
        """Whether it only makes sense on PEs with several lanes."""
        return self.name in _OF_LANES

    @property
    def opaque(self) -> bool:
        """Whether only its name is known."""
        return self.name.startswith("opaque")


_ALU = (
    *("add", "sub", "and", "or", "xor", "shl", "shr", "shr_logical", "lt", "le", "gt", "ge", "eq", "ne"),
    *("min", "max", "select", "abs", "clz"),
    # A copy, for loop-carried values that no operation of the loop computes.
    "mov",
)
_PRODUCTS = ("mul", "mul_shift_round", "mul_shift_round_even")
#: Requantised products, and those of sums, whose quantisation is the constant of their entry.
_QUANTISED, _SUMS = ("requantise", "requantise_even"), ("requantise_sum", "requantise_sum_even")
#: Operations across all lanes, and their numbers of operands.
_ACROSS = {"sum_lanes": 1, "max_lanes": 1, "shift_lanes": 3, "even_lanes": 2, "odd_lanes": 2}
#: Accesses of one element per lane.
WIDE = ("load_lanes", "store_lanes")
_OF_LANES = ("lane", *_ACROSS, *WIDE)
#: Operations that read memory, and operations that write it.
LOADS, STORES = (("load", WIDE[0]), ("store", WIDE[1]))
#: Width of an operation's number; 0 means no operation.
OPERATION_BITS = 6
#: All operations by name.
OPERATIONS = {
    operation.name: operation
    for operation in (
        *(PEOperation(name, i, SEMANTICS[name].operands, Unit.ALU) for i, name in enumerate(_ALU, start=1)),
        # The constant of the entry; the number of the lane.
        PEOperation("const", 21, 0, Unit.ALU),
        PEOperation("lane", 22, 0, Unit.ALU),
        *(
            PEOperation(name, i, SEMANTICS[name].operands, Unit.MULTIPLIER, 2)
            for i, name in enumerate(_PRODUCTS, start=32)
        ),
        *(
            PEOperation(name, i, 3, Unit.QUANTISER, 2)
            for i, name in enumerate((*_QUANTISED, *_SUMS), start=36)
        ),
        # Operands: the index of an element and, for stores, the value.
        PEOperation("table", 40, 1, Unit.TABLE, 2),
        PEOperation("load", 48, 1, Unit.MEMORY, 2),
        PEOperation("store", 49, 2, Unit.MEMORY),
        # The same for neighbouring elements, one per lane.
        PEOperation("load_lanes", 50, 1, Unit.MEMORY, 2),
        PEOperation("store_lanes", 51, 2, Unit.MEMORY),
        # The third operand of `shift_lanes` is the distance.
        *(
            PEOperation(name, i, count, Unit.LANES, 2)
            for i, (name, count) in enumerate(_ACROSS.items(), start=56)
        ),
        # Operators of which only the name is known.
        PEOperation("opaque_memory", 62, 3, Unit.MEMORY),
        PEOperation("opaque", 63, 3, None),
    )
}
#: All operations by number.
BY_NUMBER = {operation.number: operation for operation in OPERATIONS.values()}
