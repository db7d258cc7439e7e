"""Arranges a problem for its programs: tiles, loops in order, and where everything lies in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hw.config import MachineConfig
from sw.convolution import Convolution
from sw.layout import Placement
from sw.problem import Product
from sw.tiling.blocking import Blocking, Extent, Resident, pitch

#: Name of the loop over inner tiles.
INNER = "inner"
#: Places in each operand's buffer, and, where a partition does not fill it, in the accumulator.
HALVES = 2


@dataclass(frozen=True)
class Loop:
    """One level of the nest: its name, and how often it runs."""

    name: str
    count: int


@dataclass(frozen=True)
class Nest:
    """All that the four programs have in common.

    The columns of `extent` are those that the loop n cuts: one row of outputs, where tiles are parts of one.
    `steps` holds, per tensor, the bytes in memory that it moves on with every step of a loop.
    """

    config: MachineConfig
    problem: Product | Convolution
    extent: Extent
    blocking: Blocking
    loops: tuple[Loop, ...]
    steps: dict[str, dict[str, int]]
    places: dict[str, Placement]

    def depth(self, tensor: str) -> int:
        """Inside how many loops a tile of the tensor is loaded (or stored)."""
        names = [loop.name for loop in self.loops]
        moving = {name for name in names if self.steps[tensor].get(name)}
        resident = {"a": self.blocking.resident_a, "b": self.blocking.resident_b}.get(tensor, Resident.TILE)
        if resident is not Resident.TILE:
            moving.discard("k")
        if resident is Resident.WHOLE:
            moving -= {"m"} if tensor == "a" else {"n"}
        return max((i + 1 for i, name in enumerate(names) if name in moving), default=0)

    def tile(self, tensor: str, axis: str) -> int:
        """Size along m, n or k of what is loaded of a tensor at once, if it is not cut off by the edge."""
        b, whole = self.blocking, getattr(self.extent, axis)
        resident = {"a": b.resident_a, "b": b.resident_b}.get(tensor, Resident.TILE)
        if resident is Resident.WHOLE or (resident is Resident.DEPTH and axis == "k"):
            return int(whole)
        return int(getattr(b, f"partition_{axis}"))

    def pitch(self, tensor: str) -> int:
        """Columns between the blocks of a loaded tile of A or B."""
        d, axis = self.config.derived, "m" if tensor == "a" else "n"
        shape = d.buffer_a if tensor == "a" else d.buffer_b
        blocks = -(-min(self.tile(tensor, axis), getattr(self.extent, axis)) // shape.lanes)
        depth = min(self.tile(tensor, "k"), self.extent.k)
        if self.extent.patches is not None and tensor == "b":
            return pitch(shape, True, 2, depth)
        return pitch(shape, self.lanes_first(tensor), blocks, depth)

    def lanes_first(self, tensor: str) -> bool:
        """Whether the lanes of an operand, not its depth, are contiguous in memory."""
        return self.extent.transposed_a if tensor == "a" else not self.extent.transposed_b

    @property
    def c_pitch(self) -> int:
        """Accumulator words between the rows of a partition."""
        return -(-min(self.blocking.partition_n, self.extent.n) // self.config.cols)


def extent_of(problem: Product | Convolution) -> Extent:
    """What is tiled of a problem."""
    product = problem.product if isinstance(problem, Convolution) else problem
    if product is None:
        assert isinstance(problem, Convolution)
        p = problem
        return Extent(p.m, p.n, p.k, batch=p.groups * p.images, images=p.images, patches=p.patches)
    m, batch = product.m, product.batch
    if _folds(product):
        m, batch = m * math.prod(batch), ()
    return Extent(m, product.n, product.k, product.transposed_a, product.transposed_b, math.prod(batch))


def _folds(problem: Product) -> bool:
    """Whether all products share B: their rows follow each other in memory and make one tall product."""
    shared = math.prod(problem.batch_b) == 1
    return not problem.transposed_a and problem.batch_a == problem.batch and shared
