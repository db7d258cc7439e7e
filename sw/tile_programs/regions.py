"""Regions of a program: in one execution, and over all executions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from sw.ir.errors import Location
from sw.ir.expression import Const, Expr, Op, apply, fold
from sw.ir.program import Instruction, Region, print_access
from sw.ir.walk import value_of
from sw.tile_programs.places import Place


@dataclass(frozen=True)
class Piece:
    """A region in one execution, with at least two dimensions: a one-dimensional buffer is a row."""

    region: Region
    place: Place
    start: tuple[int, ...]
    size: tuple[int, ...]

    @classmethod
    def of(cls, region: Region, place: Place, values: Mapping[str, int], where: Location | None) -> Piece:
        """The region for given values of the variables."""
        ends = [(value_of(i.start, values, where), value_of(i.stop, values, where)) for i in region.box]
        if len(ends) == 1:
            ends.insert(0, (0, 1))
        return cls(region, place, tuple(a for a, _ in ends), tuple(b - a for a, b in ends))

    @property
    def filled(self) -> bool:
        """Whether the region is non-empty."""
        return min(self.size) > 0

    def counted(self, dimension: int) -> int:
        """The size along a dimension, 0 if the region is empty."""
        return self.size[dimension] if self.filled else 0

    @property
    def first(self) -> int:
        """Start address of the region, in the unit of its space."""
        return self.place.base + sum(
            at * step for at, step in zip(self.start[::-1], self.place.strides[::-1], strict=False)
        )

    @property
    def inside(self) -> bool:
        """Whether the region lies in its buffer."""
        ends = zip(self.start[::-1], self.size[::-1], self.place.shape[::-1], strict=False)
        return all(0 <= start <= room - size for start, size, room in ends)

    @property
    def text(self) -> str:
        """The region in text form."""
        return print_access(self.region)

    def __str__(self) -> str:
        own = [*zip(self.start, self.size, strict=True)][-len(self.region.box) :]
        return f"{self.region.buffer}[{', '.join(f'{start}:{start + size}' for start, size in own)}]"


@dataclass(frozen=True)
class Box:
    """A region over all executions, with at least two dimensions.

    `start` and `size` are expressions per dimension, or numbers if they are constant. `unless_empty` holds
    the conditions under which the region is non-empty, last dimension first; it is empty if the region never
    is. `largest` holds the largest size along each dimension; all are 0 if the region is always empty.
    """

    region: Region
    place: Place
    start: tuple[Expr, ...]
    size: tuple[Expr, ...]
    unless_empty: tuple[Expr, ...]
    largest: tuple[int, ...]

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the dimensions."""
        missing = len(self.start) - len(self.place.strides)
        return (*(0 for _ in range(missing)), *self.place.strides)

    def first(self) -> Expr:
        """Start address of the region, in the unit of its space."""
        start = list(self.start)
        if self.place.across:
            start[self.place.across] = start[self.place.across] // self.place.lanes
        result: Expr = Const(self.place.base)
        for expr, stride in zip(start, self.strides, strict=True):
            result = result + expr * stride
        return result


@dataclass
class SeenRegion:
    """The pieces that executions of a region have had.

    `low` and `high` are the smallest and largest starts and sizes of the non-empty ones; `emptied` holds
    the dimensions, counted from the last, along which some are empty.
    """

    region: Region
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    emptied: set[int] = field(default_factory=set)

    def add(self, piece: Piece) -> None:
        """Adds a piece."""
        self.emptied |= {d for d, size in enumerate(piece.size[::-1], 1) if size <= 0}
        if piece.filled:
            own = (*piece.start, *piece.size)
            self.low = tuple(map(min, self.low or own, own))
            self.high = tuple(map(max, self.high or own, own))

    def box(self, place: Place) -> Box:
        """The region over all pieces added."""
        box = self.region.box
        start, size = [i.start for i in box], [fold(Op.SUB, i.stop, i.start) for i in box]
        if len(box) == 1:
            start, size = [Const(0), *start], [Const(1), *size]
        rank = len(start)
        conditions = {d: apply(Op.LT, i.start, i.stop) for d, i in enumerate(box[::-1], 1)}
        unless_empty = dict.fromkeys(c for d, c in conditions.items() if d in self.emptied)
        if self.low:
            known = [
                Const(low) if low == high else expr
                for expr, low, high in zip((*start, *size), self.low, self.high, strict=True)
            ]
            start, size = known[:rank], known[rank:]
        largest = self.high[rank:] or (0,) * rank
        return Box(self.region, place, tuple(start), tuple(size), tuple(unless_empty), largest)


@dataclass
class Seen:
    """What all executions of an instruction have in common: regions by operand, and iterations.

    `first` and `last` are the smallest and largest iteration numbers, outermost loop first.
    """

    regions: Mapping[str, SeenRegion]
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    count: int = 0

    def add(self, iteration: tuple[int, ...], pieces: Mapping[str, Piece]) -> None:
        """Adds an execution."""
        self.count += 1
        self.first = tuple(map(min, self.first or iteration, iteration))
        self.last = tuple(map(max, self.last or iteration, iteration))
        for operand, piece in pieces.items():
            self.regions[operand].add(piece)

    @property
    def trips(self) -> tuple[int, ...]:
        """Largest trip count of each loop; 1 if the instruction executes in only one of its iterations."""
        return tuple(1 if a == b else b + 1 for a, b in zip(self.first, self.last, strict=True))

    def boxes(self, places: Mapping[str, Place]) -> dict[str, Box]:
        """The regions over all executions."""
        return {name: seen.box(places[seen.region.buffer]) for name, seen in self.regions.items()}


def where_filled(s: Instruction, boxes: tuple[Box, ...]) -> Expr | None:
    """The instruction's predicate, extended so that the operation is skipped if a region is empty."""
    conditions = [*([] if s.when is None else [s.when]), *(c for box in boxes for c in box.unless_empty)]
    return functools.reduce(lambda a, b: apply(Op.AND, a, b), conditions) if conditions else None
