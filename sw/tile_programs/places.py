"""Allocation of buffers: addresses in memory; columns, words and bytes in the machine's buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw.config import MachineConfig
from sw.ir.errors import IRError
from sw.ir.expression import evaluate
from sw.ir.grid import GRID
from sw.ir.program import Buffer, Program
from sw.layout import MEMORY_BYTES, PAGE, Placement, clear_of_middle, round_up
from sw.tile_programs.uses import Uses

#: Space of buffers that state none.
DEFAULT_SPACE = "scratch"
#: By space: the unit of its addresses, the configuration field that limits it, and its size.
_ROOMS: dict[str, tuple[str, str, Callable[[MachineConfig], int]]] = {
    "A": ("columns", "buffer_a_bytes", lambda c: c.derived.buffer_a.columns),
    "B": ("columns", "buffer_b_bytes", lambda c: c.derived.buffer_b.columns),
    "acc": ("words", "acc_bytes", lambda c: c.derived.acc_words),
    "scratch": ("bytes", "scratch_bytes", lambda c: c.derived.scratch.columns),
    "out": ("bytes", "out_bytes", lambda c: c.derived.out.columns),
}


@dataclass(frozen=True)
class Place:
    """The allocation of a buffer.

    `strides` are the distances between elements along each dimension, in the unit of the space. In A and B,
    the dimension of the lanes (`lanes` of them per block) has the distance between blocks; in the
    accumulator, the last dimension has that between words of `lanes` elements.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    space: str
    base: int
    strides: tuple[int, ...]
    lanes: int = 1

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.buffer.element_bytes

    @property
    def across(self) -> int | None:
        """The dimension of the lanes, counted from the last one; None if there are none."""
        return {"A": -2, "B": -1, "acc": -1}.get(self.space)

    def bytes_of(self, box: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
        """The bytes of a box in its space: one axis per dimension, and one for the bytes of an element."""
        at = np.full((), self.base)
        for (first, end), stride in zip(box[:-1], self.strides[:-1], strict=True):
            at = at[..., None] + np.arange(first, end) * stride
        last = np.arange(*box[-1])
        at = at[..., None] + last // self.lanes * self.strides[-1]
        if self.space == "acc":
            # The last dimension, like all others, counts words of `lanes` elements.
            at = (at * self.lanes + last % self.lanes) * self.element_bytes
        return at[..., None] + np.arange(self.element_bytes)

    def extract(self, data: npt.NDArray[np.uint8]) -> np.ndarray:
        """The buffer's elements, from the bytes of the scratchpad or memory."""
        return data[self.bytes_of([(0, n) for n in self.shape])].view(self.buffer.element)[..., 0]


def space_of(buffer: Buffer) -> str:
    """The space of a buffer."""
    return buffer.space or DEFAULT_SPACE


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    """The sizes of a buffer of a program without parameters."""
    return tuple(evaluate(size, {}) for size in buffer.shape)


def place_buffers(program: Program, config: MachineConfig, uses: Uses) -> dict[str, Place]:
    """Allocations of all buffers in the machine that regions use, in declaration order.

    Raises `IRError` for those that do not fit.
    """
    found: dict[str, Place] = {}
    used: dict[str, list[tuple[Buffer, int]]] = {}
    for buffer in program.buffers:
        space = space_of(buffer)
        if space in ("memory", GRID) or buffer.name not in uses.regions:
            continue
        before = used.setdefault(space, [])
        place, size = _placed(buffer, space, sum(n for _, n in before), config, uses)
        before.append((buffer, size))
        unit, field, most = _ROOMS[space]
        total, there = sum(n for _, n in before), most(config)
        if total > there:
            listed = ", ".join(f"{b.name} {n}" for b, n in before)
            raise IRError(
                buffer.where,
                f"{total} {unit} of buffers in space {space} ({listed})",
                f"at most {there} ({field} of {config.name})",
            )
        found[buffer.name] = place
    return found


def _placed(buffer: Buffer, space: str, base: int, config: MachineConfig, uses: Uses) -> tuple[Place, int]:
    """A buffer's allocation from `base` on, and its size, in the unit of the space."""
    shape = shape_of(buffer)
    # A buffer of one dimension is a single row.
    rows, last = (shape[-2] if len(shape) > 1 else 1), shape[-1]
    match space:
        case "A" | "B":
            if buffer.element_bytes != 1:
                raise IRError(buffer.where, f"elements of {buffer.element} in space {space}", "int8 or uint8")
            edge = config.derived.buffer_a if space == "A" else config.derived.buffer_b
            depth, width = (last, rows) if space == "A" else (rows, last)
            pitch = depth
            if buffer.name in uses.lanes_first and width > edge.lanes:
                # Blocks must not share banks if the bytes of a row go to successive lanes.
                pitch += (edge.lanes - depth) % edge.banks
            tile = -(-width // edge.lanes) * pitch
            steps = (pitch, 1) if space == "A" else (1, pitch)
            lanes = edge.lanes
        case "acc":
            if buffer.element_bytes != 4:
                raise IRError(buffer.where, f"elements of {buffer.element} in the accumulator", "int32")
            words = -(-last // config.cols)
            tile, steps, lanes = rows * words, (words, 1), config.cols
        case _:
            width = config.store_bytes
            size = width if buffer.name in uses.spaced else buffer.element_bytes
            pitch = round_up(last * size, width)
            tile, steps, lanes = rows * pitch, (pitch, size), 1
    outer = shape[:-2]
    tiles = tuple(math.prod(outer[i + 1 :]) * tile for i in range(len(outer)))
    strides = (*tiles, *steps[-min(2, len(shape)) :])
    return Place(buffer, shape, space, base, strides, lanes), math.prod(outer) * tile


def place_memory(
    buffers: Mapping[str, Buffer],
    config: MachineConfig,
    uses: Uses,
) -> dict[str, Placement]:
    """Allocations in memory: rows start at words of the ports that move them, buffers at pages.

    Raises `IRError` if they do not fit.
    """
    address = PAGE
    found: dict[str, Placement] = {}
    for name, buffer in buffers.items():
        shape, dtype = shape_of(buffer), np.dtype(buffer.element)
        width = max((config.port_bytes(port) for port in uses.ports.get(name, ())), default=4)
        pitch = round_up(shape[-1] * dtype.itemsize, width)
        address = clear_of_middle(address, pitch * (math.prod(shape) // shape[-1]))
        found[name] = Placement(
            name=name, address=address, shape=shape, dtype=dtype, pitch=pitch, row=shape[-1]
        )
        address = round_up(address + found[name].size, PAGE) + PAGE
        if address > MEMORY_BYTES:
            raise IRError(
                buffer.where,
                f"buffers in memory up to {name} of {found[name].size} bytes that take {address} bytes",
                f"at most {MEMORY_BYTES}",
            )
    return found


def memory_places(buffers: Mapping[str, Buffer], placements: Mapping[str, Placement]) -> dict[str, Place]:
    """The allocations of buffers in memory, in the same form as those in the machine."""
    found = {}
    for name, p in placements.items():
        strides = [p.dtype.itemsize]
        step = p.pitch
        for n in reversed(p.shape[:-1]):
            strides.insert(0, step)
            step *= n
        found[name] = Place(buffers[name], p.shape, "memory", p.address, tuple(strides))
    return found
