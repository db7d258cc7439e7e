"""Pooling in tiles: image rows come into the scratchpad with their padding, outputs leave as runs of bytes.

Padding lies between rows, and between channels: what follows a row is to the right of it, and to the left of
the next one. Above the first row of a tile one load of one byte brings it, behind that byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from sw.compile.forms import HALVES, Loop, count, linear, size
from sw.compile.launches import LaunchWriter
from sw.compile.memory import Allocation
from sw.compile.writer import AddressMap, ChipSpace, Writer, loop
from sw.graph.network import Tensor, View
from sw.ir.expression import Const, Expr
from sw.ir.program import For, Statement
from sw.kernels.configuration import Configured, configure
from sw.layout import round_up
from sw.operators.copies import Copies, rows_contiguous
from sw.operators.elementwise.lower import merged_axes
from sw.operators.pools.operator import MaxPool, PoolTile
from sw.operators.pools.tiles import ACROSS, DOWN, PLANES, Cut, Piece, Results, cut_of, piece
from sw.operators.registry import LoweringContext, legalise, lower
from sw.operators.rows import launches, turned

#: Name of the loop over the loads of a tile.
CHANNEL = "channel"


@dataclass(frozen=True)
class LoweredPool:
    """Pooling of `planes` images of one channel, in tiles.

    `views` are input and output as [..., planes, rows, columns].
    """

    operator: MaxPool
    views: tuple[View, View]
    batches: tuple[Mapping[str, int], Mapping[str, int]]
    loops: tuple[Loop, ...]
    planes: int
    cut: Cut
    own: Configured

    @property
    def configured(self) -> tuple[Configured, ...]:
        """That of its loop."""
        return (self.own,)

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """It adds no constants."""
        return ()

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """The loads, the launches and the store of every tile."""
        cut, places, writer = self.cut, HALVES if self.loops else 1, launcher.writer
        turn: Expr = count(self.loops) % HALVES if self.loops else Const(0)

        rows = piece(self.operator.rows, cut.rows, self.loops, DOWN)
        cols = piece(self.operator.cols, cut.cols, self.loops, ACROSS)
        planes = size(self.loops, PLANES, self.planes, cut.planes)
        image = turned(scratch, turn, places, cut.image)
        tile = PoolTile(
            _known(planes),
            _known(rows.outputs),
            cut.cols,
            image + cut.guard,
            cut.pitch,
            cut.plane,
            turned(out, turn, places, cut.results),
            cut.apart,
        )
        body = self._loads(writer, planes, rows, cols, image)
        body += launches(launcher, (self.operator.launch(tile),), self.configured)
        body.append(self._store(writer, planes, rows, cols, tile))
        for level in reversed(self.loops):
            body = [loop(level, body)]
        return body

    def _walk(self, which: int, rows: Expr, cols: Expr) -> AddressMap:
        """Where a pixel, or an output, of the present tile's first channel lies."""
        view = self.views[which]
        *_, plane, row, col = view.strides
        steps = {**self.batches[which], PLANES: self.cut.planes * plane}
        return AddressMap(self.loops, steps, view.offset, ((rows, row), (cols, col)))

    def _loads(self, writer: Writer, planes: Expr, rows: Piece, cols: Piece, image: Expr) -> list[Statement]:
        """The image rows of the present tile with their padding."""
        cut, view, pool = self.cut, self.views[0], self.operator
        *_, plane, row, _ = view.strides
        walk = self._walk(0, rows.first, cols.first)
        first = image + cut.guard
        made: list[Statement] = []
        if cut.guard:
            before = rows.before * cut.pitch + cols.before
            fill = (_known(before), pool.fill)
            made.append(writer.load_scratch(view, walk, 1, 0, 1, image, cut.pitch, None, fill))
            first = first + before
        together = cut.all_rows and cut.depth == pool.rows.size and plane == pool.rows.size * row
        held = planes * rows.held
        if cut.plain and row == pool.cols.size and (together or cut.planes == 1):
            region = writer.region(view, walk, held, row, row)
            return [*made, writer.load_scratch(view, walk, 1, 0, held * row, first, cut.pitch, region=region)]
        fill = (_known(cut.pitch - cols.held), pool.fill)
        if together:
            return [
                *made,
                writer.load_scratch(view, walk, held, row, cols.held, first, cut.pitch, None, fill),
            ]
        below = cut.depth - rows.held
        if not cut.all_rows:
            below = below - rows.before
        if cut.planes > 1:
            walk = walk.moved({CHANNEL: plane}, [Loop(CHANNEL, cut.planes)])
            first = first + linear(walk.loops, {CHANNEL: cut.plane})
        load = writer.load_scratch(
            view, walk, rows.held, row, cols.held, first, cut.pitch, None, fill, _known(below)
        )
        return (
            [*made, load] if cut.planes == 1 else [*made, For(CHANNEL, Const(0), planes, Const(1), (load,))]
        )

    def _store(self, writer: Writer, planes: Expr, rows: Piece, cols: Piece, tile: PoolTile) -> Statement:
        """The results: one run of bytes, or rows, or channels that start at words of the port."""
        cut, view, unit = self.cut, self.views[1], writer.config.store_bytes
        results = results_of(view)
        walk = self._walk(1, rows.start, cols.start)
        outputs = self.operator.rows.outputs * self.operator.cols.outputs
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


def results_of(view: View) -> Results:
    """How a view [..., planes, rows, columns] of results lies in memory."""
    *_, plane, row, _ = view.strides
    return Results(row if view.shape[-2] > 1 else plane, plane)


def _known(value: Expr) -> Expr | int:
    return value.value if isinstance(value, Const) else value


@legalise.register
def _(operator: MaxPool, copies: Copies) -> None:
    x = operator.x if rows_contiguous(operator.x) else copies.copy(operator, operator.x, "operand")
    copies.append(dataclasses.replace(operator, x=x), rows_contiguous(operator.output))


@lower.register
def _(operator: MaxPool, context: LoweringContext) -> LoweredPool:
    """Tiles and configuration; raises `InputError` where not even one output fits."""
    homes, config = context.homes, context.config
    views = _views(operator, homes)
    source, target = views
    planes = source.shape[-3]
    batches = tuple({f"batch{i}": s for i, s in enumerate(v.strides[:-3])} for v in views)
    loops = [Loop(f"batch{i}", n) for i, n in enumerate(source.shape[:-3])]
    results = results_of(target)
    held = round_up(4 * len(configure(operator.kernel(False), config).words), 128) + 128
    cut = cut_of(operator, planes, results, config, context.room - held, bool(loops))
    for name, total, part in (
        (PLANES, planes, cut.planes),
        (DOWN, operator.rows.outputs, cut.rows),
        (ACROSS, operator.cols.outputs, cut.cols),
    ):
        if part < total:
            loops.append(Loop(name, -(-total // part)))
    own = configure(operator.kernel(cut.apart > cut.cols), config)
    return LoweredPool(operator, views, (batches[0], batches[1]), tuple(loops), planes, cut, own)


def _views(pool: MaxPool, homes: Mapping[str, Allocation]) -> tuple[View, View]:
    """Input and output as [..., planes, rows, columns]."""
    x, y = pool.x, pool.output
    # Both views have one shape there; what the last two axes are does not matter to it.
    source, target = merged_axes((x, View(y.tensor, x.shape, y.strides, y.offset)), homes, fixed=2)
    return source, dataclasses.replace(target, shape=(*target.shape[:-2], *y.shape[-2:]))
