"""Memory layout of tensors: every row starts at a word of the port, every tensor at a page."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hw.errors import InputError

#: Bytes of memory of a simulated machine: all that 32 bits address except the last MiB, which responds with
#: an error.
MEMORY_BYTES = (1 << 32) - (1 << 20)
MIDDLE = 1 << 31
#: Tensors are aligned to this, with at least one unused page before each.
PAGE = 4096
#: The addresses available to tensors.
MEMORY = range(PAGE, MEMORY_BYTES)
#: Value of padding bytes, so that a result that depends on them is wrong rather than right by luck.
GARBAGE = 0xA5


@dataclass(frozen=True, kw_only=True)
class Placement:
    """An array in memory at `address`: rows of `row` elements start `pitch` bytes apart."""

    name: str
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    pitch: int
    row: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.shape) // self.row

    @property
    def dense(self) -> bool:
        """Whether rows follow each other without padding."""
        return self.pitch == self.row * self.itemsize

    @property
    def size(self) -> int:
        """Size in bytes, including the padding after the last row."""
        return self.rows * self.pitch

    def offset(self, element: int) -> int:
        """Offset of an element in bytes, or the length in bytes of a step of that many elements.

        A step across rows of a padded array must be a whole number of rows.
        """
        rows, column = divmod(element, self.row)
        return rows * self.pitch + column * self.itemsize

    def image(self, array: np.ndarray) -> np.ndarray:
        """The bytes of the array in memory, including padding (uint8)."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise InputError(
                f"{self.name} must be {self.dtype} of shape {list(self.shape)}, "
                f"not {array.dtype} of {list(array.shape)}"
            )
        out = np.full((self.rows, self.pitch), GARBAGE, np.uint8)
        rows = np.ascontiguousarray(array).reshape(self.rows, self.row)
        out[:, : self.row * self.itemsize] = rows.view(np.uint8).reshape(self.rows, -1)
        return out.reshape(-1)

    def extract(self, data: np.ndarray) -> np.ndarray:
        """Extracts the array from its bytes in memory (inverse of `image`)."""
        rows = data.reshape(self.rows, self.pitch)[:, : self.row * self.itemsize]
        return np.ascontiguousarray(rows).view(self.dtype).reshape(self.shape)


def coalesce(batch: tuple[int, ...], steps: tuple[tuple[int, ...], ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Batch axes as (count, bytes per step of each tensor), merging adjacent ones if all tensors allow it."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for count, step in zip(batch, zip(*steps, strict=True), strict=True):
        if count == 1:
            continue
        if axes and all(outer == count * inner for outer, inner in zip(axes[-1][1], step, strict=True)):
            axes[-1] = (axes[-1][0] * count, step)
        else:
            axes.append((count, step))
    return axes


def clear_of_middle(address: int, size: int) -> int:
    """The first address, at or above `address`, at which `size` bytes do not cross the middle of the memory.

    Programs compute addresses as signed 32-bit numbers, and the sign changes there.
    """
    return MIDDLE if address < MIDDLE < address + size else address


def round_up(value: int, multiple: int) -> int:
    """Rounds up to a multiple."""
    return -(-value // multiple) * multiple
