"""Elementwise operators: axes that lie alike are one, tiles that fit the buffers, one launch for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

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
    resized,
    turn,
)

#: Elements of a tile at least.
LEAST = 2048


class LoweredElementwise:
    """An elementwise operator in tiles of its output.

    Raises `InputError` where not even a row of a block fits.
    """

    def __init__(self, operator: Elementwise, context: LoweringContext) -> None:
        homes, config = context.homes, context.config
        views = ordered((operator.output, *operator.operands))
        size_out = homes[views[0].tensor].itemsize
        unit = max(16, config.store_bytes // size_out)
        merged = 1, merged_axes(views, homes, fixed=int(views[0].shape[-1:] == (1,)))
        for repeat, (output, *operands) in filter(None, (resized(views, homes), merged)):
            rows, columns = output.shape[-2:]
            sources = {k: _source(v, output, homes, repeat) for k, v in enumerate(operands)}
            tile = _tile(rows, columns, unit, sources, config, context.room, size_out)
            width, tile_columns, tile_rows = tile
            if tile_columns == columns:
                break  # Rows whose elements repeat are not cut.
        turned = [k for k, s in sources.items() if _turned(s)]
        # Bases of operands and result, what ends a row, and a gap for each that is turned.
        if len(sources) + 2 + len(turned) > SCALARS:
            turned = []
        if turned:
            tile_rows = _odd_words(tile_rows)
        for k in turned if tile_rows > 1 else ():
            access = dataclasses.replace(sources[k].access, row_gap=True, step=tile_rows)
            sources[k] = dataclasses.replace(sources[k], access=access)
        result = TileAccess("out", word(homes[output.tensor].tensor.element))
        accesses = [s.access for s in sources.values()]
        loops = nest(output, 2, ((DOWN, rows, tile_rows), (ACROSS, columns, tile_columns)))
        self.operator, self.output, self.sources = operator, output, sources
        self.tiles = Tiles(loops, tile_rows, tile_columns, width, rows, columns, {DOWN: 1}, {ACROSS: 1})
        # A single element takes no loop that makes many.
        multiple = unit if output.elements > 1 else 1
        demand = Demand(output.elements)
        self.chosen = choose(operator.value, accesses, result, config, multiple=multiple, demand=demand)
        self.configured = (self.chosen.configured,)
        self.records = records(operator.name, self.chosen.elementwise, sources, self.tiles)
        self.blobs = tuple(self.records.values())
        keys: list[int | str] = ["c", *sources]
        #: Elements that the views move on with the outer axes.
        self.batches: Batches = {k: batch_steps(v, 2) for k, v in zip(keys, (output, *operands), strict=True)}

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


def _source(view: View, output: View, homes: Mapping[str, Allocation], repeat: int) -> Source:
    """An operand; one with shorter rows than the result repeats its elements."""
    found = source(view, homes[view.tensor], any(view.strides[:-2]))
    if view.shape == output.shape:
        return found
    return dataclasses.replace(found, access=dataclasses.replace(found.access, repeat=repeat))


def _turned(s: Source) -> bool:
    """Whether elements of a column of an operand lie side by side, and those of a row do not."""
    row, column = s.view.strides[-2:]
    return s.access.follows == "full" and row == 1 and column != 1


def _odd_words(rows: int) -> int:
    """As many rows or fewer: bytes of columns that lie so far apart are in different banks."""
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
        if holds(1, width) and (rows > 1 or width <= max(wanted, unit)):
            break
        if width == unit:
            raise InputError(f"a tile of {unit} elements must fit {room_bytes} bytes of the scratchpad")
        parts += 1
    most = max(1, min(rows, wanted // width))
    tile_rows = next((n for n in falling(most, 8) if holds(n, width)), 1)
    tile_rows = -(-rows // -(-rows // tile_rows))
    return width, tile_columns, tile_rows
