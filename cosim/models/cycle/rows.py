"""Beats of strided rows: how many each row takes for its alignment, and where they start."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import gcd


class RowBeats:
    """Rows of `size` bytes, `stride` apart from `address` on, in words of `width` bytes.

    The alignment of rows repeats after `width / gcd(stride, width)` rows, so a table of at most that many
    rows suffices. `width` divides 2^32, so addresses may wrap.
    """

    __slots__ = ("_before", "_period", "rows", "size", "total", "width")

    def __init__(self, address: int, stride: int, size: int, rows: int, width: int):
        self.rows, self.size, self.width = rows, size, width
        self._period = min(rows, width // gcd(stride, width))
        counts = [-(-((address + i * stride) % width + size) // width) for i in range(self._period)]
        self._before = [0, *accumulate(counts)]
        self.total = self.start(rows)

    def start(self, row: int) -> int:
        """Number of beats of all rows before `row`."""
        turns, left = divmod(row, self._period)
        return turns * self._before[-1] + self._before[left]

    def count(self, row: int) -> int:
        """Number of beats of one row."""
        left = row % self._period
        return self._before[left + 1] - self._before[left]

    def locate(self, beat: int) -> tuple[int, int]:
        """Row of a beat, and the beat's number in the row."""
        turns, left = divmod(beat, self._before[-1])
        row = bisect_right(self._before, left) - 1
        return turns * self._period + row, left - self._before[row]
