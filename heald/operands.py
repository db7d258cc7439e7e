"""Annotations of an epilogue's parameters: how an operand follows the elements of the result.

They only stand in the text of functions that are read, not called. `Tile[np.uint8]` names a type of elements;
without one a tile is int8, everything else int32.
"""

from __future__ import annotations

from typing import Any


class _Operand(int):
    def __class_getitem__(cls, element: Any) -> type[_Operand]:
        return cls


class Column(_Operand):
    """One value per output column, or output channel of a convolution; what has no annotation is one."""


class Row(_Operand):
    """One value per output row."""


class Scalar(_Operand):
    """One value for the whole product."""


class Tile(_Operand):
    """One value per element of the result."""
