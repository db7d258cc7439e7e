"""Lowers elementwise operators: merges axes, chooses tiles that fit the buffers, one launch per tile."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric.bitstream import SCALARS
from sw.compile.forms import HALVES, size
from sw.compile.launches import Batches, LaunchWriter, TileLaunches
from sw.compile.memory import Allocation
from sw.compile.operands import Source, Tile, Tiles, fetches, longest, records, room, source
from sw.compile.writer import LONGEST, ChipSpace, row_compatible
from sw.graph.network import Elementwise, View, word
from sw.ir.program import Statement
from sw.kernels.access import TileAccess
from sw.kernels.choose import Demand, choose
from sw.layout import round_up
from sw.operators.registry import LoweringContext, lower, takes_padding
from sw.operators.tiles import (
    ACROSS,
    DOWN,
    PIECES,
    batch_steps,
    falling,
    merged_axes,
    nest,
    nested,
    ordered,
    packed,
    resized,
    turn,
)

#: Fewest elements of a tile.
LEAST = 2048
#: The result's view, its tiles, and the operands by number.
Cut = tuple[View, Tiles, dict[int, Source]]


class LoweredElementwise:
    """An elementwise operator in tiles of its output.

    Raises `InputError` if not even one row of a block fits.
    """

    def __init__(self, operator: Elementwise, context: LoweringContext) -> None:
        homes, config = context.homes, context.config
        views = ordered((operator.output, *operator.operands))
        unit = max(16, config.store_bytes // homes[views[0].tensor].itemsize)
        cut = _cut_packed(views, context, unit) or _cut_larger(views, context, unit)
        if cut is None:
            merged = merged_axes(views, homes, fixed=int(views[0].shape[-1:] == (1,)))
            cut = _cut(merged, context, unit)
        self.operator = operator
        self.output, self.tiles, self.sources = output, _, _ = cut
        result = TileAccess("out", word(homes[output.tensor].tensor.element))
        accesses = [s.access for s in self.sources.values()]
        # A single element does not need a loop that computes several.
        multiple = unit if output.elements > 1 else 1
        demand = Demand(output.elements)
        self.chosen = choose(operator.value, accesses, result, config, multiple=multiple, demand=demand)
        self.configured = (self.chosen.configured,)
        self.records = records(operator.name, self.chosen.elementwise, self.sources, self.tiles)
        self.blobs = tuple(self.records.values())
        moving: dict[int | str, View] = {"c": output} | {k: s.view for k, s in self.sources.items()}
        #: Strides of the views in the outer loops, in elements.
        self.batches: Batches = {k: batch_steps(v, 2) for k, v in moving.items()}

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """Loops around the loads, the launch and the store of a tile."""
        t, writer = self.tiles, launcher.writer
        found = fetches(self.sources, self.records, t, scratch)
        base = out.take(HALVES * t.rows * t.width * writer.home(self.output.tensor).itemsize)
        launches = TileLaunches(launcher, self.chosen, found, base)
        rows = size(t.loops, DOWN, t.whole_rows, t.rows)
        columns = size(t.loops, ACROSS, t.whole_columns, t.columns)
        here = Tile(t, rows, columns, turn(t.loops))
        return nested(t.loops, launches.statements(here, self.batches, self.output))


lower.register(Elementwise, LoweredElementwise)


@takes_padding.register
def _(operator: Elementwise, view: View, row: int) -> bool:
    return (row > 1 or view.shape[-1] == 1) and row_compatible(view, row)


def _cut_larger(views: Sequence[View], context: LoweringContext, unit: int) -> Cut | None:
    """The cut of an enlarged image; None for others."""
    larger = resized(views, context.homes)
    cut = _cut(larger[1], context, unit, larger[0]) if larger else None
    # Rows with repeated elements stay whole.
    return cut if cut and cut[1].columns == cut[1].whole_columns else None


def _cut_packed(views: Sequence[View], context: LoweringContext, unit: int) -> Cut | None:
    """The cut of one long row from operands with padding; None for others, and if no tile fits."""
    found = packed(views, context.homes)
    if found is None:
        return None
    try:
        output, tiles, sources = _cut(found[0], context, math.lcm(unit, *found[1].values()))
    except InputError:
        return None
    rows = {k: found[1].get(s.view.tensor, 0) for k, s in sources.items()}
    return output, tiles, {k: dataclasses.replace(s, packed=rows[k]) for k, s in sources.items()}


def _cut(views: Sequence[View], context: LoweringContext, unit: int, repeat: int = 1) -> Cut:
    """The result in tiles, and the operands; elements of views with shorter rows repeat."""
    output, *operands = views
    rows, columns = output.shape[-2:]
    sources = {k: _source(v, output, context.homes, repeat) for k, v in enumerate(operands)}
    size_out = context.homes[output.tensor].itemsize
    width, tile_columns, tile_rows = _tile(
        rows, columns, unit, sources, context.config, context.room, size_out
    )
    turned = [k for k, s in sources.items() if _turned(s)]
    # The scalars: bases of operands and result, the end of a row, and a gap for each column-wise operand.
    if turned and tile_rows > 1 and len(sources) + 2 + len(turned) <= SCALARS:
        tile_rows = _odd_words(tile_rows)
        for k in turned:
            access = dataclasses.replace(sources[k].access, row_gap=True, step=tile_rows)
            sources[k] = dataclasses.replace(sources[k], access=access)
    loops = nest(output, 2, ((DOWN, rows, tile_rows), (ACROSS, columns, tile_columns)))
    tiles = Tiles(loops, tile_rows, tile_columns, width, rows, columns, {DOWN: 1}, {ACROSS: 1})
    return output, tiles, sources


def _source(view: View, output: View, homes: Mapping[str, Allocation], repeat: int) -> Source:
    """An operand; if its rows are shorter than the result's, its elements repeat."""
    found = source(view, homes[view.tensor], any(view.strides[:-2]))
    if view.shape == output.shape:
        return found
    return dataclasses.replace(found, access=dataclasses.replace(found.access, repeat=repeat))


def _turned(s: Source) -> bool:
    """Whether an operand is contiguous along columns and not along rows."""
    row, column = s.view.strides[-2:]
    return s.access.follows == "full" and row == 1 and column != 1


def _odd_words(rows: int) -> int:
    """The largest number of rows, up to this one, that puts the bytes of columns in different banks."""
    return 4 * (rows // 4 - (rows // 4 + 1) % 2) if rows >= 4 else rows


def _tile(
    rows: int,
    columns: int,
    unit: int,
    sources: Mapping[int, Source],
    config: MachineConfig,
    room_bytes: int,
    size_out: int,
) -> tuple[int, int, int]:
    """Width, columns and rows of a tile: large to amortise overhead, small enough to overlap and to fit."""
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
        if holds(1, width) and (rows > 1 or width <= max(wanted, unit)):
            break
        if width == unit:
            raise InputError(f"a tile of {unit} elements must fit {room_bytes} bytes of the scratchpad")
        parts += 1
    most = max(1, min(rows, wanted // width))
    tile_rows = next((n for n in falling(most, 8) if holds(n, width)), 1)
    tile_rows = -(-rows // -(-rows // tile_rows))
    return width, tile_columns, tile_rows
