"""Operators on whole rows: what they share, and how their rows are cut into tiles.

A tile takes several launches, one after the other. A launch goes through all rows in one loop; what it finds
out about a row stands in the row's record in the output buffer, for the launches behind it.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw.config import MachineConfig
from hw.errors import InputError
from sw.cgra.launcher import UNIT
from sw.compile.forms import HALVES, Loop, count, size
from sw.compile.launches import LaunchWriter
from sw.compile.operands import Tiles
from sw.compile.writer import LONGEST, AddressMap, ChipSpace, Writer, loop
from sw.graph.network import Operator, Tensor, View, whole
from sw.ir.expression import Const, Expr
from sw.ir.program import Region, Statement
from sw.kernels.configuration import Configured, configure
from sw.kernels.passes import GROUP, RECORD, Pass, Span, Value, times
from sw.layout import round_up
from sw.operators.copies import Copies, rows_contiguous
from sw.operators.elementwise.lower import DOWN, merged_axes
from sw.operators.registry import LoweringContext, legalise, lower

Array = npt.NDArray[np.generic]
#: Elements of which a reference keeps arrays at a time.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class RowOperator(Operator):
    """An operator on the last axis of `x`, whose elements are of type `element`; results are like `x`.

    A subclass says what becomes of rows (`on_rows`) and which launches compute it (`passes`).
    """

    x: View
    element: str

    @property
    def inputs(self) -> tuple[View, ...]:
        """The rows."""
        return (self.x,)

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return self.x.shape[-1]

    @property
    def fill(self) -> int:
        """What rows are padded with."""
        return 0

    def parameters(self) -> npt.NDArray[np.int32] | None:
        """Words that the scratchpad must hold."""
        return None

    @abstractmethod
    def on_rows(self, x: Array) -> Array:
        """The results of rows, an array [rows, columns]."""

    @abstractmethod
    def passes(self, tile: RowTile, parameters: Value) -> tuple[Pass, ...]:
        """The launches of a tile; `parameters` is the byte of the scratchpad where they lie."""

    def reference(self, arrays: Sequence[Array]) -> Array:
        """The results, computed some rows at a time, so that large tensors need little memory."""
        (x,) = arrays
        rows = x.reshape(-1, self.columns)
        step = max(1, _CHUNK // self.columns)
        found = [self.on_rows(rows[i : i + step]) for i in range(0, len(rows), step)]
        return np.concatenate(found).reshape(x.shape)


@legalise.register
def _(operator: RowOperator, copies: Copies) -> None:
    x = operator.x if rows_contiguous(operator.x) else copies.copy(operator, operator.x, "operand")
    copies.append(dataclasses.replace(operator, x=x), rows_contiguous(operator.output))


@dataclass(frozen=True)
class RowTile:
    """Where a tile of `rows` rows lies: bytes from the start of scratchpad (`x`) and output buffer.

    `x` are the rows, `records` the rows' records, `out` the results; all three start at multiples of 4. Rows
    are `pitch` bytes apart, results too, or `apart` bytes, a multiple of 4.
    """

    rows: Value
    columns: int
    x: Value
    records: Value
    out: Value
    apart: int = 0

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next: the columns, padded."""
        return row_pitch(self.columns)

    @property
    def input(self) -> Span:
        """The rows."""
        return Span("scratch", self.x, self.bytes)

    @property
    def state(self) -> Span:
        """The records."""
        return Span("out", self.records, times(self.rows, RECORD))

    @property
    def results(self) -> Span:
        """The results."""
        return Span("out", self.out, times(self.rows, self.apart or self.pitch))

    @property
    def gap(self) -> int:
        """Words between the results of a row and those of the next."""
        return ((self.apart or self.pitch) - self.pitch) // 4

    @property
    def bytes(self) -> Value:
        """Bytes of all rows."""
        return times(self.rows, self.pitch)

    def groups(self, elements: int) -> Value:
        """Iterations over the tile, of so many elements each."""
        return times(self.rows, self.pitch // elements)

    def last(self, elements: int) -> int:
        """Iterations of a row, less one."""
        return self.pitch // elements - 1


def row_pitch(columns: int) -> int:
    """Bytes of a row of so many columns with its padding."""
    return -(-columns // GROUP) * GROUP


@dataclass(frozen=True)
class LoweredRows:
    """An operator on rows.

    `views` are input and output, [..., rows, columns]; results are rows `apart` bytes apart. `constants` are
    loaded once. `places` are those of tiles, `slots` those of configurations; 0: all stay in the scratchpad.
    """

    operator: RowOperator
    views: tuple[View, View]
    batches: tuple[Mapping[str, int], Mapping[str, int]]
    loops: tuple[Loop, ...]
    rows: int
    columns: int
    apart: int
    constants: Tensor | None
    configured: tuple[Configured, ...]
    places: int
    slots: int

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """The constants."""
        return (self.constants,) if self.constants else ()

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """The load, the launches and the store of every tile."""
        made: list[Statement] = []
        writer, constants = launcher.writer, 0
        if self.constants is not None:
            home = writer.home(self.constants.name)
            constants = scratch.take(home.size)
            view = whole(home.tensor)
            made.append(writer.load_scratch(view, AddressMap((), {}), 1, 0, home.row, constants, home.size))
        turn: Expr = count(self.loops) % HALVES if self.places > 1 else Const(0)
        largest = round_up(4 * max(len(c.words) for c in self.configured), UNIT)
        slots = [scratch.take(largest) for _ in range(self.slots)]

        width, total = row_pitch(self.columns), self.views[0].shape[-2]
        tiles = Tiles(self.loops, self.rows, self.columns, width, total, self.columns, {DOWN: 1}, {})
        rows = size(self.loops, DOWN, total, self.rows)
        tile = RowTile(
            rows,
            self.columns,
            turned(scratch, turn, self.places, self.rows * width),
            turned(out, turn, self.places, self.rows * RECORD),
            turned(out, turn, self.places, self.rows * self.apart),
            self.apart,
        )
        if self.loops:
            launcher.forget()
        body = [self._load(writer, tiles, rows, tile)]
        body += launches(launcher, self.operator.passes(tile, constants), self.configured, slots)
        body.append(self._store(writer, tiles, rows, tile))
        for level in reversed(self.loops):
            body = [loop(level, body)]
        if self.loops:
            launcher.forget()
        return made + body

    def _load(self, writer: Writer, tiles: Tiles, rows: Expr, tile: RowTile) -> Statement:
        """The rows with their padding; all as one where there is none."""
        source, columns, width = self.views[0], self.columns, row_pitch(self.columns)
        walk, step = tiles.walk(source, self.batches[0]), source.strides[-2]
        if width == step == columns and self.rows * columns <= LONGEST:
            region = writer.region(source, walk, rows, step, columns)
            return writer.load_scratch(source, walk, 1, 0, rows * columns, tile.x, width, region=region)
        fill = (width - columns, self.operator.fill)
        return writer.load_scratch(source, walk, rows, step, columns, tile.x, width, None, fill)

    def _store(self, writer: Writer, tiles: Tiles, rows: Expr, tile: RowTile) -> Statement:
        """The results: rows, all as one where these are no words of the port."""
        target, unit = self.views[1], writer.config.store_bytes
        walk, step = tiles.walk(target, self.batches[1]), target.strides[-2]
        if self.apart % unit:
            region = writer.region(target, walk, rows, step, self.columns)
            return writer.store_out(target, walk, 1, 0, rows * step, tile.out, unit, region=region)
        return writer.store_out(target, walk, rows, step, self.columns, tile.out, self.apart)


def turned(area: ChipSpace, turn: Expr, places: int, size: int) -> Expr:
    """A byte of an area, of so many places that take turns, each of some bytes."""
    step = round_up(size, area.alignment)
    return turn * step + area.take(places * step)


def launches(
    launcher: LaunchWriter,
    passes: Sequence[Pass],
    configured: Sequence[Configured],
    slots: Sequence[int] = (),
) -> list[Statement]:
    """The launches of a tile, one after the other.

    With `slots`, bytes of the scratchpad that take turns, each configuration is loaded before its launch.
    """
    made: list[Statement] = []
    for number, (one, own) in enumerate(zip(passes, configured, strict=True)):
        if slots:
            made += launcher.load_to(own, slots[number % len(slots)])
        reads, writes = ([_region(launcher.writer, s) for s in spans] for spans in (one.reads, one.writes))
        made.append(launcher.launch(own, one.iterations, one.scalars, reads, writes))
    return made


def _region(writer: Writer, span: Span) -> Region:
    return (
        writer.scratch(span.start, span.size)
        if span.space == "scratch"
        else writer.out(span.start, span.size)
    )


@lower.register
def _(operator: RowOperator, context: LoweringContext) -> LoweredRows:
    """Tiles and configurations; raises `InputError` where not even one row fits."""
    homes, config = context.homes, context.config
    source, target = merged_axes((operator.x, operator.output), homes, fixed=1)
    total, columns = source.shape[-2:]
    apart = _apart(columns, target, config)
    parameters, constants = operator.parameters(), None
    if parameters is not None:
        constants = Tensor(f"{operator.name}, parameters", parameters.shape, "int32", parameters)
    passes = operator.passes(RowTile(1, columns, 0, 0, 0, apart), 0)
    configured = tuple(configure(p.kernel, config) for p in passes)
    loops = [Loop(f"batch{i}", n) for i, n in enumerate(source.shape[:-2])]
    own = 0 if constants is None else round_up(4 * constants.elements, 128)
    sizes = [round_up(4 * len(words), 128) for words in {c.words for c in configured}]
    cut = _cut(operator, total, columns, apart, config, context.room, (own, sizes), bool(loops))
    moves, results = ({f"batch{i}": s for i, s in enumerate(v.strides[:-2])} for v in (source, target))
    if cut.rows < total:
        loops.append(Loop(DOWN, -(-total // cut.rows)))
    return LoweredRows(
        operator,
        (source, target),
        (moves, results),
        tuple(loops),
        cut.rows,
        columns,
        apart,
        constants,
        configured,
        cut.places,
        cut.slots,
    )


def _apart(columns: int, target: View, config: MachineConfig) -> int:
    """Bytes from the results of a row to the next: words of the port, unless a tile is stored as one row."""
    width = row_pitch(columns)
    return width if target.strides[-2] == columns == width else round_up(width, config.store_bytes)


@dataclass(frozen=True)
class _Cut:
    """Rows of a tile, places for tiles, and for configurations; 0: all stay in the scratchpad."""

    rows: int
    places: int
    slots: int


def _cut(
    operator: Operator,
    total: int,
    columns: int,
    per_row: int,
    config: MachineConfig,
    room: int,
    held: tuple[int, list[int]],
    several: bool,
) -> _Cut:
    """The largest tiles: every tile brings all configurations to the grid.

    One tile in `room` is best, since the rest of the scratchpad can be prepared for the next operator; then
    one in all of it, then two places for tiles. `held` are bytes of constants and of the configurations;
    `several`: there are such tiles for several batches.
    """
    constants, sizes = held
    width, whole, unit = row_pitch(columns), config.scratch_bytes, config.store_bytes

    def fits(rows: int, places: int, slots: int, room: int) -> bool:
        stays = constants + (slots * max(sizes) if slots else sum(sizes)) + 256
        results = round_up(rows * per_row, max(16, unit))
        if per_row % unit and results > LONGEST:
            return False
        outside = places * (rows * RECORD + 16 + results) + 256
        return stays + places * (rows * width + 32) <= room and outside <= config.out_bytes

    def most(places: int, slots: int) -> int:
        """Rows that fit all of the scratchpad."""
        low, high = 0, total
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle, places, slots, whole) else (low, middle - 1)
        return low

    places = HALVES if several else 1
    for slots, space in ((0, room), (0, whole), (2, whole)):
        if fits(total, places, slots, space):
            return _Cut(total, places, slots)
    # Configurations that are loaded again for every tile leave more room, but use the memory's port.
    found = [_Cut(most(HALVES, slots), HALVES, slots) for slots in (0, 2)]
    found.append(_Cut(most(1, 1), 1, 1))
    for best in found if _parts(total, found[0]) == _parts(total, found[1]) else found[1:]:
        if best.rows:
            return _Cut(-(-total // _parts(total, best)), best.places, best.slots)
    raise InputError(
        f"{operator.name}: a row of {columns} elements, {constants} bytes of constants, {max(sizes)} "
        f"bytes of a configuration must fit {whole} bytes of the scratchpad, its results {config.out_bytes} "
        "of the output buffer"
    )


def _parts(total: int, cut: _Cut) -> int:
    """Tiles of so many rows; 0 where none fits."""
    return -(-total // cut.rows) if cut.rows else 0
