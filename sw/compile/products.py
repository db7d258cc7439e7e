"""Products of a network: tiles, and for each that is complete a launch, or a store of the sums."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sw.arrangement import HALVES, INNER, Loop, Nest
from sw.compile.operands import Tiles
from sw.layout import round_up


@dataclass(frozen=True)
class Shape:
    """Inner tiles in the accumulator: rows of `pitch` words, one tile after the other.

    `width` elements of a row are computed, those beyond `columns` being padding. Where tiles are `tight`,
    rows of one that has fewer columns lie closer together.
    """

    rows: int
    columns: int
    pitch: int
    width: int
    tight: bool = False

    @property
    def words(self) -> int:
        """Words of a tile."""
        return self.rows * self.pitch


def shape_of(nest: Nest, unit: int) -> Shape:
    """The inner tiles of a nest; rows take a multiple of `unit` elements."""
    rows = min(nest.blocking.tile_m, nest.extent.m)
    columns = min(nest.blocking.tile_n, nest.extent.n)
    width = round_up(columns, math.lcm(unit, nest.config.cols))
    return Shape(rows, columns, width // nest.config.cols, width)


def even(nest: Nest) -> bool:
    """Whether all inner tiles are of one size but at edges."""
    t = nest.blocking
    return t.partition_m % t.tile_m == 0 and t.partition_n % t.tile_n == 0


def fits(nest: Nest, shape: Shape) -> bool:
    """Whether the inner tiles of a nest fit the accumulator one after the other."""
    t = nest.blocking
    rows, columns = min(t.partition_m, nest.extent.m), min(t.partition_n, nest.extent.n)
    if t.tile_n < t.partition_n and shape.tight:
        words = rows * -(-columns // nest.config.cols)
    elif t.tile_n < t.partition_n:
        words = -(-columns // t.tile_n) * shape.words
    else:
        words = rows * shape.pitch
    places = 1 if t.single_c else HALVES
    return words <= nest.config.derived.acc_words // places


def tiles_of(nest: Nest, shape: Shape) -> Tiles:
    """How the result is cut into inner tiles."""
    t, e = nest.blocking, nest.extent
    loops = nest.loops[: nest.depth("c")]
    parts_m, parts_n = -(-t.partition_m // t.tile_m), -(-t.partition_n // t.tile_n)
    down, across = {"m": parts_m}, {"n": parts_n}
    if t.parts > 1:
        loops = (*loops, Loop(INNER, t.parts))
        (across if t.tile_n < t.partition_n else down)[INNER] = 1
    return Tiles(loops, shape.rows, shape.columns, shape.width, e.m, e.n, down, across)
