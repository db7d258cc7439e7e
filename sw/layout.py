"""Memory layout of tensors: every row starts at a word of the port, every tensor at a page."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hw.errors import InputError

#: Bytes of memory of a simulated machine: what 32 bits address but the last MiB, which answers with an error.
MEMORY_BYTES = (1 << 32) - (1 << 20)
MIDDLE = 1 << 31
#: Tensors start at multiples of this, with at least one page of nothing before each.
PAGE = 4096
#: Where tensors may lie.
MEMORY = range(PAGE, MEMORY_BYTES)
#: Padding bytes hold this value, so that a result that depends on them is wrong rather than lucky.
GARBAGE = 0xA5


@dataclass(frozen=True, kw_only=True)
class Placement:
    """An array in memory, from `address` on: rows of `row` elements start `pitch` bytes apart."""

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
        """Bytes, padding behind the last row included."""
        return self.rows * self.pitch

    def offset(self, element: int) -> int:
        """Bytes from the start of the array to an element, or those that such a step moves on.

        A step across rows of an array with padding must be a whole number of rows.
        """
        rows, column = divmod(element, self.row)
        return rows * self.pitch + column * self.itemsize

    def image(self, array: np.ndarray) -> np.ndarray:
        """The bytes as they lie in memory, padding included (uint8)."""
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
        """The array out of the bytes that lie in memory (inverse of `image`)."""
        rows = data.reshape(self.rows, self.pitch)[:, : self.row * self.itemsize]
        return np.ascontiguousarray(rows).view(self.dtype).reshape(self.shape)


def coalesce(batch: tuple[int, ...], steps: tuple[tuple[int, ...], ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Batch axes as (count, bytes per step of each tensor), neighbours merged where all tensors allow it."""
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
    """Where so many bytes may start, at or above an address, that do not cross the middle of the memory.

    Programs count addresses in 32 bits with a sign, which changes there.
    """
    return MIDDLE if address < MIDDLE < address + size else address


def round_up(value: int, multiple: int) -> int:
    """The next multiple at or above."""
    return -(-value // multiple) * multiple
