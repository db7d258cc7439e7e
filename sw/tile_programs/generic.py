"""Implements generic instructions as loads and stores of the scratchpad (docs/programs.md).

What an instruction reads is stored to a log in memory, with a separate row per execution. What it writes is
loaded from memory: from its log if it also reads, so that the written data depends on the read data,
otherwise from constants of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from hw.semantics import wrap
from sw.ir.expression import Const, Expr, Op, Var, fold
from sw.ir.program import Buffer, For, If, Instruction, Interval, Region, Statement
from sw.layout import Placement, round_up
from sw.tile_programs.regions import Box, where_filled


@dataclass(frozen=True)
class Transfer:
    """A region that an instruction reads or writes, and its bytes in the record."""

    kind: str
    number: int
    box: Box
    offset: int

    @property
    def room(self) -> int:
        """Bytes of the largest region."""
        return math.prod(self.box.largest) * self.box.strides[-1]


@dataclass(frozen=True)
class Record:
    """Memory of one instruction: a row of `buffer` for each execution.

    `trips` are the maximum trip counts of the enclosing loops, and `index` is the number of an execution.
    What it reads is stored consecutively in the row; the n-th region that it writes is loaded from n elements
    on.
    """

    buffer: Buffer
    trips: tuple[int, ...]
    index: Expr
    transfers: tuple[Transfer, ...]


def record(
    s: Instruction,
    boxes: Mapping[str, Box],
    trips: tuple[int, ...],
    loops: Sequence[For],
    name: str,
    config: MachineConfig,
) -> Record:
    """The memory for an instruction's log, or for what it writes if it reads nothing.

    `loops` are the enclosing loops, whose starts and steps are constant.
    """
    width = max(config.store_bytes, config.load_c_bytes)
    transfers: list[Transfer] = []
    end = 0
    for kind, accesses in (("read", s.reads), ("write", s.writes)):
        for number in range(len(accesses)):
            offset = end if kind == "read" else number * width
            transfers.append(Transfer(kind, number, boxes[f"{kind}{number}"], offset))
            end += transfers[-1].room if kind == "read" else 0
    size = round_up(max(width, *(t.offset + t.room for t in transfers)), width)
    index: Expr = Const(0)
    for loop, count in zip(loops, trips, strict=True):
        if count > 1:
            index = index * count + fold(Op.SUB, Var(loop.variable), loop.start) // loop.step
    buffer = Buffer(name, (Const(math.prod(trips)), Const(size)), "uint8", "memory", s.where)
    return Record(buffer, trips, index, tuple(transfers))


def operation_of(
    s: Instruction,
    record_: Record,
    transfer: Transfer,
    placement: Placement,
    variables: Iterator[str],
    label: str,
) -> Statement:
    """The store of a read region to the record, or the load of a written one.

    It moves rows; regions with more than two dimensions take loops with new variables.
    """
    box, largest, offset = transfer.box, transfer.box.largest, transfer.offset
    unit = box.strides[-1]
    row = largest[-1] * unit
    address = Const(wrap(placement.address + offset)) + record_.index * placement.pitch
    region, first = box.region, box.first()
    loops: list[tuple[str, Expr]] = []
    for d in range(len(largest) - 2):
        if largest[d] > 1:
            variable = Var(next(variables))
            loops.append((variable.name, box.size[d]))
            address = address + variable * (math.prod(largest[d + 1 : -1]) * row)
            first = first + variable * box.strides[d]
            intervals = list(region.box)
            start = intervals[d].start + variable
            intervals[d] = Interval(start, start + 1)
            region = dataclasses.replace(region, box=tuple(intervals))
    in_record = Interval(Const(offset), Const(offset + transfer.room))
    log = Region(record_.buffer.name, (Interval(record_.index, record_.index + 1), in_record))
    name, names = (
        ("store_scratch", ("source", "rows", "bytes", "store_stride", "store_pitch"))
        if transfer.kind == "read"
        else ("load_c", ("target", "outer", "inner", "load_stride", "load_pitch"))
    )
    values = (first, box.size[-2], box.size[-1] * unit, Const(row), Const(box.strides[-2]))
    reads, writes = ((region,), (log,)) if transfer.kind == "read" else ((log,), (region,))
    operands = (("memory", address), *zip(names, values, strict=True))
    when = where_filled(s, (box,))
    made: Statement = Instruction(
        label, name, reads, writes, s.warp, None if loops else when, operands, s.where
    )
    for variable_name, count in reversed(loops):
        made = For(variable_name, Const(0), count, Const(1), (made,), s.where)
    return If(when, (made,), (), s.where) if loops and when is not None else made


def contents(name: str, placement: Placement, seed: int) -> np.ndarray:
    """Random bytes for an instruction's memory, which depend on the seed and its name."""
    rng = np.random.default_rng([seed, *name.encode()])
    return rng.integers(0, 256, placement.shape).astype(placement.dtype)
