"""Checks of operations: operands, buffers, windows. Each returns the first fault or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cosim.job import MachineError, Window
from hw.config import BufferShape

#: A cycle that never comes: the cycle of everything after an operation with a fault.
NEVER = 1 << 60


class Fault(NamedTuple):
    """An error and its cycle; `rank` orders errors of the same cycle (warps by number, then engines)."""

    cycle: int
    rank: int
    error: MachineError


ENGINE_RANK = 1 << 10


def first_above(base: int, step: int, limit: int) -> int:
    """The smallest n >= 0 with base + n*step >= limit, or NEVER if there is none."""
    if base >= limit:
        return 0
    return -(-(limit - base) // step) if step else NEVER


def permitted(windows: Sequence[Window], *, write: bool) -> list[tuple[int, int]]:
    """First and last bytes of the windows that permit writing (or reading)."""
    return [(w.first, w.last) for w in windows if (w.write if write else w.read)]


def row_outside_windows(
    windows: Sequence[tuple[int, int]], address: int, stride: int, size: int, rows: int
) -> int | None:
    """The first of `rows` rows of `size` bytes that does not lie inside a single window.

    Rows start `stride` bytes apart from `address` on, modulo 2^32. A window is its first and last byte.
    """
    end = address + (rows - 1) * stride + size - 1
    for low, high in windows:
        if low <= address and end <= high:
            return None
    first = (address + np.arange(rows, dtype=np.int64) * stride) & 0xFFFFFFFF
    inside = np.zeros(rows, bool)
    for low, high in windows:
        inside |= (first >= low) & (first + size - 1 <= high)
    outside = np.flatnonzero(~inside)
    return int(outside[0]) if outside.size else None


def byte_outside_buffer(
    shape: BufferShape, target: int, pitch: int, transposed: bool, rows: int, size: int
) -> tuple[int, int] | None:
    """The first byte (row, position) outside the buffer of a load to `target`, counting fill bytes.

    Byte k of row m goes to column target + (m div lanes)*pitch + k; transposed, byte m of row k does.
    """
    lanes, columns = shape.lanes, shape.columns
    across, deep = (size, rows) if transposed else (rows, size)
    last = target + (across - 1) // lanes * pitch
    if last + deep - 1 < columns:
        return None
    if transposed:
        row = max(0, columns - last)
        return row, first_above(target + row, pitch, columns) * lanes
    block = first_above(target + deep - 1, pitch, columns)
    return block * lanes, max(0, columns - target - block * pitch)


def block_outside(
    a: tuple[int, int, int], b: tuple[int, int, int], grid: tuple[int, int]
) -> tuple[int, int] | None:
    """The first block (row, column) of a GEMM that reads columns outside a buffer.

    `a` and `b` hold the last column that block 0 reads, the pitch of blocks, and the buffer's number of
    columns. `grid` holds the numbers of block rows and block columns.
    """
    down, right = grid
    row, column = first_above(*a), first_above(*b)
    if column < right:
        return 0, 0 if row == 0 else column
    return (row, 0) if row < down else None


def word_outside(
    words: tuple[int, int, int], rows: tuple[int, int], grid: tuple[int, int]
) -> tuple[int, int, int] | None:
    """The first row that a GEMM drains outside the accumulator: block row, block column, row of the block.

    Blocks drain one after the other. `words` holds the first word, the pitch of rows, and the accumulator's
    number of words. `rows` holds the rows of a block, and of a block in the last block row. `grid` holds the
    numbers of block rows and block columns.
    """
    (down, right), (word, pitch, limit) = grid, words
    # Words grow with the row, so the first bad block row is the first whose last block ends outside.
    by_word = first_above(word + right - 1 + (rows[0] - 1) * pitch, rows[0] * pitch, limit)
    for i in sorted({by_word, down - 1}):
        if i < down:
            height, base = rows[1] if i == down - 1 else rows[0], word + i * rows[0] * pitch
            j = first_above(base + (height - 1) * pitch, 1, limit)
            if j < right:
                return i, j, first_above(base + j, pitch, limit)
    return None
