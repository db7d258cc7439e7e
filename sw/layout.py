"""Where tensors lie in memory: every row starts at a word of the port, every tensor at a page."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from hw.errors import InputError
from sw.convolution import Convolution
from sw.problem import Product

#: Memory that the simulators' harness has unless told otherwise, in bytes.
MEMORY_BYTES = 64 << 20
#: Tensors start at multiples of this, with at least one page of nothing before each.
PAGE = 4096
#: Padding bytes hold this value, so that a result that depends on them is wrong rather than lucky.
GARBAGE = 0xA5


@dataclass(frozen=True)
class Placement:
    """One tensor in memory, from `address` on; rows (its last axis) start `pitch` bytes apart."""

    name: str
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    pitch: int
    write: bool = False

    @property
    def rows(self) -> int:
        """Rows of the tensor, all axes but the last taken together."""
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row without its padding."""
        return self.shape[-1] * self.dtype.itemsize

    @property
    def size(self) -> int:
        """Bytes from the first element to the end of the last row's padding."""
        return self.rows * self.pitch

    @property
    def matrix_bytes(self) -> int:
        """Bytes from one matrix (last two axes) to the next."""
        return self.shape[-2] * self.pitch

    def image(self, array: np.ndarray) -> np.ndarray:
        """The tensor's bytes as they lie in memory, padding included (uint8)."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise InputError(
                f"{self.name} must be {self.dtype} of shape {list(self.shape)}, "
                f"not {array.dtype} of {list(array.shape)}"
            )
        out = np.full((self.rows, self.pitch), GARBAGE, np.uint8)
        rows = np.ascontiguousarray(array).reshape(self.rows, self.shape[-1])
        out[:, : self.row_bytes] = rows.view(np.uint8).reshape(self.rows, self.row_bytes)
        return out.reshape(-1)

    def extract(self, data: np.ndarray) -> np.ndarray:
        """The tensor out of the bytes that lie in memory (inverse of `image`)."""
        rows = np.ascontiguousarray(data.reshape(self.rows, self.pitch)[:, : self.row_bytes])
        return rows.view(self.dtype).reshape(self.shape)

    def batch_steps(self, batch: tuple[int, ...]) -> tuple[int, ...]:
        """Bytes from one index to the next for each axis of the broadcast batch; 0 where it repeats."""
        own = self.shape[:-2]
        steps = []
        for axis in range(-len(batch), 0):
            missing = -axis > len(own) or own[axis] == 1
            steps.append(0 if missing else math.prod(own[len(own) + axis + 1 :]) * self.matrix_bytes)
        return tuple(steps)


def place(
    problem: Product, config: MachineConfig, memory_bytes: int = MEMORY_BYTES
) -> tuple[Placement, Placement, Placement]:
    """Places A, B and C; raises `InputError` when they do not fit `memory_bytes`."""
    address = PAGE
    placements = []
    for name, shape, dtype, port in (
        ("A", problem.shape_a, np.dtype(problem.type_a), "load_a"),
        ("B", problem.shape_b, np.dtype(problem.type_b), "load_b"),
        ("C", problem.shape_c, np.dtype("<i4"), "store"),
    ):
        pitch = round_up(shape[-1] * dtype.itemsize, config.port_bytes(port))
        tensor = Placement(name, address, shape, dtype, pitch, write=name == "C")
        address = round_up(address + tensor.size, PAGE) + PAGE
        placements.append(tensor)
    return _fitting(problem, placements, address, memory_bytes)


def _fitting(
    problem: Product | Convolution, placements: list[Placement], end: int, memory_bytes: int
) -> tuple[Placement, Placement, Placement]:
    if end > memory_bytes:
        sizes = ", ".join(f"{p.name} {p.size}" for p in placements)
        raise InputError(
            f"operands and result must fit {memory_bytes} bytes of memory, {end} are needed ({sizes})"
        )
    a, b, c = placements
    return a, b, c


def place_convolution(
    problem: Convolution, config: MachineConfig, memory_bytes: int = MEMORY_BYTES
) -> tuple[Placement, Placement, Placement]:
    """Places weights (a matrix per group), images and result (a row per channel); see `place`.

    Image rows start so far behind a word of the port that the padding before them falls into the same word.
    """
    c = problem
    width = config.load_b_bytes
    offset = c.cols.before % width
    shapes = (
        ("A", (c.groups, c.m, c.k), np.dtype(c.type_a), config.load_a_bytes, 0),
        ("B", c.shape_b, np.dtype(c.type_b), width, offset),
        ("C", (c.images, c.out_channels, c.n), np.dtype("<i4"), config.store_bytes, 0),
    )
    address = PAGE
    placements = []
    for name, shape, dtype, port, start in shapes:
        pitch = round_up(start + shape[-1] * dtype.itemsize, port)
        tensor = Placement(name, address + start, shape, dtype, pitch, write=name == "C")
        address = round_up(address + start + tensor.size, PAGE) + PAGE
        placements.append(tensor)
    return _fitting(problem, placements, address, memory_bytes)


def coalesce(batch: tuple[int, ...], steps: tuple[tuple[int, ...], ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Batch axes as (count, bytes per step of each tensor), neighbours merged where all tensors allow it."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for count, step in zip(batch, zip(*steps, strict=True), strict=True):
        if count == 1:
            continue
        if axes and all(outer == count * inner for outer, inner in zip(axes[-1][1], step, strict=True)):
            axes[-1] = (axes[-1][0] * count, step)
        else:
            axes.append((count, step))
    return axes


def round_up(value: int, multiple: int) -> int:
    """The next multiple at or above."""
    return -(-value // multiple) * multiple
