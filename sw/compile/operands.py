"""Operands from memory in a loop over tiles: how they follow the tile, and their loads.

Constants that follow rows or columns are put into records, padded to whole tiles, which one index of the loop
addresses. Everything else is loaded as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sw.compile.forms import HALVES, Loop, both, index
from sw.compile.memory import Allocation
from sw.compile.writer import AddressMap, ChipSpace, Writer, loop
from sw.graph.network import Tensor, View, whole, word
from sw.ir.expression import Const, Expr, Op, apply, fold
from sw.ir.program import Region, Statement
from sw.kernels.access import Follows, TileAccess
from sw.kernels.elementwise import ElementwiseKernel
from sw.layout import round_up


@dataclass(frozen=True)
class Segments:
    """Rows of a tile that consist of `count` segments of `length` elements, with gaps after them.

    `computed` elements of a segment are computed: those beyond `length` fall into the gaps of the result, and
    their inputs do not matter. `apart` holds the elements from segment to segment, and `pitches` those from
    row to row, by the number of the operand or `"result"`. Without gaps between segments, `apart` equals
    `length`. If anything has gaps, row records are per segment.
    """

    length: int
    computed: int
    count: int
    apart: Mapping[int | str, int]
    pitches: Mapping[int | str, int]

    @property
    def width(self) -> int:
        """Elements of a row that are computed."""
        return self.computed * self.count

    @property
    def records(self) -> int:
        """Row records per row."""
        return self.count if any(step != self.computed for step in self.apart.values()) else 1

    def beyond(self, key: int | str) -> int:
        """Elements after a tile's last segment that are read from an operand."""
        return max(0, self.computed - self.apart[key])

    @property
    def gaps(self) -> dict[str, Any]:
        """Gaps after rows and after segments, as scalars of a launch."""
        return {
            "segment": self.computed,
            "row_gaps": {k: pitch - self.count * self.apart[k] for k, pitch in self.pitches.items()},
            "segment_gaps": {k: step - self.computed for k, step in self.apart.items()},
        }


@dataclass(frozen=True)
class Tiles:
    """How a matrix [..., rows, columns] is cut into tiles, and the loops that count them.

    `down` and `across` say how many tiles each loop advances. `width` elements per row are computed; with
    `segments`, it is the most that a row takes.
    """

    loops: tuple[Loop, ...]
    rows: int
    columns: int
    width: int
    whole_rows: int
    whole_columns: int
    down: Mapping[str, int]
    across: Mapping[str, int]
    segments: Segments | None = None

    def pitch(self, key: int | str) -> int:
        """Elements from row to row of an operand, or of the result, in its buffer."""
        return self.segments.pitches[key] if self.segments else self.width

    @property
    def records(self) -> int:
        """Row records per row: one, or one per segment."""
        return self.segments.records if self.segments else 1

    def region(self, writer: Writer, view: View) -> Region | None:
        """The region of a view that counts as touched if rows have gaps: its whole tensor."""
        return None if self.segments is None else writer.whole(view.tensor)

    def walk(self, view: View, batch: Mapping[str, int]) -> AddressMap:
        """Start of the current tile in a view; `batch`: elements that the other loops advance."""
        row, column = view.strides[-2:]
        columns = self.segments.count * self.segments.length if self.segments else self.columns
        steps = dict(batch)
        for name, tiles in self.down.items():
            steps[name] = steps.get(name, 0) + tiles * self.rows * row
        for name, tiles in self.across.items():
            steps[name] = steps.get(name, 0) + tiles * columns * column
        return AddressMap(self.loops, steps, view.offset)


def follows(view: View) -> Follows:
    """How a view [..., rows, columns] follows a tile."""
    row, column = (s if n > 1 else 0 for n, s in zip(view.shape[-2:], view.strides[-2:], strict=True))
    if row == 0:
        return "column" if column else "scalar"
    return "full" if column else "row"


