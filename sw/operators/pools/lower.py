"""Pooling in tiles: image rows come into the scratchpad with their padding, outputs leave as runs of bytes.

Padding lies between rows, and between channels: what follows a row is to the right of it, and to the left of
the next one. Above the first row of a tile one load of one byte brings it, behind that byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.forms import HALVES, Loop, count, linear, size
from sw.compile.images import joined
from sw.compile.launches import Area, Grid
from sw.compile.memory import Home
from sw.compile.writer import Walk, Writer, loop, row_compatible
from sw.graph.network import Tensor, View, whole
from sw.graph.requantise import LIMITS
from sw.ir.expression import Const, Expr
from sw.ir.program import For, Statement
from sw.kernels.configuration import Configured, configure
from sw.layout import round_up
from sw.operators.copies import Copies, rows_contiguous
from sw.operators.elementwise.lower import merged_axes
from sw.operators.pools.operator import Pool
from sw.operators.pools.passes import PoolTile, factor_words, passes, row_passes, varying, way
from sw.operators.pools.tiles import ACROSS, DOWN, PLANES, Cut, Piece, Results, cut_of, piece
from sw.operators.registry import LoweredOperator, LoweringContext, legalise, lower
from sw.operators.rows import LoweredRows, launches, lower_rows

#: Name of the loop over the loads of a tile.
CHANNEL = "channel"


@dataclass(frozen=True)
class LoweredPool:
    """Pooling of `planes` images of one channel, in tiles.

    `views` are input and output as [..., planes, rows, columns], rows and columns as `pool` has them.
    """

    operator: Pool
    pool: Pool
    views: tuple[View, View]
    batches: tuple[Mapping[str, int], Mapping[str, int]]
    loops: tuple[Loop, ...]
    planes: int
    cut: Cut
    factors: Tensor | None
    configured: tuple[Configured, ...]

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """Factors of outputs that differ."""
        return (self.factors,) if self.factors else ()

    def emit(self, writer: Writer, grid: Grid, scratch: Area, out: Area) -> list[Statement]:
        """The loads, the launches and the store of every tile."""
        cut, places = self.cut, HALVES if self.loops else 1
        turn: Expr = count(self.loops) % HALVES if self.loops else Const(0)

        def place(area: Area, bytes_: int) -> Expr:
            step = round_up(bytes_, area.alignment)
            return turn * step + area.take(places * step)

        rows = piece(self.pool.rows, cut.rows, self.loops, DOWN)
        cols = piece(self.pool.cols, cut.cols, self.loops, ACROSS)
        planes = size(self.loops, PLANES, self.planes, cut.planes)
        image = place(scratch, cut.image)
        factors = place(scratch, cut.factors) if cut.factors else Const(0)
        tile = PoolTile(
            _known(planes),
            _known(rows.outputs),
            image + cut.guard,
            cut.pitch,
            cut.plane,
            place(out, cut.results),
            factors,
            cut.cols,
            place(out, cut.sums) if cut.sums else 0,
            cut.apart,
        )
        body = self._loads(writer, planes, rows, cols, image)
        if self.factors is not None:
            body.append(self._factors(writer, rows, cols, factors))
        made = passes(self.pool, tile)
        if self.loops and len(made) > 1:
            grid.forget()
        body += launches(writer, grid, made, self.configured)
        body.append(self._store(writer, planes, rows, cols, tile))
        for level in reversed(self.loops):
            body = [loop(level, body)]
        if self.loops and len(made) > 1:
            grid.forget()
        return body

    def _walk(self, which: int, rows: Expr, cols: Expr) -> Walk:
        """Where a pixel, or an output, of the present tile's first channel lies."""
        view = self.views[which]
        *_, plane, row, col = view.strides
        steps = {**self.batches[which], PLANES: self.cut.planes * plane}
        return Walk(self.loops, steps, view.offset, ((rows, row), (cols, col)))

    def _loads(self, writer: Writer, planes: Expr, rows: Piece, cols: Piece, image: Expr) -> list[Statement]:
        """The image rows of the present tile with their padding."""
        cut, view, pool = self.cut, self.views[0], self.pool
        *_, plane, row, _ = view.strides
        home, walk = writer.home(view.tensor), self._walk(0, rows.first, cols.first)
        first = image + cut.guard
        made: list[Statement] = []
        if cut.guard:
            before = rows.before * cut.pitch + cols.before
            fill = (_known(before), pool.fill)
            made.append(writer.load_c(view, walk, 1, 0, 1, image, cut.pitch, None, fill))
            first = first + before
        together = cut.all_rows and cut.depth == pool.rows.size and plane == pool.rows.size * row
        held = planes * rows.held
        if cut.plain and home.dense and row == pool.cols.size and (together or cut.planes == 1):
            region = writer.region(view, walk, held, row, row)
            return [*made, writer.load_c(view, walk, 1, 0, held * row, first, cut.pitch, region=region)]
        fill = (_known(cut.pitch - cols.held), pool.fill)
        if together:
            return [*made, writer.load_c(view, walk, held, row, cols.held, first, cut.pitch, None, fill)]
        below = cut.depth - rows.held
        if not cut.all_rows:
            below = below - rows.before
        if cut.planes > 1:
            walk = walk.moved({CHANNEL: plane}, [Loop(CHANNEL, cut.planes)])
            first = first + linear(walk.loops, {CHANNEL: cut.plane})
        load = writer.load_c(
            view, walk, rows.held, row, cols.held, first, cut.pitch, None, fill, _known(below)
        )
        return (
            [*made, load] if cut.planes == 1 else [*made, For(CHANNEL, Const(0), planes, Const(1), (load,))]
        )

    def _factors(self, writer: Writer, rows: Piece, cols: Piece, target: Expr) -> Statement:
        """The factors of the present tile's outputs."""
        assert self.factors is not None
        view, width = whole(self.factors), self.factors.shape[-1]
        walk = Walk(self.loops, {}, 0, ((rows.start, width), (cols.start, 1)))
        return writer.load_c(view, walk, rows.outputs, width, self.cut.cols, target, 4 * self.cut.cols)

    def _store(self, writer: Writer, planes: Expr, rows: Piece, cols: Piece, tile: PoolTile) -> Statement:
        """The results: one run of bytes, or rows, or channels that start at words of the port."""
        cut, view, unit = self.cut, self.views[1], writer.config.store_bytes
        results = results_of(view, writer.home(view.tensor))
        walk = self._walk(1, rows.start, cols.start)
        outputs = self.pool.rows.outputs * self.pool.cols.outputs
        lines = planes * rows.outputs
        if cut.apart:
            return writer.store_out(view, walk, lines, results.line, cut.cols, tile.out, cut.apart)
        if cut.planes > 1 and results.plane != outputs:
            region = writer.whole(view.tensor)
            return writer.store_out(
                view, walk, planes, results.plane, outputs, tile.out, outputs, region=region
            )
        region = writer.region(view, walk, lines, cut.cols, cut.cols)
        return writer.store_out(view, walk, 1, 0, lines * cut.cols, tile.out, unit, region=region)


