"""Elementwise operators: axes that lie alike are one, tiles that fit the buffers, one launch for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.forms import HALVES, Loop, count, size
from sw.compile.launches import Batches, LaunchWriter, TileLaunches
from sw.compile.memory import Allocation
from sw.compile.operands import Source, Tile, Tiles, fetches, longest, records, room, source
from sw.compile.writer import LONGEST, ChipSpace, loop, row_compatible
from sw.graph.network import Elementwise, Tensor, View
from sw.graph.views import descending
from sw.ir.program import Statement
from sw.kernels.access import TileAccess
from sw.kernels.choose import Chosen, choose
from sw.kernels.configuration import Configured
from sw.layout import round_up
from sw.operators.registry import LoweringContext, lower, takes_padding

#: Names of the loops over tiles.
DOWN, ACROSS = "rows", "columns"
#: Tiles that an operator is cut into, so that its steps overlap, and elements of one at least.
PIECES, LEAST = 6, 2048


def merged_axes(views: Sequence[View], homes: Mapping[str, Allocation], fixed: int = 0) -> tuple[View, ...]:
    """Views of one shape with as few axes as possible, but at least two: rows and columns.

    Axes of one element go, neighbours that lie alike in every view become one; the last `fixed` axes stay.
    """
    shape = views[0].shape
    keep = [axis for axis, n in enumerate(shape) if n > 1 or axis >= len(shape) - fixed]
    kept = [
        dataclasses.replace(v, shape=tuple(shape[a] for a in keep), strides=tuple(v.strides[a] for a in keep))
        for v in views
    ]
    axis = len(keep) - 2 - fixed
    while axis >= 0:
        if all(_joins(v, axis, homes[v.tensor]) for v in kept):
            kept = [_joined(v, axis) for v in kept]
        axis -= 1
    if not fixed and any(_apart(v, homes[v.tensor]) for v in kept):
        kept = [dataclasses.replace(v, shape=(*v.shape, 1), strides=(*v.strides, 1)) for v in kept]
    while len(kept[0].shape) < max(2, fixed + 1):
        kept = [dataclasses.replace(v, shape=(1, *v.shape), strides=(0, *v.strides)) for v in kept]
    return tuple(kept)


def _apart(view: View, home: Allocation) -> bool:
    """Whether neighbours of the last axis lie in different rows of a tensor with padding."""
    if not view.shape or view.shape[-1] == 1 or home.dense:
        return False
    return view.strides[-1] != 0 and view.strides[-1] % home.row == 0


def ordered(views: Sequence[View]) -> tuple[View, ...]:
    """Views with their axes in the order in which the first one's elements lie in memory.

    Its strides become positive, and its last axis contiguous, if need be an axis of one element.
    """
    first = views[0]
    axes = [a for a in descending(first) if first.shape[a] > 1]
    turned = [tuple(v.shape[a] - 1 if first.strides[a] < 0 else 0 for a in axes) for v in views]
    signs = [-1 if first.strides[a] < 0 else 1 for a in axes]
    made = [
        View(
            v.tensor,
            tuple(v.shape[a] for a in axes),
            tuple(s * v.strides[a] for a, s in zip(axes, signs, strict=True)),
            v.offset + sum(n * v.strides[a] for a, n in zip(axes, skipped, strict=True)),
        )
        for v, skipped in zip(views, turned, strict=True)
    ]
    if axes and made[0].strides[-1] != 1:
        made = [dataclasses.replace(v, shape=(*v.shape, 1), strides=(*v.strides, 1)) for v in made]
    return tuple(made)


def _joins(view: View, axis: int, home: Allocation) -> bool:
    inner, outer = view.strides[axis + 1], view.strides[axis]
    if outer != view.shape[axis + 1] * inner:
        return False
    # Elements of a tensor with padding lie alike inside of a row only.
    return home.dense or inner == 0 or inner % home.row == 0


def _joined(view: View, axis: int) -> View:
    shape, strides = list(view.shape), list(view.strides)
    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    del strides[axis]
    return dataclasses.replace(view, shape=tuple(shape), strides=tuple(strides))


@dataclass(frozen=True)
class LoweredElementwise:
    """An elementwise operator in tiles of `output`; `batches` are what views move on with the outer axes."""

    operator: Elementwise
    output: View
    sources: Mapping[int, Source]
    chosen: Chosen
    tiles: Tiles
    batches: Batches
    records: Mapping[str, Tensor]

    @property
    def configured(self) -> tuple[Configured, ...]:
        """That of its loop."""
        return (self.chosen.configured,)

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """Records of constants."""
        return tuple(self.records.values())

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """Loops around the loads, the launch and the store of a tile."""
        t, writer = self.tiles, launcher.writer
        found = fetches(self.sources, self.records, t, scratch)
        base = out.take(HALVES * t.rows * t.width * writer.home(self.output.tensor).itemsize)
        launches = TileLaunches(launcher, self.chosen, found, base)
        rows, columns = (
            size(t.loops, DOWN, t.whole_rows, t.rows),
            size(t.loops, ACROSS, t.whole_columns, t.columns),
        )
        here = Tile(t, rows, columns, count(t.loops) % HALVES)
        body = launches.statements(here, self.batches, self.output)
        for level in reversed(t.loops):
            body = [loop(level, body)]
        return body


@lower.register
def _(operator: Elementwise, context: LoweringContext) -> LoweredElementwise:
    """Tiles and loop; raises `InputError` where not even a row of a block fits."""
    homes, config = context.homes, context.config
    views = ordered((operator.output, *operator.operands))
    output, *operands = merged_axes(views, homes, fixed=int(views[0].shape[-1:] == (1,)))
    *outer, rows, columns = output.shape
    sources = {k: source(v, homes[v.tensor], any(v.strides[:-2])) for k, v in enumerate(operands)}
    size_out = homes[output.tensor].itemsize
    unit = max(16, config.store_bytes // size_out)
    result = TileAccess("out", homes[output.tensor].tensor.element)
    width, tile_columns, tile_rows = _tile(rows, columns, unit, sources, config, context.room, size_out)
    accesses = [sources[k].access for k in sorted(sources)]
    chosen = choose(operator.value, accesses, result, config, multiple=unit, name="elementwise")
    loops = [Loop(f"batch{i}", n) for i, n in enumerate(outer)]
    keys: list[int | str] = ["c", *sources]
    batches = {
        key: {f"batch{i}": s for i, s in enumerate(view.strides[:-2])}
        for key, view in zip(keys, (output, *operands), strict=True)
    }
    for name, whole, tile in ((DOWN, rows, tile_rows), (ACROSS, columns, tile_columns)):
        if whole > tile:
            loops.append(Loop(name, -(-whole // tile)))
    tiles = Tiles(tuple(loops), tile_rows, tile_columns, width, rows, columns, {DOWN: 1}, {ACROSS: 1})
    own = records(operator.name, chosen.elementwise, sources, tiles)
    return LoweredElementwise(operator, output, sources, chosen, tiles, batches, own)


@takes_padding.register
def _(operator: Elementwise, view: View, row: int) -> bool:
    return (row > 1 or view.shape[-1] == 1) and row_compatible(view, row)


def _tile(
    rows: int,
    columns: int,
    unit: int,
    sources: Mapping[int, Source],
    config: MachineConfig,
    room_bytes: int,
    size_out: int,
) -> tuple[int, int, int]:
    """Width, columns and rows of a tile: large for its overhead, small enough to overlap and to fit."""
    wanted = max(LEAST, rows * columns // PIECES)

    def holds(tile_rows: int, width: int) -> bool:
        tiles = Tiles((), tile_rows, width, width, rows, columns, {}, {})
        counted = max(tile_rows, width * size_out, longest(sources, tiles)) <= LONGEST
        inside = room(sources, tiles) <= room_bytes
        return counted and inside and HALVES * tile_rows * width * size_out <= config.out_bytes

    parts = 1
    while True:
        tile_columns = -(-columns // parts)
        tile_columns = columns if parts == 1 else round_up(tile_columns, unit)
        width = round_up(tile_columns, unit)
        good = holds(1, width)
        if good and (rows > 1 or width <= max(wanted, unit)):
            break
        if width == unit:
            if good:
                break
            raise InputError(f"a tile of {unit} elements must fit {room_bytes} bytes of the scratchpad")
        parts += 1
    tile_rows = max(1, min(rows, wanted // width))
    while tile_rows > 1 and not holds(tile_rows, width):
        tile_rows -= max(1, tile_rows // 8)
    tile_rows = -(-rows // -(-rows // tile_rows))
    return width, tile_columns, tile_rows
