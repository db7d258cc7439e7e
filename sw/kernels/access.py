"""How an elementwise loop addresses the elements of its operands and result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sw import dtypes

Follows = Literal["full", "column", "row", "scalar"]


@dataclass(frozen=True)
class TileAccess:
    """The addresses of an operand's (or the result's) elements in a tile of rows x columns.

    `space` is `acc`, `scratch` or `out`; `element` is `int32`, `int8` or `uint8`. Indices count elements from
    the start of the space:

    - `full`: element (r, c) is `base + r*width + c`. With `row_gap`, elements are skipped after every row;
      with `segment_gap`, after every segment of a row. With `repeat`, that many neighbours share one element:
      the index is `base + (r*width + c) div repeat`, without gaps. With `step`, neighbours are that far
      apart: the index is `base + c*step + r`, and a launch's `row_gap` is reduced by a row of them.
    - `column`: `base + c` for every row; `row`: `base + r` for every column; `scalar`: `base` for all.

    `record`, for int32 operands that follow rows or columns: the operand is stored in records together with
    all other such operands that follow rows (columns) (`ElementwiseKernel.records`), so that one index serves
    them all. If anything has gaps after segments, row records belong to segments, in their order.
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