def results_of(view: View, home: Home) -> Results:
    """How a view [..., planes, rows, columns] of results lies in memory."""
    *_, plane, row, _ = view.strides
    return Results(row if view.shape[-2] > 1 else plane, plane, home.dense)


def _known(value: Expr) -> Expr | int:
    return value.value if isinstance(value, Const) else value


def oriented(operator: Pool) -> Pool:
    """The operator with rows and columns exchanged, where only pixels of a column follow each other."""
    (*_, rows, cols), (*_, row, col) = operator.x.shape, operator.x.strides
    if cols > 1 and (col == 1 or row != 1):
        return operator
    if rows == 1 or row != 1 or (operator.rows.outputs > 1 and operator.output.strides[-2] != 1):
        return operator
    return dataclasses.replace(
        operator,
        x=_exchanged(operator.x),
        output=_exchanged(operator.output),
        rows=operator.cols,
        cols=operator.rows,
        factors=tuple(zip(*operator.factors, strict=True)),
    )


def _exchanged(view: View) -> View:
    (*shape, a, b), (*strides, c, d) = view.shape, view.strides
    return dataclasses.replace(view, shape=(*shape, b, a), strides=(*strides, d, c))


@legalise.register
def _(operator: Pool, copies: Copies) -> None:
    x, output = operator.x, operator.output
    if way(operator) == "rows":
        flat, axes = joined(x), [a for a in (0, 1) if output.shape[a] > 1]
        loadable = flat is not None and rows_contiguous(flat)
        # Results of one pixel follow each other along the last axis of images and channels.
        storable = min(output.strides) >= 0 and (not axes or output.strides[axes[-1]] == 1)
    else:
        views = oriented(operator)
        loadable, storable = rows_contiguous(views.x), rows_contiguous(views.output)
    x = x if loadable else copies.copy(operator, x, "operand")
    copies.append(dataclasses.replace(operator, x=x), storable)


