"""Blocking: sizes, loop order and residence of a program's tiles."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hw.config import BufferShape
from sw.patches import Patches


class Resident(enum.Enum):
    """How much of an operand one load brings, which decides how long it stays in its buffer."""

    TILE = "tile"  # one step of K of a partition, reloaded for every partition of the other operand
    DEPTH = "depth"  # a partition with all of K, kept while the other operand streams
    WHOLE = "whole"  # the whole operand, kept to the end of the product


@dataclass(frozen=True)
class Extent:
    """The problem to tile, in elements: a product m x k x n, `batch` times; n may count convolution outputs.

    `transposed_*` describe the layout of the operands in memory (A is [k, m], B is [n, k]). With `patches`,
    `batch` counts groups and images. All images share the same A, so the two are counted separately.
    """

    m: int
    n: int
    k: int
    transposed_a: bool = False
    transposed_b: bool = False
    batch: int = 1
    images: int = 1
    patches: Patches | None = None


@dataclass(frozen=True)
class Blocking:
    """The tiles of a program: partitions, inner tiles, loop order, residence.

    `partition_*` are the steps of the outer loops. `tile_m` and `tile_n` are the inner tile that the array
    hands to the storer at once; one of them equals the partition's size. `m_outermost` is the order of the
    outer loops. Partitions of C are double-buffered in the accumulator; with `single_c`, each replaces the
    one before, inner tile by inner tile. For a convolution, `out_rows` x `out_cols` outputs make up
    `partition_n`.
    """

    partition_m: int
    partition_n: int
    partition_k: int
    tile_m: int
    tile_n: int
    m_outermost: bool
    resident_a: Resident = Resident.TILE
    resident_b: Resident = Resident.TILE
    out_rows: int = 0
    out_cols: int = 0
    single_c: bool = False

    @property
    def parts(self) -> int:
        """Number of inner tiles in a partition."""
        return -(-self.partition_m // self.tile_m) * -(-self.partition_n // self.tile_n)

    @property
    def even(self) -> bool:
        """Whether all inner tiles except those at the edges have the same size."""
        return self.partition_m % self.tile_m == 0 and self.partition_n % self.tile_n == 0


def pitch(shape: BufferShape, lanes_first: bool, blocks: int, depth: int) -> int:
    """Columns from one block of lanes to the next.

    Loads of several blocks with the lanes contiguous need a pitch congruent to the lanes modulo the banks
    (docs/machine.md, "Words, buffers, spaces").
    """
    if not lanes_first or blocks == 1:
        return depth
    return depth + (shape.lanes - depth) % shape.banks
