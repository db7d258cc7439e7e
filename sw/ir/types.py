"""Scalar types: 32-bit integers with a known range, and truth values."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hw.semantics import BITS

LOW, HIGH = -(1 << BITS - 1), 1 << BITS - 1


class Kind(enum.Enum):
    """The kind of a value."""

    INT = "int"
    BOOL = "bool"


@dataclass(frozen=True)
class Type:
    """The type of a variable.

    An integer lies in `low <= value < high`. `loop` is the depth (0: outermost) of the deepest loop that the
    value depends on, or None (canonical.md, "Rank").
    """

    kind: Kind = Kind.INT
    low: int = LOW
    high: int = HIGH
    loop: int | None = None

    def __str__(self) -> str:
        """The form that `parse_type` reads."""
        if self.kind is Kind.BOOL:
            return "bool"
        limits = f"[{self.low},{self.high}]"
        if self.loop is not None:
            return f"loop{self.loop}{limits}"
        return "int32" if (self.low, self.high) == (LOW, HIGH) else f"int{limits}"


INT, BOOL = Type(), Type(Kind.BOOL, 0, 2)
