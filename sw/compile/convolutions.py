"""Convolutions of a network: weights times patches of images, or times pixels as they lie.

Rows of a tile are output channels, columns pixels of one image: a band of whole rows of outputs, or part of
one row. Where rows of images have padding behind them in memory, they have it in the buffers of the grid too,
so that a channel of a tile is one row of a load or store; the loop of the epilogue skips it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import HALVES, INNER, Loop, Nest
from sw.compile.images import follows_of, joined, plain, spread
from sw.compile.launches import Area, Grid
from sw.compile.memory import Home
from sw.compile.operands import Segments, Source, Tiles, fetches, records, room
from sw.compile.product_emitter import Operands, ProductEmitter
from sw.compile.products import Shape, shape_of, tiles_of
from sw.compile.tile_launches import Launches
from sw.compile.tiled import Choices, tiled
from sw.compile.writer import Writer
from sw.convolution import Convolution
from sw.graph.network import ImageConvolution, Tensor, View
from sw.ir.expression import Expr
from sw.ir.program import Interval, Region, Statement
from sw.kernels.access import TileAccess
from sw.kernels.choose import Chosen, choose
from sw.kernels.configuration import Configured
from sw.layout import Placement, round_up
from sw.tiled.forms import part, size
from sw.tiling.blocking import Blocking, Extent

Homes = Mapping[str, Home]
Key = int | str


@dataclass(frozen=True)
class Setting:
    """A convolution, where its tensors lie, and how tiles find the operands of its epilogue.

    `views` are those of [channel of a group, pixel], by "c" and number of the operand.
    """

    operator: ImageConvolution
    problem: Convolution
    homes: Homes
    config: MachineConfig
    views: Mapping[Key, View]
    moves: Mapping[Key, Mapping[str, int]]
    sources: Mapping[int, Source]

    @property
    def direct(self) -> bool:
        """Whether pixels are loaded as they lie, as a matrix."""
        return plain(self.operator) and self.homes[self.operator.x.tensor].dense

    @property
    def size(self) -> int:
        """Bytes of an element of the result."""
        return self.homes[self.operator.output.tensor].itemsize

    @property
    def unit(self) -> int:
        """Elements of the output buffer of which rows there are a multiple."""
        return self.config.store_bytes // self.size if self.operator.epilogue else 1

    @property
    def images(self) -> dict[Key, Home]:
        """Homes of the result and of operands that are images as it is."""
        found: dict[Key, Home] = {"result": self.homes[self.operator.output.tensor]}
        for key, source in self.sources.items():
            if source.access.follows == "full":
                found[key] = self.homes[source.view.tensor]
        return found

    @property
    def gaps(self) -> bool:
        """Whether a band of several rows has gaps in any of them."""
        return self.problem.rows.outputs > 1 and any(self.gapped(home) for home in self.images.values())

    def gapped(self, home: Home) -> bool:
        """Whether there are gaps between the rows of an image."""
        return not home.dense and home.row % self.problem.n != 0


def setting_of(o: ImageConvolution, homes: Homes, config: MachineConfig) -> Setting:
    """What is known of a convolution before it is cut into tiles."""
    problem = Convolution(
        o.x.shape[0],
        o.x.shape[1],
        o.rows,
        o.cols,
        o.w.shape[0],
        homes[o.w.tensor].tensor.element,
        homes[o.x.tensor].tensor.element,
        o.zero_w,
        o.zero_x,
        o.groups,
    )
    flat = {"c": _joined(o, o.output)} | {
        i + 1: _joined(o, v) for i, v in enumerate(o.epilogue.operands if o.epilogue else ())
    }
    views: dict[Key, View] = {}
    # Records are of all groups.
    moves: dict[Key, dict[str, int]] = {"rows": {"group": problem.m}}
    for key, v in flat.items():
        image, channel, pixel = v.strides
        views[key] = View(v.tensor, (problem.m, problem.n), (channel, pixel), v.offset)
        moves[key] = {"group": problem.m * channel, "image": image, "row": o.cols.outputs * pixel}
    sources = {}
    for i, v in enumerate(o.epilogue.operands if o.epilogue else ()):
        sources[i + 1] = _source(o, v, views[i + 1], homes[v.tensor])
    return Setting(o, problem, homes, config, views, moves, sources)


def _joined(o: ImageConvolution, view: View) -> View:
    found = joined(view)
    if found is None:
        raise InputError(f"{o.name}: rows of images in {view.tensor!r} must follow each other")
    return found


def _source(o: ImageConvolution, whole: View, view: View, home: Home) -> Source:
    """An operand of the epilogue; constants that follow channels are records."""
    how = follows_of(whole)
    if how is None:
        raise InputError(f"{o.name}: an operand in {view.tensor!r} must be contiguous, or follow channels")
    if how == "row" and home.tensor.constant is not None and not (spread(whole)[0]):
        channels = View(view.tensor, (whole.shape[1], 1), (whole.strides[1], 0), view.offset)
        return Source(channels, TileAccess("scratch", "int32", "row", record=True))
    return Source(view, TileAccess("scratch", home.tensor.element, how))


def nest(s: Setting, t: Blocking) -> Nest:
    """Loops, and bytes that operands move on."""
    p, o = s.problem, s.operator
    extent = extent_of(p)
    a = _place("A", o.w, s.homes, s.homes[o.w.tensor].offset(p.k), 1)
    image, row, channel = (s.homes[o.x.tensor].offset(step) for step in spread(o.x))
    if s.direct:
        b = _place("B", o.x, s.homes, channel or p.n, 1)
        across, depth = {"n": t.partition_n, "row": p.cols.outputs}, t.partition_k
    else:
        # What there is only one of may lie anywhere.
        line = row or channel or round_up(p.cols.size, s.config.load_b_bytes)
        b = _place("B", o.x, s.homes, line, (channel or line) // line)
        # Rows and columns of outputs move on by pixels, not bytes: the loader keeps count of them itself.
        across, depth = {"n": 1, "row": 1}, t.partition_k // p.patches.kernel
    steps = {
        "a": {"group": p.m * a.pitch, "m": t.partition_m * a.pitch, "k": t.partition_k},
        "b": {"group": p.patches.channels * channel, "image": image, "k": depth * channel, **across},
        # That of an epilogue's tile follows from views.
        "c": {"group": 1, "image": 1, "row": 1, "n": 1, "m": 1},
    }
    c = _place("C", o.output, s.homes, p.n * s.size, 1)
    pieces = t.out_cols < p.cols.outputs
    across_loops = [("image", p.images)]
    if pieces:
        across_loops += [("row", p.rows.outputs), ("n", -(-p.cols.outputs // t.out_cols))]
        extent = dataclasses.replace(extent, n=p.cols.outputs)
    else:
        across_loops += [("n", -(-p.n // t.partition_n))]
    down = [("m", -(-p.m // t.partition_m))]
    counts = [("group", p.groups), *(down + across_loops if t.m_outermost else across_loops + down)]
    counts += [("k", -(-p.k // t.partition_k))]
    loops = tuple(Loop(name, number) for name, number in counts if number > 1)
    return Nest(s.config, p, extent, t, loops, steps, {"a": a, "b": b, "c": c})


def extent_of(p: Convolution) -> Extent:
    """What is tiled: images as bands of rows, even where patches are single pixels."""
    return Extent(p.m, p.n, p.k, batch=p.groups * p.images, images=p.images, patches=p.patches)


def _place(name: str, view: View, homes: Homes, line: int, lines: int) -> Placement:
    """A view as the emitter knows operands: so many lines in a matrix."""
    home = homes[view.tensor]
    address = home.address + home.offset(view.offset)
    return Placement(name, address, (1, lines, view.shape[-1]), np.dtype(home.tensor.element), line)


@dataclass(frozen=True)
class ConvolutionPart:
    """A convolution in tiles."""

    operator: ImageConvolution
    setting: Setting
    nest: Nest
    shape: Shape
    tiles: Tiles
    chosen: Chosen | None
    records: Mapping[str, Tensor]

    @property
    def configured(self) -> tuple[Configured, ...]:
        """That of the epilogue."""
        return (self.chosen.configured,) if self.chosen else ()

    @property
    def extent(self) -> Extent:
        """What was tiled."""
        return extent_of(self.setting.problem)

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """Records of constants."""
        return tuple(self.records.values())

    def emit(self, writer: Writer, grid: Grid, scratch: Area, out: Area) -> list[Statement]:
        """Loads, products, launches and stores of all tiles."""
        launches, s = None, self.setting
        if self.chosen is not None:
            found = fetches(s.sources, writer.memory.homes, self.records, self.tiles, scratch)
            base = out.take(HALVES * self.tiles.rows * self.tiles.pitch("result") * s.size)
            launches = Launches(writer, grid, self.chosen, found, base)
        return ConvolutionEmitter(s, self.nest, writer, self.shape, self.tiles, launches).body()


def convolution_part(
    operator: ImageConvolution,
    homes: Homes,
    config: MachineConfig,
    room_bytes: int,
    allowed: Choices = Choices(),  # noqa: B008
) -> ConvolutionPart:
    """Tiles of a convolution, and the loop of its epilogue.

    Raises `InputError` for views that no load or store can follow, and where no tile fits.
    """
    s = setting_of(operator, homes, config)
    if not s.gaps:
        return _part(s, room_bytes, segmented=False, allowed=allowed)
    try:
        return _part(s, room_bytes, segmented=True, allowed=allowed)
    except InputError:
        # Tiles inside of one row of outputs have no gaps.
        return _part(s, room_bytes, segmented=False, allowed=allowed)


def _part(s: Setting, room_bytes: int, segmented: bool, allowed: Choices) -> ConvolutionPart:
    """The convolution in tiles that are bands with gaps in their rows, or in tiles without gaps."""
    across = s.problem.cols.outputs
    chosen = _chosen(s, segmented) if s.operator.epilogue is not None else None

    def cut(made: Nest, shape: Shape) -> Tiles:
        return _segmented(s, made, shape) if segmented else tiles_of(made, shape)

    def suits(made: Nest, shape: Shape) -> bool:
        if segmented and shape.columns % across:
            return False
        if s.gaps and not segmented and shape.columns > across:
            return False
        tiles = cut(made, shape)
        held = HALVES * shape.rows * tiles.pitch("result") * s.size
        return chosen is None or (
            held <= s.config.out_bytes and room(s.sources, s.homes, tiles) <= room_bytes
        )

    def nested(t: Blocking) -> tuple[Nest, Shape]:
        made = nest(s, t)
        return made, shape_of(made, 1 if segmented else s.unit)

    per_element = chosen.cycles_per_element if chosen else None
    name = s.operator.name
    made, shape = tiled(s.operator, extent_of(s.problem), s.config, nested, suits, per_element, allowed)
    tiles = cut(made, shape)
    own = records(name, chosen.elementwise, s.sources, s.homes, tiles) if chosen else {}
    return ConvolutionPart(s.operator, s, made, shape, tiles, chosen, own)


def _chosen(s: Setting, segmented: bool) -> Chosen:
    """The loop of the epilogue."""
    assert s.operator.epilogue is not None
    operands: dict[Key, TileAccess] = {0: TileAccess("acc", "int32")}
    operands |= {k: s.sources[k].access for k in sorted(s.sources)}
    operands["result"] = TileAccess("out", s.homes[s.operator.output.tensor].tensor.element)
    every = math.lcm(s.unit, s.config.cols)
    if segmented:
        every = s.problem.cols.outputs
        for key, access in operands.items():
            gap = key in s.images and s.gapped(s.images[key])
            operands[key] = dataclasses.replace(access, segment_gap=gap, row_gap=access.follows == "full")
    result = operands.pop("result")
    value = s.operator.epilogue.value
    return choose(value, [*operands.values()], result, s.config, multiple=every, name="epilogue")


def _segmented(s: Setting, made: Nest, shape: Shape) -> Tiles:
    """Tiles that are bands of rows with gaps behind them."""
    length = s.problem.cols.outputs
    number = shape.columns // length
    apart: dict[Key, int] = {0: length}
    apart |= {k: h.pitch // h.itemsize if s.gapped(h) else length for k, h in s.images.items()}
    pitches = {k: number * step for k, step in apart.items()}
    pitches[0] = shape.width
    pitches["result"] = round_up(pitches["result"], s.unit)
    tiles = tiles_of(made, shape)
    segments = Segments(length, number, apart, pitches)
    return dataclasses.replace(tiles, width=max(pitches.values()), segments=segments)


class ConvolutionEmitter(ProductEmitter):
    """Emits a convolution as part of a model's program."""

    def __init__(
        self, s: Setting, plan: Nest, writer: Writer, shape: Shape, tiles: Tiles, launches: Launches | None
    ):
        views = {"a": s.operator.w, "b": s.operator.x, "c": s.views["c"]}
        super().__init__(plan, writer, views, s.moves, shape, launches)
        self.direct, self.tiles = s.direct, tiles

    def rows_of(self, x: str, loops: tuple[Loop, ...], outer: Expr, inner: Expr) -> Region:
        """Operands count as read whole: weights are constant, and pixels of many channels are no box."""
        return self.writer.whole(self.views[x].tensor)

    def pixels(self, first: Expr, channels: Expr, box: tuple[Interval, Interval]) -> Region:
        """All images, see `rows_of`."""
        return self.writer.whole(self.views["b"].tensor)

    def load_patches(self, loops: tuple[Loop, ...]) -> tuple[str, Operands, Region]:
        """A load of the patches of a tile of outputs, or of its pixels."""
        return self.load_rows("b", loops) if self.direct else super().load_patches(loops)

    def across(self, columns: Expr) -> Expr:
        """Columns, or rows of images where these have gaps behind them."""
        if self.tiles.segments is None:
            return columns
        p, t = self.plan.problem, self.t
        assert isinstance(p, Convolution)
        rows = size(self.loops, "n", p.rows.outputs, t.out_rows)
        if t.tile_n < t.partition_n:
            return part(self.stored, INNER, rows, self.tiles.segments.count)
        return rows