@dataclass(frozen=True)
class Source:
    """An operand: its view, how the kernel reads it, and the layout of its tensor.

    With `packed`, rows of that many elements are loaded, without the padding after each in memory.
    """

    view: View
    access: TileAccess
    home: Allocation
    packed: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of an element as loaded: records hold words."""
        return 4 if self.access.record else self.home.itemsize

    @property
    def line(self) -> np.ndarray:
        """The elements of a constant along its rows or columns."""
        constant = self.home.tensor.constant
        assert constant is not None
        matrix = self.view.of(constant).reshape(-1, *self.view.shape[-2:])[0]
        line = np.ascontiguousarray(matrix[0] if self.access.follows == "column" else matrix[:, 0])
        found: np.ndarray = line.view(np.int32) if self.home.itemsize == 4 else line.astype(np.int32)
        return found


def source(view: View, home: Allocation, batched: bool) -> Source:
    """An operand in memory; `batched`: it differs from batch to batch."""
    how = follows(view)
    if how == "row" and view.shape[-1] == 1 and not home.dense:
        # Elements that follow rows would be loaded as neighbours.
        how = "full"
    if how == "column" and view.shape[-2] == view.strides[-1] == 1 and home.tensor.constant is None:
        how = "full"  # A single row needs no index of its own.
    record = home.tensor.constant is not None and how in ("row", "column") and not batched
    element = "int32" if record else word(home.tensor.element)
    return Source(view, TileAccess("scratch", element, how, record=record), home)


@dataclass(frozen=True)
class Tile:
    """The current tile: its rows and columns, which of two buffers it uses, and whether it exists."""

    tiles: Tiles
    rows: Expr
    columns: Expr
    turn: Expr
    there: Expr | None = None


@dataclass(frozen=True)
class Fetch:
    """A load that brings a tile's part of an operand, or of a record, into one of two buffers.

    `access` is how the loop reads it: repeated operands use tiles of whole rows, and transposed ones are
    loaded column by column, each at its `step`. `unit` elements belong to each row, or to each tile (for
    records of columns). `packed`: see `Source`.
    """

    key: int | str
    view: View
    access: TileAccess
    base: int
    half: int
    pitch: int
    unit: int = 1
    packed: int = 0

    def load(
        self, writer: Writer, tile: Tile, batch: Mapping[str, int]
    ) -> tuple[list[Statement], Region, Expr]:
        """The loads, the bytes that the launch reads, and the index of the first element.

        `batch` holds the strides in elements of the loops around the tile loops; for records, in rows.
        """
        home, tiles, how = writer.home(self.view.tensor), tile.tiles, self.access.follows
        target = tile.turn * self.half + self.base
        first = tile.turn * (self.half // home.itemsize) + self.base // home.itemsize
        number: Expr | int = {"row": tile.rows, "column": tile.columns}.get(how, 1)
        row, column = (0, 1) if self.access.record else self.view.strides[-2:]
        step = row if how == "row" else column

        def load(
            rows: Expr | int, step: int, columns: Expr | int, pitch: int, region: Region | None = None
        ) -> list[Statement]:
            walk = self._record(tiles, batch) if self.access.record else tiles.walk(self.view, batch)
            made = (self.view, walk, rows, step, columns, target, pitch, tile.there)
            return [writer.load_scratch(*made, region=region)]

        if self.access.record:
            loads = load(1, home.row, self.unit if how == "column" else number * self.unit, self.half)
        elif self.packed:
            lines = fold(Op.DIV, tile.columns, self.packed)
            loads = load(lines, self.packed, self.packed, self.packed * home.itemsize)
        elif how == "full" and self.access.turned:
            loads = load(tile.columns, column, tile.rows, self.pitch, tiles.region(writer, self.view))
        elif how == "full" and column != 1:
            # Nothing is contiguous along rows, so load single elements.
            loads = self._lines(writer, tile, batch, target)
        elif how == "full":
            columns = fold(Op.DIV, tile.columns, self.access.repeat)
            loads = load(tile.rows, row, columns, self.pitch, tiles.region(writer, self.view))
        elif how == "scalar" or step == 1:
            # Elements that follow rows may be rows of their tensor.
            loads = load(1, 0, number, self.half, writer.whole(self.view.tensor) if how == "row" else None)
        else:
            loads = load(number, step, 1, home.itemsize)
        # Padding is computed too, so the launch reads the whole buffer.
        return loads, writer.scratch(target, self.half), first

    def _record(self, tiles: Tiles, batch: Mapping[str, int]) -> AddressMap:
        """Start of the current tile's records."""
        if self.access.follows == "column":
            return AddressMap(tiles.loops, {n: t * self.unit for n, t in tiles.across.items()})
        steps = {n: s * self.unit for n, s in batch.items()}
        steps |= {n: t * tiles.rows * self.unit for n, t in tiles.down.items()}
        return AddressMap(tiles.loops, steps)

    def _lines(self, writer: Writer, tile: Tile, batch: Mapping[str, int], target: Expr) -> list[Statement]:
        """Loads of single elements, one per row of the tile, or per column if there are fewer columns."""
        element, tiles, there = writer.home(self.view.tensor).itemsize, tile.tiles, tile.there
        (row, column), by_rows = self.view.strides[-2:], tiles.rows <= tiles.columns
        line = Loop(f"line_{self.key}", tiles.rows if by_rows else tiles.columns)
        walk = tiles.walk(self.view, batch).moved({line.name: row if by_rows else column}, (line,))
        number = index(walk.loops, line.name)
        assert number is not None
        target = target + number * (self.pitch if by_rows else element)
        lines, count = (tile.rows, tile.columns) if by_rows else (tile.columns, tile.rows)
        step, pitch = (column, element) if by_rows else (row, self.pitch)
        if not isinstance(lines, Const):
            there = both(there, apply(Op.LT, number, lines))
        load = writer.load_scratch(self.view, walk, count, step, 1, target, pitch, there)
        return [loop(line, [load])]


