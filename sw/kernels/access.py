"""How an elementwise loop addresses the elements of its operands and result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sw import dtypes

Follows = Literal["full", "column", "row", "scalar"]


@dataclass(frozen=True)
class TileAccess:
    """The addresses of an operand's (or the result's) elements in a tile of rows x columns.

    `space` is `acc`, `scratch` or `out`, `element` one of `int32`, `int8`, `uint8`. Indices count elements
    from the start of the space:

    - `full`: element (r, c) is `base + r*width + c`. With `row_gap`, every row is followed by elements that
      are skipped; with `segment_gap`, every segment of a row is. With `repeat`, so many neighbours have one
      element: it is `base + (r*width + c) div repeat`, and there are no gaps. With `step`, neighbours lie so
      far apart: it is `base + c*step + r`, and a launch has `row_gap` less than a row of them.
    - `column`: `base + c` for every row; `row`: `base + r` for every column; `scalar`: `base` for all.

    `record`, of int32 that follows rows or columns: the operand lies in records together with all others
    that follow rows (columns) and have it (`ElementwiseKernel.records`), so that one index serves them all.
    Where anything has gaps behind segments, records of rows are those of segments, in their order.
    """

    space: str
    element: str
    follows: Follows = "full"
    row_gap: bool = False
    segment_gap: bool = False
    record: bool = False
    repeat: int = 1
    step: int = 1

    @property
    def turned(self) -> bool:
        """Whether elements of a column are adjacent."""
        return self.step > 1

    @property
    def plain(self) -> bool:
        """Whether the neighbours in a row are adjacent, without repetition."""
        return self.repeat == 1 and not self.turned

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return dtypes.ELEMENTS[self.element].bytes