@lower.register
def _(operator: Pool, context: LoweringContext) -> LoweredOperator:
    if way(operator) == "rows":
        return _lower_rows(operator, context)
    return _lower_windows(operator, context)


def _lower_rows(operator: Pool, context: LoweringContext) -> LoweredRows:
    """Windows as large as the image: rows [images, channels, pixels], each with one result."""
    x, y = operator.x, operator.output
    flat = joined(x)
    if flat is None:
        raise InputError(f"{operator.name}: images must lie without gaps")
    # The result is repeated along the columns, so that both views have one shape.
    target = View(y.tensor, flat.shape, (*y.strides[:2], 0), y.offset)
    fill = 0 if operator.kind == "average" else LIMITS[operator.element][0]
    return lower_rows(
        operator,
        (flat, target),
        lambda tile, _: row_passes(operator, tile),
        context,
        narrow=True,
        fill=fill,
    )


def _lower_windows(operator: Pool, context: LoweringContext) -> LoweredPool:
    """Tiles and configurations of a pooling.

    Raises `InputError` for views whose rows are not contiguous, and where not even one output fits.
    """
    homes, config = context.homes, context.config
    pool = oriented(operator)
    views = _views(pool, homes)
    source, target = views
    planes = source.shape[-3]
    batches = tuple({f"batch{i}": s for i, s in enumerate(v.strides[:-3])} for v in views)
    loops = [Loop(f"batch{i}", n) for i, n in enumerate(source.shape[:-3])]
    results = results_of(target, homes[target.tensor])
    held = sum(round_up(4 * len(c.words), 128) + 128 for c in _configured(pool, None, 0, config))
    cut = cut_of(pool, planes, results, config, context.room - held, bool(loops))
    for name, total, part in (
        (PLANES, planes, cut.planes),
        (DOWN, pool.rows.outputs, cut.rows),
        (ACROSS, pool.cols.outputs, cut.cols),
    ):
        if part < total:
            loops.append(Loop(name, -(-total // part)))
    factors = None
    if varying(pool):
        words = factor_words(pool).reshape(pool.rows.outputs, pool.cols.outputs)
        factors = Tensor(f"{operator.name}, factors", words.shape, "int32", words)
    configured = _configured(pool, cut.cols, cut.apart, config)
    return LoweredPool(
        operator, pool, views, (batches[0], batches[1]), tuple(loops), planes, cut, factors, configured
    )


def _configured(pool: Pool, cols: int | None, apart: int, config: MachineConfig) -> tuple[Configured, ...]:
    """The configurations of a tile's launches; they depend on whether there are gaps between results."""
    tile = PoolTile(1, 1, 0, 1, 1, 0, 0, cols, 0, apart)
    return tuple(configure(p.kernel, config) for p in passes(pool, tile))


def _views(pool: Pool, homes: Mapping[str, Home]) -> tuple[View, View]:
    """Input and output as [..., planes, rows, columns]."""
    x, y = pool.x, pool.output
    for what, view in (("images", x), ("results", y)):
        home = homes[view.tensor]
        if view.shape[-1] > 1 and view.strides[-1] != 1:
            raise InputError(f"{pool.name}: rows of {what} must be contiguous, elements lie apart")
        if not (home.dense or row_compatible(view, home.row)):
            raise InputError(
                f"{pool.name}: {what} must consist of rows of {view.tensor!r}, which has padding"
            )
    # Both views have one shape there; what the last two axes are does not matter to it.
    source, target = merged_axes((x, View(y.tensor, x.shape, y.strides, y.offset)), homes, fixed=2)
    return source, dataclasses.replace(target, shape=(*target.shape[:-2], *y.shape[-2:]))
