"""Tiles of pooling: by channels, then rows, then columns of outputs; and the layout of pixels in a tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.forms import HALVES, Loop, index, larger, size, smaller
from sw.compile.writer import LONGEST
from sw.ir.expression import Const, Expr
from sw.layout import round_up
from sw.operators.pools import wide
from sw.operators.pools.operator import MaxPool
from sw.operators.tiles import ACROSS, PIECES, falling
from sw.patches import Axis

#: Fewest iterations of a tile.
LEAST = 1024


@dataclass(frozen=True)
class Piece:
    """An axis of the current tile: outputs from `start`, pixels from `first`, padding before them."""

    start: Expr
    outputs: Expr
    first: Expr
    held: Expr
    before: Expr


def piece(axis: Axis, tile: int, loops: Sequence[Loop], name: str) -> Piece:
    """The part of an axis that the current tile of `tile` outputs covers.

    All tiles of columns have the same size: the last one overlaps the one before.
    """
    variable = index(loops, name)
    outputs: Expr
    if variable is None:
        return Piece(Const(0), Const(axis.outputs), Const(0), Const(axis.size), Const(axis.before))
    if name == ACROSS:
        start, outputs = smaller(variable * tile, axis.outputs - tile), Const(tile)
    else:
        start, outputs = variable * tile, size(loops, name, axis.outputs, tile)
    place = start * axis.stride - axis.before
    first = larger(place, 0)
    end = smaller(place + (outputs - 1) * axis.stride + axis.reach, axis.size)
    return Piece(start, outputs, first, end - first, first - place)


@dataclass(frozen=True)
class Results:
    """Memory layout of results: elements from row to row (`line`) and from channel to channel."""

    line: int
    plane: int


@dataclass(frozen=True)
class Cut:
    """A tile of `planes` channels, `rows` and `cols` of outputs, and its layout in bytes.

    Image rows are `pitch` bytes apart in the scratchpad, channels `depth` rows. `guard` bytes come before the
    first window, then `before` bytes of padding that no row's load writes. `results` is the size of the
    results. `all_rows`: rows are not cut; `plain`: there is no padding, and columns are not cut. Rows of
    results are `apart` bytes apart in the output buffer; 0 means that a channel's results lie there as in
    memory. With several `lanes`, rows of pixels and of results are whole blocks.
    """

    planes: int
    rows: int
    cols: int
    pitch: int
    depth: int
    guard: int
    before: int
    results: int
    all_rows: bool
    plain: bool
    apart: int
    lanes: int

    @property
    def plane(self) -> int:
        """Distance between channels in bytes."""
        return self.depth * self.pitch

    @property
    def image(self) -> int:
        """Size of the pixels with their padding, in bytes."""
        return self.guard + self.before + self.planes * self.plane


def cut(pool: MaxPool, planes: int, rows: int, cols: int, target: Results, unit: int, lanes: int = 1) -> Cut:
    """Lays out a tile of these channels, rows and columns; `unit` is the port's word in bytes."""
    all_rows, all_cols = rows == pool.rows.outputs, cols == pool.cols.outputs
    pitch = _apart(pool.cols) if all_cols else pool.cols.span(cols)
    depth = _apart(pool.rows) if all_rows else pool.rows.span(rows)
    joined = (rows == 1 and planes == 1) or (all_cols and target.line == cols)
    apart = 0 if joined else round_up(cols, unit)
    if lanes > 1:
        row = wide.width(pool.cols, cols, lanes)
        pitch = max(row, round_up(pitch, pool.cols.stride * lanes))
        apart = round_up(row // pool.cols.stride, max(unit, lanes))
    return Cut(
        planes,
        rows,
        cols,
        pitch,
        depth,
        lanes * (pool.rows.before > 0 or pool.cols.before > 0),
        pool.cols.before + (pool.rows.before * pitch if all_rows else 0),
        planes * rows * (apart or cols),
        all_rows,
        all_cols and pitch == pool.cols.size and _apart(pool.rows) == pool.rows.size,
        apart,
        lanes,
    )


def _apart(axis: Axis) -> int:
    """Distance between lines: their pixels plus the padding shared with the next line."""
    after = axis.span(axis.outputs) - axis.before - axis.size
    return axis.size + max(axis.before, after, 0)


def cut_of(
    pool: MaxPool,
    planes: int,
    target: Results,
    config: MachineConfig,
    room: int,
    several: bool,
    lanes: int = 1,
) -> Cut:
    """The first tile that fits `room` bytes of the scratchpad; `several`: there is more than one tile anyway.

    Raises `InputError` if not even one output fits.
    """
    unit = config.store_bytes
    for sizes in _sizes(pool, planes):
        made = cut(pool, *sizes, target, unit, lanes)
        whole = sizes == (planes, pool.rows.outputs, pool.cols.outputs)
        places = 1 if whole and not several else HALVES
        if _suits(pool, made, target, unit) and _fits(made, config, room, places):
            return made
    least = cut(pool, 1, 1, 1, target, unit, lanes)
    raise InputError(
        f"{pool.name}: the {least.image} bytes of pixels of an output must fit {room} bytes of the "
        f"scratchpad twice, and {config.out_bytes} of the output buffer"
    )


def _sizes(pool: MaxPool, planes: int) -> Iterator[tuple[int, int, int]]:
    """Channels, rows and columns of tiles, from the preferred size to the smallest."""
    rows, cols = pool.rows.outputs, pool.cols.outputs
    number = min(planes, max(-(-LEAST // (rows * cols)), planes // PIECES))
    while number > 1:
        number = -(-planes // -(-planes // number))
        yield number, rows, cols
        number -= max(1, number // 8)
    yield from ((1, tile, cols) for tile in falling(rows, 16))
    yield from ((1, 1, columns) for columns in falling(cols, 16))


def _suits(pool: MaxPool, made: Cut, target: Results, unit: int) -> bool:
    """Whether every tile has pixels, sizes fit their fields, and results to store start at port words."""
    sizes = (made.results, made.before + made.pitch, made.planes * made.depth, 4 * made.cols)
    if max(sizes) > LONGEST or (made.plain and made.image > LONGEST):
        return False
    if not (_has_pixels(pool.rows, made.rows) and _has_pixels(pool.cols, made.cols)):
        return False
    if made.apart:
        return made.apart % unit == 0 and (made.planes == 1 or target.plane == made.rows * target.line)
    outputs = made.rows * made.cols
    return made.planes == 1 or target.plane == outputs or outputs % unit == 0


def _has_pixels(axis: Axis, tile: int) -> bool:
    """Whether every tile of an axis has pixels."""
    if tile == axis.outputs:
        return True
    last = (axis.outputs - 1) // tile * tile
    return axis.span(tile) > axis.before and last * axis.stride - axis.before < axis.size


def _fits(made: Cut, config: MachineConfig, room: int, places: int) -> bool:
    """Whether this many buffers for tiles fit in scratchpad and output buffer."""
    inside, results = round_up(made.image, 128), round_up(made.results, 128)
    return places * inside <= room and places * results <= config.out_bytes
