"""Types of scalars: 32-bit integers with a known range, and truth values."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hw.semantics import BITS

LOW, HIGH = -(1 << BITS - 1), 1 << BITS - 1


class Kind(enum.Enum):
    """What a value is."""

    INT = "int"
    BOOL = "bool"


@dataclass(frozen=True)
class Type:
    """The type of a variable.

    `low` and `high` bound the values of an integer, half open. `loop` is the depth (0: outermost) of the
    deepest loop that the value depends on, None where it depends on no loop (canonical.md, "Rank").
    """

    kind: Kind = Kind.INT
    low: int = LOW
    high: int = HIGH
    loop: int | None = None

    def __str__(self) -> str:
        """As `parse_type` reads it."""
        if self.kind is Kind.BOOL:
            return "bool"
        limits = f"[{self.low},{self.high}]"
        if self.loop is not None:
            return f"loop{self.loop}{limits}"
        return "int32" if (self.low, self.high) == (LOW, HIGH) else f"int{limits}"


INT, BOOL = Type(), Type(Kind.BOOL, 0, 2)
