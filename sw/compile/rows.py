"""Operators on whole rows: softmax, layer normalisation, means. A tile takes several launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import Loop
from sw.compile.elementwise import DOWN, canonical
from sw.compile.launches import Area, Grid
from sw.compile.memory import Home
from sw.compile.operands import Tiles
from sw.compile.writer import Walk, Writer, loop
from sw.ir.expression import Const, Expr
from sw.ir.program import Region, Statement
from sw.kernels import layernorm, pool, softmax
from sw.kernels.configuration import Configured, configure
from sw.kernels.rows import RECORD, Pass, RowTile, Span, pitch
from sw.network.layernorm import LayerNormalisation
from sw.network.network import Operator, Tensor, View, whole
from sw.network.pool import Pool
from sw.network.requantise import LIMITS
from sw.network.softmax import Softmax
from sw.tiled.forms import count, size

#: Places that take turns, where there is more than one tile.
HALVES = 2


@dataclass(frozen=True)
class RowPart:
    """An operator on rows.

    `views` are input and output, [..., rows, columns]; results are `bytes` bytes per row. `constants` are
    loaded once. `make` gives the launches of a tile, for where the constants lie.
    """

    operator: Operator
    views: tuple[View, View]
    batches: tuple[Mapping[str, int], Mapping[str, int]]
    loops: tuple[Loop, ...]
    rows: int
    columns: int
    bytes: int
    fill: int
    constants: Tensor | None
    make: Callable[[RowTile, int], Sequence[Pass]]
    configured: tuple[Configured, ...]

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """The constants."""
        return (self.constants,) if self.constants else ()

    @property
    def places(self) -> int:
        """Places that take turns."""
        return HALVES if self.loops else 1

    def emit(self, writer: Writer, grid: Grid, scratch: Area, out: Area) -> list[Statement]:
        """The load, the launches and the store of every tile."""
        made: list[Statement] = []
        constants = 0
        if self.constants is not None:
            home = writer.home(self.constants.name)
            constants = scratch.take(home.size)
            view = whole(home.tensor)
            made.append(writer.load_c(view, Walk((), {}), 1, 0, home.row, constants, home.size))
        width = pitch(self.columns)
        x = scratch.take(self.places * self.rows * width)
        records = out.take(self.places * self.rows * RECORD)
        result = out.take(self.places * _aligned(self.rows * self.bytes, out.alignment))
        turn: Expr = count(self.loops) % HALVES if self.loops else Const(0)
        source = self.views[0]
        total = source.shape[-2]
        tiles = Tiles(self.loops, self.rows, self.columns, width, total, self.columns, {DOWN: 1}, {})
        rows = size(self.loops, DOWN, total, self.rows)
        tile = RowTile(
            rows,
            self.columns,
            turn * (self.rows * width) + x,
            turn * (self.rows * RECORD) + records,
            turn * _aligned(self.rows * self.bytes, out.alignment) + result,
        )
        if self.loops:
            grid.forget()
        walk = tiles.walk(source, self.batches[0])
        fill = (width - self.columns, self.fill)
        body: list[Statement] = [
            writer.load_c(source, walk, rows, source.strides[-2], self.columns, tile.x, width, None, fill)
        ]
        for one, configured in zip(self.make(tile, constants), self.configured, strict=True):
            body.append(
                grid.launch(
                    configured,
                    one.iterations,
                    one.scalars,
                    [_region(writer, s) for s in one.reads],
                    [_region(writer, s) for s in one.writes],
                )
            )
        body.append(self._store(writer, tiles, rows, tile))
        for level in reversed(self.loops):
            body = [loop(level, body)]
        if self.loops:
            grid.forget()
        return made + body

    def _store(self, writer: Writer, tiles: Tiles, rows: Expr, tile: RowTile) -> Statement:
        """The results: rows, or one byte of each."""
        target = self.views[1]
        walk = tiles.walk(target, self.batches[1])
        if self.bytes == 1:
            return writer.store_out(target, walk, 1, 0, rows, tile.out, self.rows)
        step = target.strides[-2]
        return writer.store_out(target, walk, rows, step, self.columns, tile.out, self.bytes)


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


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
    per_row = 1 if isinstance(operator, Pool) else pitch(columns)
    if columns > 1 and source.strides[-1] != 1:
        raise InputError(f"{operator.name}: rows must be contiguous, elements of {source.tensor!r} lie apart")
    if per_row > 1 and columns > 1 and target.strides[-1] != 1:
        raise InputError(f"{operator.name}: rows of the result must be contiguous")
    constants = None
    if isinstance(operator, LayerNormalisation):
        words = layernorm.parameters(operator)
        constants = Tensor(f"{operator.name}, parameters", words.shape, "int32", words)
    make = _passes(operator)
    kernels = [p.kernel for p in make(RowTile(1, columns, 0, 0, 0), 0)]
    configured = tuple(configure(k, config) for k in kernels)
    held = sum(_aligned(4 * len(words), 128) for words in {c.words for c in configured})
    held += 0 if constants is None else _aligned(4 * constants.elements, 128)
    total = source.shape[-2]
    rows = _rows(operator, total, columns, per_row, config, room, held)
    loops = [Loop(f"batch{i}", n) for i, n in enumerate(source.shape[:-2])]
    batches = tuple({f"batch{i}": s for i, s in enumerate(v.strides[:-2])} for v in (source, target))
    if rows < total:
        loops.append(Loop(DOWN, -(-total // rows)))
    least = LIMITS[operator.element][0]
    zeros = isinstance(operator, LayerNormalisation) or (
        isinstance(operator, Pool) and operator.kind == "average"
    )
    return RowPart(
        operator,
        (source, target),
        (batches[0], batches[1]),
        tuple(loops),
        rows,
        columns,
        per_row,
        0 if zeros else least,
        constants,
        make,
        configured,
    )


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


def _rows(
    operator: Operator, total: int, columns: int, per_row: int, config: MachineConfig, room: int, held: int
) -> int:
    """Rows of a tile: as many as fit, all if they do, else two places of them."""
    width = pitch(columns)
    unit = config.store_bytes

    def holds(rows: int, places: int) -> bool:
        results = _aligned(rows * per_row, max(16, unit))
        inside = held + places * rows * width + 256 <= room
        return inside and places * (rows * RECORD + results) + 256 <= config.out_bytes

    if holds(total, 1):
        return total
    rows = total
    while rows > 1 and not holds(rows, HALVES):
        rows -= max(1, rows // 16)
    if not holds(rows, HALVES):
        raise InputError(
            f"{operator.name}: a row of {columns} elements and {held} bytes of configurations must fit "
            f"{room} bytes of the scratchpad twice, and {config.out_bytes} of the output buffer"
        )
    return -(-total // -(-total // rows))
