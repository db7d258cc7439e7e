"""Annotations of an epilogue's parameters: which value of an operand belongs to each element of the result.

They have no effect in Python. `Tile[np.uint8]` gives the element type; by default a tile is int8, and any
other operand int32.
"""

from __future__ import annotations

from typing import Any


class _Operand(int):
    def __class_getitem__(cls, element: Any) -> type[_Operand]:
        return cls


class Column(_Operand):
    """One value per output column, or per output channel of a convolution; the default."""


class Row(_Operand):
    """One value per output row."""


class Scalar(_Operand):
    """One value for all elements."""


class Tile(_Operand):
    """One value per element of the result."""