def records(
    name: str,
    kernel: ElementwiseKernel,
    sources: Mapping[int, Source],
    tiles: Tiles,
) -> dict[str, Tensor]:
    """Tensors of records, by the key of their base."""
    made: dict[str, Tensor] = {}
    for how, key in (("column", "columns"), ("row", "rows")):
        wanted = {k: s for k, s in sources.items() if s.access.record and s.access.follows == how}
        if not wanted:
            continue
        arrays = {k: s.line for k, s in wanted.items()}
        if how == "row":
            repeated = {k: np.repeat(a, tiles.records) for k, a in arrays.items()}
            words = kernel.records("row", repeated)[None]
        else:
            words = np.stack(
                [
                    kernel.records("column", {k: _padded(a, start, tiles) for k, a in arrays.items()})
                    for start in range(0, tiles.whole_columns, tiles.columns)
                ]
            )
        made[key] = Tensor(f"{name}, records of {key}", words.shape, "int32", words)
    return made


def _padded(array: np.ndarray, start: int, tiles: Tiles) -> np.ndarray:
    part = array[start : start + tiles.columns]
    return np.pad(part, (0, tiles.width - len(part)))


def fetches(
    sources: Mapping[int, Source], made: Mapping[str, Tensor], tiles: Tiles, area: ChipSpace
) -> list[Fetch]:
    """The loads of a tile, with their addresses in the scratchpad."""
    found: list[Fetch] = []

    def places(size: int) -> tuple[int, int]:
        """Two buffers of `size` bytes: start of the first, and distance to the second."""
        # Both have the same alignment.
        half = round_up(size, area.alignment)
        return area.take(HALVES * half), half

    def record(key: str, size: int, unit: int) -> None:
        """Buffers for records of `unit` elements."""
        access = TileAccess("scratch", "int32", "column" if key == "columns" else "row", record=True)
        found.append(Fetch(key, whole(made[key]), access, *places(size), pitch=0, unit=unit))

    for key, tensor in made.items():
        if key == "columns":
            record(key, 4 * tensor.shape[1], tensor.shape[1])
        else:
            count = sum(s.access.record and s.access.follows == "row" for s in sources.values())
            count *= tiles.records
            record(key, 4 * count * tiles.rows, count)
    for k, s in sources.items():
        if not s.access.record:
            access = s.access
            pitch = tiles.pitch(k) // access.repeat if access.follows == "full" else 0
            base, half = places(s.itemsize * _elements(k, s, tiles, pitch))
            apart = s.itemsize * (access.step if access.turned else pitch)
            found.append(Fetch(k, s.view, access, base, half, apart, packed=s.packed))
    return found


def _elements(key: int, s: Source, tiles: Tiles, pitch: int) -> int:
    """Elements of an operand in a tile, for this distance of rows."""
    match s.access.follows:
        case "full":
            return tiles.rows * pitch + (tiles.segments.beyond(key) if tiles.segments else 0)
        case "row":
            return tiles.rows * (tiles.records if s.access.record else 1)
        case "column":
            return tiles.width
    return 1


def room(sources: Mapping[int, Source], tiles: Tiles) -> int:
    """The most bytes of the scratchpad that loads of these tiles take."""
    return sum(HALVES * (s.itemsize * _elements(k, s, tiles, tiles.width) + 128) for k, s in sources.items())


def longest(sources: Mapping[int, Source], tiles: Tiles) -> int:
    """Bytes of the longest row in a load of these tiles."""
    found = 0
    for how, elements in (("full", tiles.width), ("row", tiles.rows), ("column", tiles.width)):
        own = [s for s in sources.values() if s.access.follows == how]
        recorded = sum(s.itemsize for s in own if s.access.record)
        recorded *= tiles.records if how == "row" else 1
        found = max(found, *(s.itemsize * elements for s in own if not s.access.record), recorded * elements)
    return found
