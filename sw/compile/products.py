"""Products of a network: tiles, and for each that is complete a launch, or a store of the sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sw.arrangement import INNER, Loop, Nest
from sw.compile.memory import Home
from sw.compile.operands import Tiles
from sw.compile.tile_launches import Batches, Launches
from sw.compile.writer import Walk, Writer, given
from sw.graph.network import View
from sw.ir.expression import Const, Expr
from sw.ir.program import Instruction, Interval, Region, Statement
from sw.ir.roles import WarpRole
from sw.layout import round_up
from sw.tiled.emit import Emitter
from sw.tiled.forms import count, index, linear

#: Places in a memory that take turns.
HALVES = 2


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


class ProductEmitter(Emitter):
    """Emits a product as part of a model's program."""

    def __init__(
        self,
        plan: Nest,
        writer: Writer,
        views: Mapping[str, View],
        batches: Batches,
        shape: Shape,
        launches: Launches | None = None,
    ):
        super().__init__(plan)
        self.writer, self.views, self.batches, self.shape = writer, views, batches, shape
        self.launches = launches
        self.tiles = tiles_of(plan, shape)

    def body(self) -> list[Statement]:
        """All of it."""
        return self.step(0)

    # What differs from a product of its own

    def label(self, stem: str) -> str:
        """A label of the model's program."""
        return self.writer.label(stem)

    def rows_of(self, x: str, loops: tuple[Loop, ...], outer: Expr, inner: Expr) -> Region:
        """Rows of an operand's tensor."""
        view = self.views[x]
        home = self.writer.home(view.tensor)
        steps = {n: _elements(home, step) for n, step in self.plan.steps[x].items()}
        step = _elements(home, self.plan.places[x].pitch)
        return self.writer.region(view, Walk(loops, steps, view.offset), outer, step, inner)

    def pixels(self, first: Expr, channels: Expr, box: tuple[Interval, Interval]) -> Region:
        """Images count as read whole: what a tile reads of all channels is no box of rows."""
        return self.writer.whole(self.views["b"].tensor)

    def accumulator(self, loops: tuple[Loop, ...], rows: Expr, columns: Expr) -> tuple[Expr, Region]:
        """First word of the present inner tile, and its region."""
        half = self.plan.config.derived.acc_words // HALVES
        inner = index(loops, INNER)
        if not self.t.single_c:
            word = self.turn("c") * half + linear(loops, {INNER: self.shape.words} if self.inner else {})
        elif inner is not None and -(-self.t.parts // HALVES) * self.shape.words <= half:
            # Neighbours lie in different banks, so that storer and array are not in each other's way.
            word = inner % HALVES * half + inner // HALVES * self.shape.words
        else:
            word = linear(loops, {INNER: self.shape.words} if self.inner else {})
        return word, self.writer.accumulator(word, rows * self.pitch_of(columns))

    def pitch_of(self, columns: Expr) -> Expr:
        """Words between the rows of the present inner tile."""
        cols = self.plan.config.cols
        return (columns + (cols - 1)) // cols if self.shape.tight else Const(self.shape.pitch)

    def walk(self, key: int | str, view: View) -> Walk:
        """Where the present inner tile starts in a view [..., m, n]."""
        return self.tiles.walk(view, self.batches.get(key, {}))

    def moves(self, view: View) -> dict[str, int]:
        """Elements of the result that every loop moves on."""
        t, (row, column) = self.t, view.strides[-2:]
        moved = dict(self.batches.get("c", {}))
        own = {"m": t.partition_m * row, "n": t.partition_n * column}
        own[INNER] = t.tile_n * column if t.tile_n < t.partition_n else t.tile_m * row
        for name, step in own.items():
            moved[name] = moved.get(name, 0) + step
        return moved

    def across(self, columns: Expr) -> Expr:
        """What launches count the columns of the present inner tile in."""
        return columns

    def finish(self) -> list[Statement]:
        """A launch and its store, or a store of the sums."""
        rows, columns, there = self.parted(self.stored)
        word, region = self.accumulator(self.stored, rows, columns)
        if self.launches is not None:
            sums = (word * self.plan.config.cols, region)
            return self.launches.statements(
                self.tiles,
                self.batches,
                self.views["c"],
                (rows, self.across(columns)),
                count(self.stored) % HALVES,
                there,
                sums,
            )
        view = self.views["c"]
        home = self.writer.home(view.tensor)
        walk = Walk(self.stored, self.moves(view), view.offset)
        target = self.writer.region(view, walk, rows, view.strides[-2], columns)
        operands: dict[str, Expr | int] = {
            "memory": self.writer.address(view.tensor, walk),
            "source": word,
            "rows": rows,
            "bytes": columns * home.itemsize,
            "store_stride": home.offset(view.strides[-2]),
            "store_pitch": self.pitch_of(columns),
        }
        writes = self.writer.stored(view.tensor, target)
        return [
            Instruction(self.label("S"), "store", (region,), writes, WarpRole.STORE, there, given(operands))
        ]


def _elements(home: Home, step: int) -> int:
    """Elements that so many bytes are."""
    rows, rest = divmod(step, home.pitch)
    return rows * home.row + rest // home.itemsize
