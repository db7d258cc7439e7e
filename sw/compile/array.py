"""Matrix products and convolutions as the array executes them: operands, loops around them, tiles.

Both multiply A [m, k] by B [k, n] inside loops over batches. B of a convolution are the patches of images, or
pixels as they lie in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from hw.config import BufferShape, MachineConfig
from sw.compile.forms import INNER, Loop
from sw.compile.memory import Allocation
from sw.compile.operands import Source
from sw.graph.network import ImageConvolution, MatrixProduct, View
from sw.tiling.blocking import Blocking, Extent, Resident, pitch

Homes = Mapping[str, Allocation]
Key = int | str
#: Loops that move on to other tiles, beside those over batches.
_MOVING = {"a": {"m", "k"}, "b": {"n", "row", "k"}, "c": {"m", "n", "row"}}
#: The axis along which the lanes of an operand lie.
AXIS = {"a": "m", "b": "n"}


@dataclass(frozen=True)
class ArrayProblem:
    """A product or a convolution, where its tensors lie, and how tiles find the operands of its epilogue.

    `views` are matrices, by "a", "b", "c" and number of the operand of the epilogue; "b" of patches are
    images [channel, row, column]. `moves` holds the elements that each of them moves on with loops over
    batches, of which `outer` are around all others; those over images and rows of outputs are inside.
    `zeros` are the zero points of A and B. `direct`: B is loaded as it lies, not as patches. `images` holds
    the elements from one row of outputs to the next, by operand or `"result"`, where any have gaps.
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

    @property
    def signed(self) -> tuple[bool, bool]:
        """Whether A and B are signed."""
        a, b = (self.homes[self.views[x].tensor].tensor.element == "int8" for x in "ab")
        return a, b

    @property
    def result(self) -> Allocation:
        """Where the result lies."""
        return self.homes[self.views["c"].tensor]

    @property
    def unit(self) -> int:
        """Elements of the output buffer of which the rows of a tile are a multiple."""
        return self.config.store_bytes // self.result.itemsize if self.operator.epilogue else 1

    def nest(self, t: Blocking) -> Nest:
        """The loops of a blocking."""
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
    """The loops around the tiles of a product; of columns in `extent` those that the loop n cuts."""

    problem: ArrayProblem
    extent: Extent
    blocking: Blocking
    loops: tuple[Loop, ...]

    @property
    def config(self) -> MachineConfig:
        """The machine."""
        return self.problem.config

    @property
    def inner(self) -> tuple[Loop, ...]:
        """The loop over the inner tiles of a partition, if there are several."""
        return (Loop(INNER, self.blocking.parts),) if self.blocking.parts > 1 else ()

    def depth(self, tensor: str) -> int:
        """Inside how many loops a tile of the tensor is loaded (or stored)."""
        moving = _MOVING[tensor] | {name for name, step in self.problem.moves[tensor].items() if step}
        resident = {"a": self.blocking.resident_a, "b": self.blocking.resident_b}.get(tensor, Resident.TILE)
        if resident is not Resident.TILE:
            moving -= {"k"}
        if resident is Resident.WHOLE:
            moving -= {AXIS[tensor]}
        return max((i + 1 for i, loop in enumerate(self.loops) if loop.name in moving), default=0)

    def steps(self, tensor: str) -> dict[str, int]:
        """Elements that a tile moves on with every step of a loop; of patches without those along n."""
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
        """Size along m, n or k of what is loaded of a tensor at once, if it is not cut off by the edge."""
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
