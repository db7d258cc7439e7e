"""The element types of buffers and tensors: names, sizes, limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """An integer type in two's complement; `name` is NumPy's and ONNX's."""

    name: str
    bytes: int
    signed: bool

    @property
    def low(self) -> int:
        """The smallest value."""
        return -(1 << 8 * self.bytes - 1) if self.signed else 0

    @property
    def high(self) -> int:
        """The largest value."""
        return (1 << 8 * self.bytes - self.signed) - 1

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        return self.low, self.high


INT8, UINT8 = ElementType("int8", 1, True), ElementType("uint8", 1, False)
INT16, UINT16 = ElementType("int16", 2, True), ElementType("uint16", 2, False)
INT32, UINT32 = ElementType("int32", 4, True), ElementType("uint32", 4, False)

#: All types by name.
ELEMENTS = {t.name: t for t in (INT8, UINT8, INT16, UINT16, INT32, UINT32)}
