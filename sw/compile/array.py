"""Matrix products and convolutions as the array executes them: operands, loop nest, tiles.

Both multiply A [m, k] by B [k, n] inside loops over batches. For a convolution, B holds the patches of
images, or their pixels as stored.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from hw.config import BufferShape, MachineConfig
from sw.compile.forms import HALVES, INNER, Loop
from sw.compile.memory import Allocation
from sw.compile.operands import Segments, Source, Tiles
from sw.graph.network import ImageConvolution, MatrixProduct, View
from sw.layout import round_up
from sw.tiling.blocking import Blocking, Extent, Resident, pitch

Homes = Mapping[str, Allocation]
Key = int | str
#: Loops that advance each tensor's tile, besides the batch loops.
_MOVING = {"a": {"m", "k"}, "b": {"n", "row", "k"}, "c": {"m", "n", "row"}}
#: Computed elements of a segmented output row are a multiple of this, if there is a gap for the excess.
SEGMENT = 4
#: Tiles are rounded to at most this many output rows if that makes the epilogue's loop simpler.
UNIFORM = 4
#: The axis of an operand's lanes.
AXIS = {"a": "m", "b": "n"}


@dataclass(frozen=True)
class ArrayProblem:
    """A product or convolution: the layout of its tensors, and how tiles address the epilogue's operands.

    `views` are matrices, by "a", "b", "c" and the numbers of the epilogue's operands; "b" of patches is
    images [channel, row, column]. `moves` holds the strides, in elements, of each in the batch loops. The
    `outer` ones enclose all other loops; those over images and output rows are inside. `zeros` are the zero
    points of A and B. `direct`: B is loaded as it is, not as patches. `images` holds the elements from one
    output row to the next, by operand or `"result"`, if any have gaps; with `segmented`, tiles are bands of
    such rows.
    """

    operator: MatrixProduct | ImageConvolution
    config: MachineConfig
    homes: Homes
    extent: Extent
    views: Mapping[Key, View]
    moves: Mapping[Key, Mapping[str, int]]
    outer: tuple[Loop, ...]
    sources: Mapping[int, Source]
    zeros: tuple[int, int]
    direct: bool = True
    images: Mapping[Key, int] = dataclasses.field(default_factory=dict)
    segmented: bool = False

    @property
    def signed(self) -> tuple[bool, bool]:
        """Whether A and B are signed."""
        o = self.operator
        views = (o.a, o.b) if isinstance(o, MatrixProduct) else (o.w, o.x)
        a, b = (self.homes[view.tensor].tensor.element == "int8" for view in views)
        return a, b

    @property
    def result(self) -> Allocation:
        """The allocation of the result."""
        return self.homes[self.views["c"].tensor]

    @property
    def unit(self) -> int:
        """Every row in the output buffer has a multiple of this many elements."""
        return self.config.store_bytes // self.result.itemsize if self.operator.epilogue else 1

    @property
    def length(self) -> int:
        """Outputs per image row."""
        assert isinstance(self.operator, ImageConvolution)
        return self.operator.cols.outputs

    @property
    def across(self) -> int:
        """Outputs that the array computes per image row; more than the image has if rows are `widened`."""
        assert self.extent.patches is not None
        return self.extent.patches.cols.outputs

    @property
    def computed(self) -> int:
        """Elements of an output row that a segmented launch computes, including those in the result's gap."""
        whole = round_up(self.across, SEGMENT)
        columns = any(s.access.follows == "column" for s in self.sources.values())
        return self.across if columns or self.images["result"] < whole else whole

    @property
    def uniform(self) -> bool:
        """Whether a segmented tile must have enough output rows to fill whole rows of the accumulator.

        If so, every segment of the sums directly follows the one before.
        """
        assert self.extent.patches is not None
        least = self.config.cols // math.gcd(self.across, self.config.cols)
        few = least <= min(UNIFORM, self.extent.patches.rows.outputs)
        return few and self.computed == self.across

    def nest(self, t: Blocking) -> Nest:
        """The loop nest of a blocking."""
        e, p = self.extent, self.extent.patches
        along = [("image", e.images)]
        if p is not None and t.out_cols < p.cols.outputs:
            along.append(("row", p.rows.outputs))
            e = dataclasses.replace(e, n=p.cols.outputs)
        along.append(("n", -(-e.n // t.partition_n)))
        down = [("m", -(-e.m // t.partition_m))]
        inside = [*(down + along if t.m_outermost else along + down), ("k", -(-e.k // t.partition_k))]
        loops = (*self.outer, *(Loop(name, number) for name, number in inside))
        return Nest(self, e, t, tuple(loop for loop in loops if loop.count > 1))


@dataclass(frozen=True)
class Nest:
    """The loop nest around the tiles of a product; `extent` has the columns that the loop n cuts.

    Inner tiles follow each other in the accumulator. `width` elements of a row are computed; those beyond the
    tile are padding. With `tight`, the rows of a tile with fewer columns are closer together.
    """

    problem: ArrayProblem
    extent: Extent
    blocking: Blocking
    loops: tuple[Loop, ...]
    tight: bool = False

    @property
    def config(self) -> MachineConfig:
        """The machine."""
        return self.problem.config

    @property
    def inner(self) -> tuple[Loop, ...]:
        """The loop over the inner tiles of a partition, if there are several."""
        return (Loop(INNER, self.blocking.parts),) if self.blocking.parts > 1 else ()

    @property
    def rows(self) -> int:
        """Rows of an inner tile."""
        return min(self.blocking.tile_m, self.extent.m)

    @property
    def columns(self) -> int:
        """Columns of an inner tile."""
        return min(self.blocking.tile_n, self.extent.n)

    @property
    def width(self) -> int:
        """Elements computed per row of an inner tile."""
        p = self.problem
        if p.segmented:
            # All computed elements of the last segment must be readable.
            return round_up(self.columns + p.computed - p.across, self.config.cols)
        return round_up(self.columns, math.lcm(p.unit, self.config.cols))

    @property
    def row_words(self) -> int:
        """Words of the accumulator from row to row."""
        return self.width // self.config.cols

    @property
    def words(self) -> int:
        """Words of an inner tile."""
        return self.rows * self.row_words

    @property
    def computed(self) -> int:
        """Elements that a launch computes for an inner tile."""
        segments = self.tiles.segments
        return self.rows * (segments.width if segments else self.width)

    @property
    def fits(self) -> bool:
        """Whether the inner tiles fit the accumulator."""
        t = self.blocking
        rows, columns = min(t.partition_m, self.extent.m), min(t.partition_n, self.extent.n)
        if t.tile_n < t.partition_n and self.tight:
            words = rows * -(-columns // self.config.cols)
        elif t.tile_n < t.partition_n:
            words = -(-columns // t.tile_n) * self.words
        else:
            words = rows * self.row_words
        return words <= self.config.derived.acc_words // (1 if t.single_c else HALVES)

    @functools.cached_property
    def tiles(self) -> Tiles:
        """How the result is cut into inner tiles."""
        t, e, p = self.blocking, self.extent, self.problem
        loops = (*self.loops[: self.depth("c")], *self.inner)
        down, across = {"m": -(-t.partition_m // t.tile_m)}, {"n": -(-t.partition_n // t.tile_n)}
        if self.inner:
            (across if t.tile_n < t.partition_n else down)[INNER] = 1
        made = Tiles(loops, self.rows, self.columns, self.width, e.m, e.n, down, across)
        if not p.segmented:
            return made
        number = self.columns // p.across
        apart: dict[Key, int] = {0: p.across, **p.images}
        pitches = {key: number * step for key, step in apart.items()}
        pitches[0] = self.width
        pitches["result"] = round_up(pitches["result"], p.unit)
        segments = Segments(p.length, p.computed, number, apart, pitches)
        return dataclasses.replace(made, width=max(pitches.values()), segments=segments)

    def depth(self, tensor: str) -> int:
        """The loop depth at which a tile of the tensor is loaded or stored."""
        moving = _MOVING[tensor] | {name for name, step in self.problem.moves[tensor].items() if step}
        resident = {"a": self.blocking.resident_a, "b": self.blocking.resident_b}.get(tensor, Resident.TILE)
        if resident is not Resident.TILE:
            moving -= {"k"}
        if resident is Resident.WHOLE:
            moving -= {AXIS[tensor]}
        return max((i + 1 for i, loop in enumerate(self.loops) if loop.name in moving), default=0)

    def steps(self, tensor: str) -> dict[str, int]:
        """The stride of a tile, in elements, in each loop; for patches, without the loops along n."""
        t, (*_, row, column) = self.blocking, self.problem.views[tensor].strides
        own = {"a": {"m": t.partition_m * row, "k": t.partition_k * column}}
        own["c"] = {"m": t.partition_m * row, "n": t.partition_n * column}
        own["c"][INNER] = t.tile_n * column if t.tile_n < t.partition_n else t.tile_m * row
        if self.problem.direct:
            own["b"] = {"k": t.partition_k * row, "n": t.partition_n * column}
        elif tensor == "b":
            assert self.extent.patches is not None
            channel = self.problem.views["b"].strides[0]
            own["b"] = {"k": t.partition_k // self.extent.patches.kernel * channel}
        return {**self.problem.moves[tensor], **own[tensor]}

    def tile(self, tensor: str, axis: str) -> int:
        """Size along m, n or k of one load of a tensor, if the edge does not cut it off."""
        b, whole = self.blocking, getattr(self.extent, axis)
        resident = {"a": b.resident_a, "b": b.resident_b}.get(tensor, Resident.TILE)
        if resident is Resident.WHOLE or (resident is Resident.DEPTH and axis == "k"):
            return int(whole)
        return int(getattr(b, f"partition_{axis}"))

    def buffer(self, tensor: str) -> BufferShape:
        """The buffer of A or B."""
        return self.config.derived.buffer_a if tensor == "a" else self.config.derived.buffer_b

    def blocks(self, tensor: str) -> int:
        """Blocks of lanes of a loaded tile of A or B."""
        axis = AXIS[tensor]
        lanes: int = min(self.tile(tensor, axis), getattr(self.extent, axis))
        return -(-lanes // self.buffer(tensor).lanes)

    def pitch(self, tensor: str) -> int:
        """Columns between the blocks of a loaded tile of A or B."""
        shape = self.buffer(tensor)
        depth = min(self.tile(tensor, "k"), self.extent.k)
        if self.extent.patches is not None and tensor == "b":
            return pitch(shape, True, 2, depth)
        return pitch(shape, self.lanes_first(tensor), self.blocks(tensor), depth)

    def lanes_first(self, tensor: str) -> bool:
        """Whether the lanes of an operand, not its depth, are contiguous in memory."""
        return self.extent.transposed_a if tensor == "a" else not self.extent.transposed_b
