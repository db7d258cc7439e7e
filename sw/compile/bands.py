"""Lowers convolutions with few output channels per group in bands of output rows (`sw.tiling.bands`).

The rows of a tile are the output rows of a band, channel by channel. In the buffers of the CGRA, each starts
at a word of the storer's port, so that it can be stored directly.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sw.compile.array import ArrayProblem, Key, Nest
from sw.compile.array_emitter import ArrayEmitter, Operands
from sw.compile.array_tiles import LAUNCH, Choices
from sw.compile.forms import HALVES, Loop, count, linear, size
from sw.compile.images import spread
from sw.compile.launches import LaunchWriter, TileLaunches
from sw.compile.operands import Segments, Source, Tile, Tiles, fetches, room
from sw.compile.writer import AddressMap, ChipSpace, loop
from sw.graph.network import ImageConvolution, Tensor, View, word
from sw.ir.expression import Const, Expr
from sw.ir.program import Instruction, Region, Statement
from sw.ir.roles import WarpRole
from sw.kernels.access import TileAccess
from sw.kernels.choose import Chosen, Demand, choose
from sw.kernels.configuration import Configured
from sw.layout import round_up
from sw.tiling.bands import FINALISTS, Bands, bands

#: Loops over a tile's groups, and over its channels.
_OWN, _CHANNEL = "own", "channel"
#: Multiples, besides the array's columns, to which the CGRA may round the elements of a row.
_MULTIPLES = (8, 4)
#: Such rounding must reduce the computed elements to this fraction, since smaller blocks cost more per
#: element.
_FEWER = 0.85


@dataclass(frozen=True)
class BandNest(Nest):
    """The loop nest around tiles of bands; the groups of a tile are inside."""

    bands: Bands = dataclasses.field(kw_only=True)
    #: The CGRA computes a multiple of this many elements per row.
    multiple: int = dataclasses.field(default=1, kw_only=True)

    @property
    def row_computed(self) -> int:
        """Elements that the CGRA computes per output row."""
        return round_up(self.columns, self.multiple)

    @property
    def result_pitch(self) -> int:
        """Elements from one output row to the next in the output buffer."""
        return round_up(self.row_computed, self.problem.unit)

    @property
    def lines(self) -> int:
        """Rows of a tile."""
        return self.bands.groups * self.bands.lines

    @property
    def row_words(self) -> int:
        """Words of the accumulator from row to row."""
        return -(-self.columns // self.config.cols)

    @functools.cached_property
    def tiles(self) -> Tiles:
        """The tiles of the result, each row one segment."""
        lines, width = self.lines, self.row_computed
        pitches: dict[Key, int] = {0: self.row_words * self.config.cols, "result": self.result_pitch}
        segments = Segments(width, width, 1, dict.fromkeys(pitches, width), pitches)
        whole = self.bands.whole * self.bands.lines
        stored = self.loops[: self.depth("c")]
        down = {"group": 1}
        return Tiles(stored, lines, self.columns, width, whole, self.columns, down, {}, segments)

    def pitch(self, tensor: str) -> int:
        """Columns between the blocks of a loaded tile of A or B."""
        return self.bands.pitches["ab".index(tensor)]


class BandEmitter(ArrayEmitter):
    """Emits a convolution in bands: products of a tile's groups, one launch, and stores."""

    nest: BandNest

    def load_patches(self, loops: tuple[Loop, ...]) -> tuple[str, Operands, Region]:
        """A load of the patches of all groups of a tile."""
        name, operands, source = super().load_patches(loops)
        b = self.nest.bands
        return name, operands | {"outer": b.groups * b.patches.channels}, source

    def multiply(self) -> list[Statement]:
        """The products of a tile's groups; the waits are those of the first, outside the loop."""
        rest = Loop(_OWN, self.nest.bands.groups - 1)
        return [self.product(()), *([loop(rest, [self.product((rest,))])] if rest.count else [])]

    def product(self, rest: tuple[Loop, ...]) -> Instruction:
        """The product of the tile's first group, or of another one in the loop over the `rest`."""
        b, loops = self.nest.bands, (*self.all, *rest)
        steps = {"a": b.lanes // self.nest.config.rows * self.nest.pitch("a"), "b": b.depth}
        first_a, first_b = (
            self.turn(x) * (self.nest.buffer(x).columns // HALVES)
            + linear(loops, {_OWN: step}, step * len(rest))
            for x, step in steps.items()
        )
        lines, columns, k = Const(b.lines), Const(self.nest.columns), Const(b.depth)
        words = b.lines * self.nest.row_words
        word, region = self.sums(loops, {_OWN: words}, lines, words * len(rest))
        reads = self.held("a", first_a, lines, k), self.held("b", first_b, columns, k)
        operands = self.factors(first_a, first_b, word, k, lines, columns)
        label = self.writer.label("G")
        return Instruction(label, "gemm", reads, (region,), WarpRole.GEMM, None, operands)

    def sums(
        self, loops: tuple[Loop, ...], steps: Mapping[str, int], lines: Expr | int, start: int = 0
    ) -> tuple[Expr, Region]:
        """First word of rows of the current tile in the accumulator, and their region."""
        word = self.turn("c") * (self.nest.config.derived.acc_words // HALVES) + linear(loops, steps, start)
        return word, self.writer.accumulator(word, lines * self.nest.row_words)

    def finish(self) -> list[Statement]:
        """A launch and stores, or stores of the sums."""
        nest, launches = self.nest, self.launches
        if launches is None:
            return self.stores(None)
        word, region = self.sums(self.stored, {}, nest.lines)
        tile = Tile(nest.tiles, Const(nest.lines), Const(1), count(self.stored) % HALVES)
        sums = word * nest.config.cols, region
        statements, place = launches.launch(tile, self.problem.moves, self.problem.result.itemsize, sums)
        return statements + self.stores(place)

    def stores(self, place: Expr | None) -> list[Statement]:
        """Stores output rows: all at once if they are equally far apart, otherwise channel by channel.

        `place` is their address in the output buffer; without it, they are sums.
        """
        nest, b, p, view = self.nest, self.nest.bands, self.problem, self.problem.views["c"]
        home, row, channel = p.result, view.strides[-2], p.moves["channel"][_CHANNEL]
        channels, lines = Loop(_CHANNEL, b.groups * b.out), b.tall
        if b.number == 1 and home.offset(channel) == lines * home.offset(row):
            channels, lines = Loop(_CHANNEL, 1), nest.lines
        loops = (*self.stored, channels)
        steps = {**p.moves["c"], "n": b.tall * row, _CHANNEL: channel}
        rows = size(self.loops, "n", b.patches.rows.outputs, lines) if b.number > 1 else Const(lines)
        walk = AddressMap(loops, steps, view.offset)
        if place is None:
            word, region = self.sums(loops, {_CHANNEL: b.tall * nest.row_words}, rows)
            stored = self.writer.store(
                "store", region, view, walk, rows, nest.columns, word, nest.row_words, row_step=row
            )
        else:
            pitch = nest.result_pitch * home.itemsize
            source = place + linear(loops, {_CHANNEL: b.tall * pitch})
            stored = self.writer.store_out(view, walk, rows, row, nest.columns, source, pitch)
        return [loop(channels, [stored])]


@dataclass(frozen=True)
class LoweredBands:
    """A convolution in bands; `weights` holds its kernels, `records` constants of its epilogue."""

    nest: BandNest
    chosen: Chosen | None
    weights: Tensor
    records: Mapping[str, Tensor]

    @property
    def operator(self) -> ImageConvolution:
        """The operator that it computes."""
        operator = self.nest.problem.operator
        assert isinstance(operator, ImageConvolution)
        return operator

    @property
    def configured(self) -> tuple[Configured, ...]:
        """The configuration of the epilogue."""
        return (self.chosen.configured,) if self.chosen else ()

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """Weights and records."""
        return (self.weights, *self.records.values())

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """Emits loads, products, launches and stores of all tiles."""
        launches, nest = None, self.nest
        if self.chosen is not None:
            found = fetches(nest.problem.sources, self.records, nest.tiles, scratch)
            base = out.take(_results(nest))
            launches = TileLaunches(launcher, self.chosen, found, base)
        return BandEmitter(nest, launcher.writer, launches).body()


def in_bands(p: ArrayProblem, room_bytes: int, allowed: Choices) -> tuple[float, LoweredBands] | None:
    """The band tiles with the lowest estimated time, and that time; None if there are none.

    Weights must be constants, and operands of the epilogue constants per channel or single elements.
    """
    o, patches = p.operator, p.extent.patches
    assert isinstance(o, ImageConvolution)
    sources = p.sources.values()
    given = all(
        s.access.record if s.access.follows == "row" else s.access.follows == "scalar" for s in sources
    )
    constant = p.homes[o.w.tensor].tensor.constant
    out = o.w.shape[0] // o.groups
    if p.direct or patches is None or constant is None or not given or 2 * out > p.config.rows:
        return None
    if o.output.shape[3] > 1 and o.output.strides[3] != 1:
        return None
    weights = o.w.of(constant)
    nests = [_nest(p, b) for b in bands(patches, out, o.groups, o.x.shape[0], p.config)]
    if not nests:
        return None
    multiple, chosen = 1, None
    if o.epilogue is not None:
        multiple, chosen = _loop(nests[0])
        nests = [dataclasses.replace(nest, multiple=multiple) for nest in nests]

    def suits(nest: BandNest) -> bool:
        """Whether double-buffered results and operands fit the buffers of the CGRA."""
        return _results(nest) <= p.config.out_bytes and room(p.sources, nest.tiles) <= room_bytes

    found = [nest for nest in nests if chosen is None or suits(nest)]
    if not found:
        return None
    bandwidth = allowed.bandwidth or {}
    timed = [(_time(nest, chosen, bandwidth, refine=False), nest) for nest in found]
    timed = sorted(timed, key=lambda item: item[0])[:FINALISTS]
    timed = [(_time(nest, chosen, bandwidth, refine=True), nest) for _, nest in timed]
    time, nest = min(timed, key=lambda item: item[0])
    own = _records(nest, chosen, p.sources) if chosen is not None else {}
    return time, LoweredBands(nest, chosen, _weights(nest, weights), own)


def _time(nest: BandNest, chosen: Chosen | None, bandwidth: Mapping[str, int], *, refine: bool) -> float:
    """Estimated cycles: those of the slower of array and CGRA, plus what is not hidden of the other."""
    b = nest.bands
    array = b.choice(nest.problem.result.itemsize, bandwidth, refine=refine).score
    if chosen is None:
        return array
    grid = b.tiles * (nest.lines * nest.row_computed * chosen.cycles_per_element + LAUNCH)
    return max(array, grid) + min(array, grid) / b.tiles


def _nest(p: ArrayProblem, b: Bands) -> BandNest:
    """The loop nest around tiles of these bands, and the allocation of their tensors."""
    o = p.operator
    assert isinstance(o, ImageConvolution)
    image, row, channel = spread(o.output)
    views: dict[Key, View] = {
        "a": View(f"{o.name}, bands", (b.groups * b.lanes, b.depth), (1, b.whole * b.lanes)),
        "b": p.views["b"],
        "c": View(o.output.tensor, (b.groups * b.lines, o.cols.outputs), (row, 1), o.output.offset),
    }
    views |= {k: v for k, v in p.views.items() if isinstance(k, int)}
    moves: dict[Key, Mapping[str, int]] = {
        "a": {"group": b.groups * b.lanes},
        "b": {name: step * (b.groups if name == "group" else 1) for name, step in p.moves["b"].items()},
        "c": {"group": b.groups * b.out * channel, "image": image},
        "channel": {_CHANNEL: channel},
    }
    moves |= {k: {"image": own["image"]} for k, own in p.moves.items() if isinstance(k, int)}
    outer = (Loop("group", b.whole // b.groups),)
    made = dataclasses.replace(
        p, extent=b.extent, views=views, moves=moves, outer=outer, images={}, segmented=False
    )
    nest = made.nest(b.blocking)
    return BandNest(nest.problem, nest.extent, nest.blocking, nest.loops, bands=b)


def _results(nest: BandNest) -> int:
    """Bytes of the output buffer for two tiles."""
    return HALVES * nest.lines * nest.result_pitch * nest.problem.result.itemsize


def _loop(nest: BandNest) -> tuple[int, Chosen]:
    """The loop of the epilogue, and the number that its computed elements per row are a multiple of."""
    cols = nest.config.cols
    every = {round_up(nest.columns, n): n for n in _MULTIPLES if n < cols}
    tried = [n for width, n in every.items() if width < _FEWER * round_up(nest.columns, cols)]
    made = [dataclasses.replace(nest, multiple=n) for n in (cols, *tried)]
    loops = [(own.row_computed, own.multiple, _chosen(own)) for own in made]
    _, multiple, chosen = min(loops, key=lambda item: item[0] * item[2].cycles_per_element)
    return multiple, chosen


def _chosen(nest: BandNest) -> Chosen:
    """The loop of the epilogue; it does not depend on the number of rows in a band."""
    p, width, pitches = nest.problem, nest.row_computed, nest.tiles.pitch
    assert p.operator.epilogue is not None
    sums = TileAccess("acc", "int32", row_gap=pitches(0) != width)
    operands = [sums, *(p.sources[k].access for k in sorted(p.sources))]
    result = TileAccess("out", word(p.result.tensor.element), row_gap=pitches("result") != width)
    value = p.operator.epilogue.value
    demand = Demand(p.operator.output.elements)
    return choose(value, operands, result, p.config, multiple=width, demand=demand, name="epilogue")


def _records(nest: BandNest, chosen: Chosen, sources: Mapping[int, Source]) -> dict[str, Tensor]:
    """Records of constants per channel, for every row of a band."""
    lines = {k: np.repeat(s.line, nest.bands.tall) for k, s in sources.items() if s.access.record}
    if not lines:
        return {}
    words = chosen.elementwise.records("row", lines)[None]
    return {"rows": Tensor(f"{nest.problem.operator.name}, records of rows", words.shape, "int32", words)}


def _weights(nest: BandNest, kernels: np.ndarray) -> Tensor:
    """The kernels, each shifted to its row of a band, by depth and row of the tiles of all groups."""
    b, o = nest.bands, nest.problem.operator
    axis, rows = b.rows, b.patches.rows
    assert isinstance(o, ImageConvolution)
    shape = (b.whole, b.lanes, b.patches.channels, axis.kernel, b.patches.cols.kernel)
    made = np.full(shape, o.zero_w, kernels.dtype)
    for channel, line, i in itertools.product(range(b.out), range(b.tall), range(rows.kernel)):
        place = (line * rows.stride + i * rows.dilation) // axis.dilation
        made[:, channel * b.tall + line, :, place] = kernels[channel :: b.out, :, i]
    flat = np.ascontiguousarray(made.reshape(b.whole * b.lanes, b.depth).T)
    return Tensor(f"{o.name}, bands", flat.shape, str(flat.dtype), flat)
