"""Regions of an instruction with all that a run tells of them: where they start, how large they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sw.canonical.simplify import canonicalize
from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr, Op, apply, fold
from sw.ir.intrinsics import INTRINSICS
from sw.ir.print import print_access
from sw.ir.program import Instruction, Region
from sw.ir.trace import Boxes, Rows
from sw.ir.vector import Array
from sw.tile_programs.places import Place

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Box:
    """A region and its boxes in a run, with at least two dimensions: a buffer of one is one row.

    `start` and `size` are expressions per dimension, numbers where a run shows only one value. `starts` and
    `ends` are dimensions × executions, and so are `sizes`, all 0 where the region is empty.
    """

    region: Region
    place: Place
    start: tuple[Expr, ...]
    size: tuple[Expr, ...]
    starts: Array
    ends: Array
    sizes: Array

    @property
    def filled(self) -> Mask:
        """In which executions the region is not empty."""
        found: Mask = np.all(self.sizes > 0, axis=0)
        return found

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances along each dimension."""
        missing = len(self.start) - len(self.place.strides)
        return (*(0 for _ in range(missing)), *self.place.strides)

    @property
    def text(self) -> str:
        """The region as it is written."""
        return print_access(self.region)


def boxed(region: Region, place: Place, boxes: Boxes) -> Box:
    """A region with its boxes."""
    starts, ends = boxes.start, boxes.stop
    sizes = ends - starts
    there = (sizes > 0).all(axis=0)
    start = tuple(settled(i.start, v[there]) for i, v in zip(region.box, starts, strict=True))
    length = tuple(
        settled(fold(Op.SUB, i.stop, i.start), v[there]) for i, v in zip(region.box, sizes, strict=True)
    )
    if len(start) == 1:
        ones = np.ones((1, starts.shape[1]), np.int64)
        start, length = (Const(0), *start), (Const(1), *length)
        starts, ends = np.concatenate([0 * ones, starts]), np.concatenate([ones, ends])
    return Box(region, place, start, length, starts, ends, np.where(there, ends - starts, 0))


def settled(expr: Expr, values: Array) -> Expr:
    """The expression in canonical form, or its value where a run shows only one."""
    if values.size and (values == values[0]).all():
        return Const(int(values[0]))
    return canonicalize(expr)


def boxes_by_operand(s: Instruction, rows: Rows) -> dict[str, Boxes]:
    """What a run tells of the operands that are regions and read or written."""
    intrinsic = INTRINSICS[s.name]
    found: dict[str, Boxes] = {}
    for which, stated, accesses in (
        (intrinsic.reads, s.reads, rows.reads),
        (intrinsic.writes, s.writes, rows.writes),
    ):
        named = [n for n, o in s.operands if isinstance(o, Region) and n in which]
        for name, boxes in zip(named, accesses[len(stated) :], strict=True):
            assert boxes is not None
            found[name] = boxes
    return found


def where_filled(s: Instruction, boxes: tuple[Box, ...]) -> Expr | None:
    """The instruction's predicate, extended by what makes it do nothing for empty boxes."""
    conditions = [] if s.when is None else [s.when]
    for box in boxes:
        if box.filled.all():
            continue
        empty = np.any(box.ends <= box.starts, axis=1).tolist()
        for interval, maybe in zip(box.region.box[::-1], empty[::-1], strict=False):
            if maybe:
                condition = apply(Op.LT, interval.start, interval.stop)
                if condition not in conditions:
                    conditions.append(condition)
    if not conditions:
        return None
    return functools.reduce(lambda a, b: apply(Op.AND, a, b), conditions)


def require(
    s: Instruction, rows: Rows, region: Region, holds: Mask, found: Callable[[int], str], expected: str
) -> None:
    """Raise `IRError` for the first execution in which something does not hold."""
    wrong = np.flatnonzero(~holds)
    if wrong.size:
        n = int(wrong[0])
        numbers = rows.iteration[:, n].tolist()
        at = f"[{', '.join(map(str, numbers))}]" if numbers else ""
        raise IRError(region.where or s.where, f"{found(n)} in {s.label}{at}", expected)
