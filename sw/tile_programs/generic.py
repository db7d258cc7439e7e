"""Instructions that are none of the machine's as loads and stores of the scratchpad (docs/programs.md).

What an instruction reads goes to a log in memory, at a place of its own for every execution. What it writes
comes from memory: from its log where it reads as well, so that what it writes depends on what it read, else
from constants of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr, Var
from sw.ir.program import Access, Buffer, For, If, Instruction, Interval, Region, Statement
from sw.ir.trace import Boxes, Rows
from sw.layout import Placement, round_up
from sw.tile_programs.boxes import Box, boxed, where_filled
from sw.tile_programs.operands import aligned, linear
from sw.tile_programs.places import Place


@dataclass(frozen=True)
class Record:
    """Memory that an instruction has for itself: `size` bytes for each of `count` executions at most.

    `index` is the number of an execution as an expression of the loops around it. `offsets` are the places
    of what it reads in those bytes, in order; the n-th region that it writes comes from `n * step` on.
    """

    buffer: Buffer
    index: Expr
    offsets: tuple[int, ...]
    step: int

    @property
    def size(self) -> int:
        """Bytes of one execution."""
        size = self.buffer.shape[1]
        assert isinstance(size, Const)
        return size.value


def regions_of(
    s: Instruction, rows: Rows, places: Mapping[str, Place]
) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """What an instruction reads and writes, as boxes in the scratchpad. Raises `IRError` for other places."""

    def found(accesses: Sequence[Access], boxes: Sequence[Boxes | None], kind: str) -> tuple[Box, ...]:
        made = []
        for access, box in zip(accesses, boxes, strict=True):
            if not isinstance(access, Region):
                raise IRError(s.where, f"{kind}=ANY of {s.label}", "a region, to run the program")
            place = places.get(access.buffer)
            if place is None or place.space != "scratch":
                space = "memory" if place is None else place.space
                raise IRError(
                    access.where or s.where,
                    f"{access.buffer} in space {space} as {kind}= of the generic {s.name}",
                    "a buffer in the scratchpad, or of no stated space",
                )
            assert box is not None
            made.append(boxed(access, place, box))
        return tuple(made)

    return found(s.reads, rows.reads, "read"), found(s.writes, rows.writes, "write")


def record(
    s: Instruction,
    reads: Sequence[Box],
    writes: Sequence[Box],
    index: tuple[Expr, int],
    name: str,
    width: int,
) -> Record:
    """The memory for an instruction's log, or for what it writes if it reads nothing.

    `index` is the number of an execution, and how many there are; `width` is the bytes of a word.
    """
    sizes = [room(box) for box in reads]
    offsets = tuple(sum(sizes[:n]) for n in range(len(sizes)))
    size = max([sum(sizes), width, *(n * width + room(box) for n, box in enumerate(writes))])
    shape = (Const(index[1]), Const(round_up(size, width)))
    return Record(Buffer(name, shape, "uint8", "memory", s.where), index[0], offsets, width)


def most(box: Box) -> tuple[int, ...]:
    """The largest size of a region along each dimension."""
    return tuple(int(size.max(initial=0)) for size in box.sizes)


def room(box: Box) -> int:
    """Bytes for the largest that a region gets."""
    return math.prod(most(box)) * box.strides[-1]


@dataclass(frozen=True)
class Transfers:
    """Makes the operations of one instruction."""

    config: MachineConfig
    instruction: Instruction
    rows: Rows
    record: Record
    placement: Placement
    variables: Iterator[str]

    def read(self, number: int, box: Box, label: str) -> Statement:
        """The store of a region that is read to its place in the log."""
        aligned(self.instruction, self.rows, box, self.config.store_bytes)
        return self.transfer("store_scratch", box, self.record.offsets[number], label)

    def write(self, number: int, box: Box, label: str) -> Statement:
        """The load of a region that is written."""
        return self.transfer("load_c", box, number * self.record.step, label)

    def transfer(self, name: str, box: Box, offset: int, label: str) -> Statement:
        """Rows of a region to or from memory, with loops around where it has more than two dimensions."""
        largest, unit = most(box), box.strides[-1]
        row = largest[-1] * unit
        steps = [math.prod(largest[d + 1 : -1]) * row for d in range(len(largest) - 2)]
        address = Const(self.placement.address + offset) + self.record.index * self.placement.pitch
        region, first = box.region, linear(box)
        loops: list[tuple[str, Expr]] = []
        for d, step in enumerate(steps):
            if largest[d] > 1:
                variable = Var(next(self.variables))
                loops.append((variable.name, box.size[d]))
                address = address + variable * step
                first = first + variable * box.strides[d]
                intervals = list(region.box)
                start = intervals[d].start + variable
                intervals[d] = Interval(start, start + 1)
                region = dataclasses.replace(region, box=tuple(intervals))
        bytes_ = Interval(Const(offset), Const(offset + room(box)))
        log = Region(self.record.buffer.name, (Interval(self.record.index, self.record.index + 1), bytes_))
        size = box.size[-1] * unit
        if name == "load_c":
            operands = {
                "memory": address,
                "target": first,
                "outer": box.size[-2],
                "inner": size,
                "load_stride": Const(row),
                "load_pitch": Const(box.strides[-2]),
            }
            reads, writes = (log,), (region,)
        else:
            operands = {
                "memory": address,
                "source": first,
                "rows": box.size[-2],
                "bytes": size,
                "store_stride": Const(row),
                "store_pitch": Const(box.strides[-2]),
            }
            reads, writes = (region,), (log,)
        s, when = self.instruction, where_filled(self.instruction, (box,))
        made: Statement = Instruction(
            label, name, reads, writes, s.warp, None if loops else when, tuple(operands.items()), s.where
        )
        for variable_name, count in reversed(loops):
            made = For(variable_name, Const(0), count, Const(1), (made,), s.where)
        return If(when, (made,), (), s.where) if loops and when is not None else made


def contents(record_: Record, placement: Placement, seed: int) -> np.ndarray:
    """Random bytes for an instruction's memory; they depend on the seed and its name."""
    rng = np.random.default_rng([seed, *record_.buffer.name.encode()])
    return rng.integers(0, 256, placement.shape).astype(placement.dtype)
