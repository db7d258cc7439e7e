"""Arranges a problem for its programs: tiles, loops in order, and where everything lies in memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.convolution import Convolution
from sw.ir.roles import GEMM_WARPS
from sw.layout import MEMORY_BYTES, Placement, coalesce, place, place_convolution
from sw.problem import Product
from sw.tiling.blocking import Blocking, Extent, Resident, pitch
from sw.tiling.machine import choose

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


def make_nest(
    problem: Product | Convolution,
    config: MachineConfig,
    bandwidth: Mapping[str, int] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    blocking: Blocking | None = None,
) -> Nest:
    """Tiles, loops and addresses of a problem."""
    for field, needed in (("warps", len(GEMM_WARPS)), ("windows", 3)):
        if getattr(config, field) < needed:
            raise InputError(f"{field} must be at least {needed}, not {getattr(config, field)}")
    product = problem.product if isinstance(problem, Convolution) else problem
    if product is not None:
        return _product_nest(problem, product, config, bandwidth, memory_bytes, blocking)
    assert isinstance(problem, Convolution)
    return _convolution_nest(problem, config, bandwidth, memory_bytes, blocking)


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


def _product_nest(
    problem: Product | Convolution,
    product: Product,
    config: MachineConfig,
    bandwidth: Mapping[str, int] | None,
    memory_bytes: int,
    blocking: Blocking | None,
) -> Nest:
    a, b, c = place(product, config, memory_bytes)
    extent = extent_of(product)
    t = blocking or choose(extent, config, bandwidth)
    batch = () if _folds(product) else product.batch
    m, n, k = t.partition_m, t.partition_n, t.partition_k
    steps = {
        "a": {
            "m": m * (1 if product.transposed_a else a.pitch),
            "k": k * (a.pitch if product.transposed_a else 1),
        },
        "b": {
            "n": n * (b.pitch if product.transposed_b else 1),
            "k": k * (1 if product.transposed_b else b.pitch),
        },
        "c": {"m": m * c.pitch, "n": 4 * n},
    }
    loops = []
    axes = coalesce(batch, tuple(x.batch_steps(batch) for x in (a, b, c)))
    for i, (count, moves) in enumerate(axes):
        loops.append(Loop(f"batch{i}", count))
        for tensor, move in zip("abc", moves, strict=True):
            steps[tensor][f"batch{i}"] = move
    for axis in "mnk" if t.m_outermost else "nmk":
        count = -(-getattr(extent, axis) // getattr(t, f"partition_{axis}"))
        if count > 1:
            loops.append(Loop(axis, count))
    return Nest(config, problem, extent, t, tuple(loops), steps, {"a": a, "b": b, "c": c})


def _convolution_nest(
    p: Convolution,
    config: MachineConfig,
    bandwidth: Mapping[str, int] | None,
    memory_bytes: int,
    blocking: Blocking | None,
) -> Nest:
    a, b, c = place_convolution(p, config, memory_bytes)
    extent = extent_of(p)
    t = blocking or choose(extent, config, bandwidth)
    channels = t.partition_k // p.patches.kernel
    channel = b.matrix_bytes
    steps = {
        "a": {"group": p.m * a.pitch, "m": t.partition_m * a.pitch, "k": t.partition_k},
        # Rows and columns of outputs move on by pixels, not bytes: the loader keeps count of them itself.
        "b": {
            "group": p.patches.channels * channel,
            "image": p.channels * channel,
            "row": 1,
            "n": 1,
            "k": channels * channel,
        },
        "c": {
            "group": p.m * c.pitch,
            "image": p.out_channels * c.pitch,
            "row": 4 * p.cols.outputs,
            "n": 4 * t.partition_n,
            "m": t.partition_m * c.pitch,
        },
    }
    pieces = t.out_cols < p.cols.outputs
    across = [("image", p.images)]
    if pieces:
        across += [("row", p.rows.outputs), ("n", -(-p.cols.outputs // t.out_cols))]
        extent = dataclasses.replace(extent, n=p.cols.outputs)
    else:
        across += [("n", -(-p.n // t.partition_n))]
    down = [("m", -(-p.m // t.partition_m))]
    counts = [("group", p.groups), *(down + across if t.m_outermost else across + down)]
    counts += [("k", -(-p.k // t.partition_k))]
    loops = tuple(Loop(name, count) for name, count in counts if count > 1)
    return Nest(config, p, extent, t, loops, steps, {"a": a, "b": b, "c": c})
