"""Max pooling in tiles: image rows are loaded with their padding, outputs are stored as runs of bytes.

Padding lies between rows and between channels: the bytes after a row are its right padding and the left
padding of the next row. The padding above a tile's first row comes from a load of one byte that is filled up.
"""

from __future__ import annotations

import dataclasses

from hw.errors import refusals_ignored
from sw.compile.forms import HALVES, Loop, linear, size
from sw.compile.launches import LaunchWriter
from sw.compile.writer import AddressMap, ChipSpace, Writer
from sw.graph.network import Tensor, View
from sw.ir.expression import Const, Expr
from sw.ir.program import For, Statement
from sw.kernels.configuration import Configured, configure
from sw.kernels.passes import known
from sw.layout import round_up
from sw.operators.pools import wide
from sw.operators.pools.operator import MaxPool, PoolTile
from sw.operators.pools.tiles import Cut, Piece, Results, cut_of, piece
from sw.operators.registry import LoweringContext, lower
from sw.operators.rows import launches
from sw.operators.tiles import ACROSS, DOWN, PLANES, batch_steps, merged_axes, nest, nested, place, turn

#: Name of the loop over the loads of a tile.
CHANNEL = "channel"
_Tiles = tuple[Cut, tuple[Configured, ...]]


class LoweredPool:
    """Pooling of `planes` images of one channel, in tiles.

    `views` are input and output as [..., planes, rows, columns]. Raises `InputError` if not even one output
    fits.
    """

    blobs: tuple[Tensor, ...] = ()

    def __init__(self, operator: MaxPool, context: LoweringContext) -> None:
        config, self.operator = context.config, operator
        x, y = operator.x, operator.output
        # Merging needs views of one shape; their last two axes do not matter to it.
        source, target = merged_axes(
            (x, View(y.tensor, x.shape, y.strides, y.offset)), context.homes, fixed=2
        )
        target = dataclasses.replace(target, shape=(*target.shape[:-2], *y.shape[-2:]))
        self.views, self.planes = (source, target), source.shape[-3]
        several = len(source.shape) > 3
        lanes = config.cgra.lanes if config.cgra is not None else 1
        made, cycles = self._tiles(context, 1, several)
        if wide.possible(operator.rows, operator.cols, lanes):
            # There may be no PE for a lane operation, no route to it, or no room for whole blocks.
            with refusals_ignored():
                other, fewer = self._tiles(context, lanes, several)
                made = other if fewer < cycles else made
        self.cut, self.configured = made
        rows, cols, cut = operator.rows.outputs, operator.cols.outputs, self.cut
        cuts = ((PLANES, self.planes, cut.planes), (DOWN, rows, cut.rows), (ACROSS, cols, cut.cols))
        self.loops = nest(source, 3, cuts)

    def _tiles(self, context: LoweringContext, lanes: int, several: bool) -> tuple[_Tiles, int]:
        """Tiles and configuration of a loop that uses this many lanes, and its cycles per row of outputs."""
        pool, config, cols = self.operator, context.config, self.operator.cols

        def configured(pitch: int, gap: bool) -> Configured:
            if lanes == 1:
                return configure(pool.kernel(gap), config)
            return configure(wide.windows(pool.rows, cols, pool.element, lanes, pitch), config)

        found = configured(wide.width(cols, 1, lanes), False)  # only its size matters so far
        room = context.room - round_up(4 * len(found.words), 128) - 128
        cut = cut_of(pool, self.planes, results_of(self.views[1]), config, room, several, lanes)
        found = configured(cut.pitch, cut.apart > cut.cols)
        steps = cut.cols if lanes == 1 else wide.blocks(cols, cut.cols, lanes)
        return (cut, (found,)), found.ii * steps * -(-cols.outputs // cut.cols)

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """Emits the loads, the launches and the store of every tile."""
        cut, places, writer = self.cut, HALVES if self.loops else 1, launcher.writer
        which = turn(self.loops, places)
        rows = piece(self.operator.rows, cut.rows, self.loops, DOWN)
        cols = piece(self.operator.cols, cut.cols, self.loops, ACROSS)
        planes = size(self.loops, PLANES, self.planes, cut.planes)
        image = place(scratch, which, places, cut.image)
        results = place(out, which, places, cut.results)
        first = image + cut.guard
        tile = PoolTile(
            planes, rows.outputs, cut.cols, first, cut.pitch, cut.plane, results, cut.apart, cut.lanes
        )
        body = self._loads(writer, planes, rows, cols, image)
        body += launches(launcher, (self.operator.launch(tile),), self.configured)
        body.append(self._store(writer, planes, rows, cols, tile))
        return nested(self.loops, body)

    def _walk(self, which: int, rows: Expr, cols: Expr) -> AddressMap:
        """Address of a pixel, or of an output, in the current tile's first channel."""
        view = self.views[which]
        *_, plane, row, col = view.strides
        steps = {**batch_steps(view, 3), PLANES: self.cut.planes * plane}
        return AddressMap(self.loops, steps, view.offset, ((rows, row), (cols, col)))

    def _loads(self, writer: Writer, planes: Expr, rows: Piece, cols: Piece, image: Expr) -> list[Statement]:
        """Loads the image rows of the current tile with their padding."""
        cut, view, pool = self.cut, self.views[0], self.operator
        *_, plane, row, _ = view.strides
        walk = self._walk(0, rows.first, cols.first)
        first = image + cut.guard
        made: list[Statement] = []
        if cut.guard:
            before = rows.before * cut.pitch + cols.before
            fill = (known(before), pool.fill)
            last = image + (cut.guard - 1)
            made.append(writer.load_scratch(view, walk, 1, 0, 1, last, cut.pitch, None, fill))
            first = first + before
        together = cut.all_rows and cut.depth == pool.rows.size and plane == pool.rows.size * row
        count = planes * rows.held
        if cut.plain and row == pool.cols.size and (together or cut.planes == 1):
            region = writer.region(view, walk, count, row, row)
            return [
                *made,
                writer.load_scratch(view, walk, 1, 0, count * row, first, cut.pitch, region=region),
            ]
        loops, below = [], known(cut.depth - rows.held - (0 if cut.all_rows else rows.before))
        if together:
            below = 0
        elif cut.planes > 1:
            count, loops = rows.held, [Loop(CHANNEL, cut.planes)]
            walk = walk.moved({CHANNEL: plane}, loops)
            first = first + linear(walk.loops, {CHANNEL: cut.plane})
        fill = (known(cut.pitch - cols.held), pool.fill)
        load = writer.load_scratch(view, walk, count, row, cols.held, first, cut.pitch, None, fill, below)
        return [*made, For(CHANNEL, Const(0), planes, Const(1), (load,)) if loops else load]

    def _store(self, writer: Writer, planes: Expr, rows: Piece, cols: Piece, tile: PoolTile) -> Statement:
        """Stores the results: as one run of bytes, as rows, or as channels that start at port words."""
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
    """Memory layout of results in a view [..., planes, rows, columns]."""
    *_, plane, row, _ = view.strides
    return Results(row if view.shape[-2] > 1 else plane, plane)


lower.register(MaxPool, LoweredPool)
