"""How an elementwise loop finds an operand's element, and where the result goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hw.errors import InputError

Follows = Literal["full", "column", "row", "scalar"]
FOLLOWS: tuple[Follows, ...] = ("full", "column", "row", "scalar")


@dataclass(frozen=True)
class TileAccess:
    """Where the elements of an operand, or of the result, lie for a tile of rows x columns.

    `space` is `acc`, `scratch` or `out`, `element` one of `int32`, `int8`, `uint8`. Indices count elements
    from the start of the space:

    - `full`: element (r, c) is `base + r*width + c`. With `row_gap`, every row is followed by elements that
      are skipped; with `segment_gap`, every segment of a row is.
    - `column`: `base + c` for every row; `row`: `base + r` for every column; `scalar`: `base` for all.

    `record`: the operand is int32 and lies in records together with all others that follow rows (columns) and
    have it (`ElementwiseKernel.records`), so that one index serves them all.
    """

    space: str
    element: str
    follows: Follows = "full"
    row_gap: bool = False
    segment_gap: bool = False
    record: bool = False

    def __post_init__(self) -> None:
        for what, found, known in (
            ("space", self.space, ("acc", "scratch", "out")),
            ("element", self.element, ("int32", "int8", "uint8")),
            ("follows", self.follows, FOLLOWS),
        ):
            if found not in known:
                raise InputError(f"an access: {what} must be one of {', '.join(known)}, not {found!r}")
        if (self.row_gap or self.segment_gap) and self.follows != "full":
            raise InputError(
                f"an access: only full operands can have gaps, not one that follows {self.follows}"
            )
        if self.record and (self.element != "int32" or self.follows not in ("row", "column")):
            found = f"{self.element} that follows {self.follows}"
            raise InputError(f"an access: a record must be int32 that follows row or column, not {found}")

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return 4 if self.element == "int32" else 1
