"""Operators on whole rows: softmax, layer normalisation, means. A tile takes several launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import Loop
from sw.compile.elementwise import DOWN, canonical
from sw.compile.launches import UNIT, Area, Grid
from sw.compile.memory import Home
from sw.compile.operands import Tiles
from sw.compile.writer import Walk, Writer, loop, row_compatible
from sw.graph.layernorm import LayerNormalisation
from sw.graph.network import Operator, Tensor, View, whole
from sw.graph.pool import Pool
from sw.graph.requantise import LIMITS
from sw.graph.softmax import Softmax
from sw.ir.expression import Const, Expr
from sw.ir.program import Region, Statement
from sw.kernels import layernorm, pool, softmax
from sw.kernels.configuration import Configured, configure
from sw.kernels.rows import RECORD, Pass, RowTile, Span, pitch
from sw.layout import round_up
from sw.tiled.forms import count, size

#: Places that take turns, where there is more than one tile.
HALVES = 2
#: Most bytes of a row that is loaded or stored.
LONGEST = (1 << 16) - 1


@dataclass(frozen=True)
class RowPart:
    """An operator on rows.

    `views` are input and output, [..., rows, columns]; results are one byte per row (`narrow`), or rows
    `apart` bytes apart. `constants` are loaded once. `make` gives the launches of a tile for where they lie.
    """

    operator: Operator
    views: tuple[View, View]
    batches: tuple[Mapping[str, int], Mapping[str, int]]
    loops: tuple[Loop, ...]
    rows: int
    columns: int
    narrow: bool
    apart: int
    fill: int
    constants: Tensor | None
    make: Callable[[RowTile, int], Sequence[Pass]]
    configured: tuple[Configured, ...]
    places: int
    slots: int

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """The constants."""
        return (self.constants,) if self.constants else ()

    def emit(self, writer: Writer, grid: Grid, scratch: Area, out: Area) -> list[Statement]:
        """The load, the launches and the store of every tile."""
        made: list[Statement] = []
        constants = 0
        if self.constants is not None:
            home = writer.home(self.constants.name)
            constants = scratch.take(home.size)
            view = whole(home.tensor)
            made.append(writer.load_c(view, Walk((), {}), 1, 0, home.row, constants, home.size))
        turn: Expr = count(self.loops) % HALVES if self.places > 1 else Const(0)
        largest = round_up(4 * max(len(c.words) for c in self.configured), UNIT)
        slots = [scratch.take(largest) for _ in range(self.slots)]

        def place(area: Area, bytes_: int) -> Expr:
            step = round_up(bytes_, area.alignment)
            return turn * step + area.take(self.places * step)

        width, total = pitch(self.columns), self.views[0].shape[-2]
        tiles = Tiles(self.loops, self.rows, self.columns, width, total, self.columns, {DOWN: 1}, {})
        rows = size(self.loops, DOWN, total, self.rows)
        tile = RowTile(
            rows,
            self.columns,
            place(scratch, self.rows * width),
            place(out, self.rows * RECORD),
            place(out, self.rows * (1 if self.narrow else self.apart)),
            self.apart,
        )
        if self.loops:
            grid.forget()
        body = [self._load(writer, tiles, rows, tile)]
        body += launches(writer, grid, self.make(tile, constants), self.configured, slots)
        body.append(self._store(writer, tiles, rows, tile))
        for level in reversed(self.loops):
            body = [loop(level, body)]
        if self.loops:
            grid.forget()
        return made + body

    def _load(self, writer: Writer, tiles: Tiles, rows: Expr, tile: RowTile) -> Statement:
        """The rows with their padding; all as one where there is none."""
        source, columns, width = self.views[0], self.columns, pitch(self.columns)
        walk, step = tiles.walk(source, self.batches[0]), source.strides[-2]
        home = writer.home(source.tensor)
        if width == step == columns and home.dense and self.rows * columns <= LONGEST:
            region = writer.region(source, walk, rows, step, columns)
            return writer.load_c(source, walk, 1, 0, rows * columns, tile.x, width, region=region)
        fill = (width - columns, self.fill)
        return writer.load_c(source, walk, rows, step, columns, tile.x, width, None, fill)

    def _store(self, writer: Writer, tiles: Tiles, rows: Expr, tile: RowTile) -> Statement:
        """The results: one byte of each row, or rows, all as one where these are no words of the port."""
        target, unit = self.views[1], writer.config.store_bytes
        walk, step = tiles.walk(target, self.batches[1]), target.strides[-2]
        if self.narrow:
            region = writer.run(target.tensor, walk, rows)
            return writer.store_out(target, walk, 1, 0, rows, tile.out, unit, region=region)
        if self.apart % unit:
            region = writer.region(target, walk, rows, step, self.columns)
            return writer.store_out(target, walk, 1, 0, rows * step, tile.out, unit, region=region)
        return writer.store_out(target, walk, rows, step, self.columns, tile.out, self.apart)


def launches(
    writer: Writer,
    grid: Grid,
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
            made += grid.load_to(own, slots[number % len(slots)])
        reads, writes = ([_region(writer, s) for s in spans] for spans in (one.reads, one.writes))
        made.append(grid.launch(own, one.iterations, one.scalars, reads, writes))
    return made


def _region(writer: Writer, span: Span) -> Region:
    return (
        writer.scratch(span.start, span.size)
        if span.space == "scratch"
        else writer.out(span.start, span.size)
    )


def row_part(
    operator: Softmax | LayerNormalisation | Pool, homes: Mapping[str, Home], config: MachineConfig, room: int
) -> RowPart:
    """Tiles and configurations of an operator on rows, which has so many bytes of the scratchpad.

    Raises `InputError` for views whose rows are not contiguous, and where not even one row fits.
    """
    source, target, columns = _views(operator)
    made = canonical((source, target), homes, fixed=1)
    source, target = made.views
    narrow = isinstance(operator, Pool)
    total = source.shape[-2]
    if columns > 1 and source.strides[-1] != 1:
        raise InputError(f"{operator.name}: rows must be contiguous, elements of {source.tensor!r} lie apart")
    length, step = (total, target.strides[-2]) if narrow else (columns, target.strides[-1])
    if length > 1 and step != 1:
        raise InputError(
            f"{operator.name}: results must be contiguous, elements of {target.tensor!r} lie apart"
        )
    home = homes[source.tensor]
    if not (home.dense or row_compatible(source, home.row)):
        raise InputError(
            f"{operator.name}: rows must be parts of rows of {source.tensor!r}, which has padding"
        )
    apart = _apart(columns, target, homes[target.tensor], config)
    constants = None
    if isinstance(operator, LayerNormalisation):
        words = layernorm.parameters(operator)
        constants = Tensor(f"{operator.name}, parameters", words.shape, "int32", words)
    make = _passes(operator)
    kernels = [p.kernel for p in make(RowTile(1, columns, 0, 0, 0, apart), 0)]
    configured = tuple(configure(k, config) for k in kernels)
    loops = [Loop(f"batch{i}", n) for i, n in enumerate(source.shape[:-2])]
    own = 0 if constants is None else round_up(4 * constants.elements, 128)
    sizes = [round_up(4 * len(words), 128) for words in {c.words for c in configured}]
    cut = _cut(operator, total, columns, 1 if narrow else apart, config, room, (own, sizes), bool(loops))
    batches = tuple({f"batch{i}": s for i, s in enumerate(v.strides[:-2])} for v in (source, target))
    if cut.rows < total:
        loops.append(Loop(DOWN, -(-total // cut.rows)))
    least = LIMITS[operator.element][0]
    zeros = isinstance(operator, LayerNormalisation) or (
        isinstance(operator, Pool) and operator.kind == "average"
    )
    return RowPart(
        operator,
        (source, target),
        (batches[0], batches[1]),
        tuple(loops),
        cut.rows,
        columns,
        narrow,
        apart,
        0 if zeros else least,
        constants,
        make,
        configured,
        cut.places,
        cut.slots,
    )


def _apart(columns: int, target: View, home: Home, config: MachineConfig) -> int:
    """Bytes from the results of a row to the next: words of the port, unless a tile is stored as one row."""
    width = pitch(columns)
    together = home.dense and target.strides[-2] == columns == width
    return width if together else round_up(width, config.store_bytes)


def _views(operator: Softmax | LayerNormalisation | Pool) -> tuple[View, View, int]:
    """Input and output as [..., rows, columns]; a mean has one column of results."""
    if not isinstance(operator, Pool):
        return operator.x, operator.output, operator.x.shape[-1]
    x, y = operator.x, operator.output
    rows, cols = x.shape[-2:]
    if rows > 1 and cols > 1 and x.strides[-2] != cols * x.strides[-1]:
        raise InputError(f"{operator.name}: images must lie without gaps")
    step = x.strides[-1] if cols > 1 else x.strides[-2]
    source = View(x.tensor, (*x.shape[:2], rows * cols), (*x.strides[:2], step), x.offset)
    # The result is repeated along the columns, so that both views have one shape.
    target = View(y.tensor, source.shape, (*y.strides[:2], 0), y.offset)
    return source, target, rows * cols


def _passes(operator: Softmax | LayerNormalisation | Pool) -> Callable[[RowTile, int], Sequence[Pass]]:
    match operator:
        case Softmax():
            return lambda tile, constants: softmax.passes(operator, tile)
        case LayerNormalisation():
            return lambda tile, constants: layernorm.passes(operator, tile, constants)
        case _:
            return lambda tile, constants: pool.row_passes(operator, tile)


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
    width, whole, unit = pitch(columns), config.scratch_bytes, config.store_bytes

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
