"""Softmax by columns in tiles: which softmax is computed that way, and its loads, launches and stores.

A tile is some columns of some planes. A plane is a matrix in which the softmax goes down the rows, and whose
columns are neighbours in memory. Every pass goes through all planes of a tile before the next pass starts. So
each configuration is loaded once, and loads and stores of planes overlap with launches.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hw.errors import InputError, refusals_ignored
from sw.compile.forms import HALVES, Loop, linear, size
from sw.compile.launches import LaunchWriter
from sw.compile.memory import Allocation, Kind
from sw.compile.writer import LONGEST, AddressMap, ChipSpace
from sw.graph.network import Tensor, View
from sw.graph.views import descending, transposed
from sw.ir.expression import Const, Expr
from sw.ir.program import For, Statement
from sw.kernels.configuration import Configured, configure
from sw.kernels.kernel import GridKernel
from sw.kernels.passes import Pass, Span, Value, known
from sw.kernels.stalls import steadiest
from sw.layout import round_up
from sw.operators.column_loops import (
    MOST,
    MOST_SUMMED,
    Block,
    indices,
    maxima,
    reciprocals,
    results,
    sums,
)
from sw.operators.column_softmax import ColumnSoftmax, column_axis
from sw.operators.copies import Copies, rows_contiguous
from sw.operators.registry import LoweredOperator, LoweringContext, legalise, lower
from sw.operators.rows import ByteOperator, launches, lowered_rows
from sw.operators.tiles import ACROSS, PLANES, batch_steps, merged_axes, nest, nested, place, turn

Statements = list[Statement]

#: Name of the loop over the planes of a tile.
PLANE = "plane"
#: Bytes of a column beside its elements: the maximum and a word.
_RECORD = 5
#: Cycles of a launch beside its iterations: patches, checks of arrays, the first and last iterations.
_LAUNCH = 60
#: Cycles of softmax by rows with a copy before and after it: per element, per row, for configurations.
_PER_ELEMENT, _PER_ROW, _ONCE = 1, 6, 2000
#: Fewest elements that may go by columns.
_FEWEST = 256


@dataclass(frozen=True)
class ColumnTile:
    """Addresses of a plane of a tile, multiples of a word per lane.

    `x` (scratchpad) and `out` (output buffer) are those of rows, `near` and `apart` bytes apart; `top` and
    `word` (output buffer) are those of a byte and of a word per column. `groups` are columns over lanes,
    rounded up. Reciprocals are those of `planes` planes, whose words follow each other.
    """

    groups: Value
    near: int
    apart: int
    lanes: int
    planes: Value = 1
    x: Value = 0
    out: Value = 0
    top: Value = 0
    word: Value = 0

    def passes(self, operator: ColumnSoftmax) -> tuple[Pass, ...]:
        """Maxima, sums of exponentials, reciprocals, results."""
        count, lanes, near, apart = operator.columns, self.lanes, self.near, self.apart
        width = self.groups * lanes
        x = Span("scratch", self.x, width + (count - 1) * near)
        out = Span("out", self.out, width + (count - 1) * apart)
        sized = self.groups + 1
        top, word = Span("out", self.top, width), Span("out", self.word, sized * self.planes * (4 * lanes))
        scalars: dict[str, Value] = {"x": self.x, "y": self.out, "at": self.top, "word": self.word // 4}
        scalars |= dict.fromkeys(("first", *indices(count)), self.word // 4)
        many, few = Block(count, lanes, MOST), Block(count, lanes, MOST_SUMMED)
        greatest = maxima(operator.element, many, near)
        summed = sums(operator.table, operator.element, few, near, apart)
        finished = results(operator.numbers, operator.result, operator.how, many, apart)
        groups = self.groups
        return (
            Pass(greatest, groups * many.iterations, scalars, (x,), (top,)),
            Pass(summed, groups * few.iterations, scalars, (x, top), (out, word)),
            # The words between two planes have no meaning, nor have their reciprocals.
            Pass(reciprocals(count, lanes), sized * self.planes - 1, scalars, (word,), (word,)),
            Pass(finished, groups * many.iterations, scalars, (out, word), (out,)),
        )


@dataclass(frozen=True)
class _Cut:
    """Planes and columns of a tile; rows are `near` bytes apart in the scratchpad, results `apart` bytes."""

    planes: int
    columns: int
    near: int
    apart: int


class LoweredColumns:
    """Softmax by columns; raises `InputError` if not even a few columns fit.

    `views` are input and output, [..., planes, rows, columns]. It takes the best of so many mappings
    of each loop (`sw.kernels.stalls.SEEDS`).
    """

    blobs: tuple[Tensor, ...] = ()

    def __init__(self, operator: ColumnSoftmax, context: LoweringContext, seeds: int | None = None) -> None:
        config = context.config
        if config.cgra is None:
            raise InputError(f"{operator.name}: machine {config.name!r} must have a CGRA, it has none")
        self.operator, self.lanes = operator, config.cgra.lanes
        self.views = column_views(operator, context.homes)
        self.planes, _, self.columns = self.views[0].shape[-3:]
        #: Rows of a tile and what belongs to them begin at multiples of this many bytes.
        self.unit = max(config.store_bytes, 4 * self.lanes)
        # Mapping takes long, so what does not fit even without configurations is refused first.
        self.cut = self._cut(context, ())
        self.cut = self._cut(context, [configure(p.kernel, config) for p in self._passes(self.cut)])
        found = [steadiest(p.kernel, config, self._moves(p.kernel), seeds) for p in self._passes(self.cut)]
        self.steps, self.configured = tuple(steps for steps, _ in found), tuple(c for _, c in found)
        cuts = ((PLANES, self.planes, self.cut.planes), (ACROSS, self.columns, self.cut.columns))
        self.loops = nest(self.views[0], 3, cuts)

    @property
    def cycles(self) -> int:
        """The predicted cycles of all launches."""
        tiles, total = math.prod(loop.count for loop in self.loops), 0
        for one, steps, own in zip(self._passes(self.cut), self.steps, self.configured, strict=True):
            assert isinstance(one.iterations, int)
            total += len(own.words) + self.cut.planes * (one.iterations * steps + _LAUNCH)
        return tiles * total

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """The loads, launches and stores of every tile."""
        cut, operator, places = self.cut, self.operator, HALVES if self.loops else 1
        which, inner = turn(self.loops, places), [Loop(PLANE, cut.planes)] * (cut.planes > 1)
        levels = (*self.loops, *inner)

        def area(space: ChipSpace, bytes_of_plane: int) -> tuple[Expr, Expr]:
            """Addresses of what belongs to the first plane of a tile, and to the current one."""
            start = place(space, which, places, cut.planes * bytes_of_plane)
            return start, start + linear(levels, {PLANE: bytes_of_plane})

        rows, columns = operator.columns, size(self.loops, ACROSS, self.columns, cut.columns)
        blocks = -(-cut.columns // self.lanes)
        groups = size(self.loops, ACROSS, -(-self.columns // self.lanes), blocks)
        planes = size(self.loops, PLANES, self.planes, cut.planes)
        (_, x), (_, results) = area(scratch, rows * cut.near), area(out, rows * cut.apart)
        (_, top), (words, word) = area(out, cut.apart), area(out, 4 * self.lanes * (blocks + 1))
        tile = ColumnTile(known(groups), cut.near, cut.apart, self.lanes, 1, x, results, top, word)
        writer, fill = launcher.writer, (known(groups * self.lanes - columns), operator.fill)
        source, target = ((v, self._walk(v, levels), rows, v.strides[-2], columns) for v in self.views)
        load = writer.load_scratch(*source, x, cut.near, None, fill)
        store = writer.store_out(*target, results, cut.apart)

        def through_planes(one: Pass, own: Configured, before: Statements, after: Statements) -> Statements:
            """A launch, and what belongs to it, for every plane of a tile."""
            brought = launcher.bring(own) if inner else []
            steps = (*before, *launches(launcher, (one,), (own,)), *after)
            return [*brought, For(PLANE, Const(0), planes, Const(1), steps)] if inner else list(steps)

        greatest, summed, _, finished = tile.passes(operator)
        inverted = replace(tile, planes=known(planes), word=words).passes(operator)[2]
        # Rows of the only tile come before all configurations but the first.
        first, second, third, last = self.configured
        made = launcher.load(first, scratch)
        later = [s for own in (second, third, last) for s in launcher.load(own, scratch)]
        if self.loops:
            launcher.forget()
            made, later = made + later, []
        body = through_planes(greatest, first, [load], []) + later
        body += through_planes(summed, second, [], [])
        body += launches(launcher, (inverted,), (third,))
        body += through_planes(finished, last, [], [store])
        if self.loops:
            launcher.forget()
        return made + nested(self.loops, body)

    def _walk(self, view: View, levels: tuple[Loop, ...]) -> AddressMap:
        """Start of the current plane of a tile in a view."""
        plane, _, column = view.strides[-3:]
        own = {PLANES: self.cut.planes * plane, ACROSS: self.cut.columns * column, PLANE: plane}
        return AddressMap(levels, {**batch_steps(view, 3), **own}, view.offset)

    def _moves(self, kernel: GridKernel) -> dict[str, int]:
        """Bytes from the rows of an iteration to those of the next one, by space."""
        rows = kernel.per_iteration // self.lanes
        return {"scratch": rows * self.cut.near, "out": rows * self.cut.apart}

    def _passes(self, cut: _Cut) -> tuple[Pass, ...]:
        """The launches of a plane of a tile, at any addresses."""
        groups = -(-cut.columns // self.lanes)
        return ColumnTile(groups, cut.near, cut.apart, self.lanes).passes(self.operator)

    def _tile(self, planes: int, columns: int) -> _Cut:
        """A tile in whose scratchpad neighbouring rows are in different banks."""
        word = max(4, self.lanes)
        return _Cut(planes, columns, (-(-columns // word) | 1) * word, round_up(columns, self.unit))

    def _cut(self, context: LoweringContext, configured: Sequence[Configured]) -> _Cut:
        """One tile if that fits; otherwise the largest, double-buffered, all of about the same size."""
        config, rows = context.config, self.operator.columns
        stays = sum(round_up(4 * len(c.words), 128) for c in configured) + 256

        def fits(planes: int, columns: int, places: int, room: int) -> bool:
            cut = self._tile(planes, columns)
            if max(columns, rows, cut.near, cut.apart) > LONGEST:
                return False
            size = cut.apart * (rows + _RECORD) + 4 * self.lanes
            outside = places * (planes * size + 3 * 128) + 256
            return stays + places * (planes * cut.near * rows + 128) <= room and outside <= config.out_bytes

        places = HALVES if len(self.views[0].shape) > 3 else 1
        for room in (context.room, config.scratch_bytes):
            if fits(self.planes, self.columns, places, room):
                return self._tile(self.planes, self.columns)

        def balanced(total: int, planes: int, columns: int) -> int:
            """How many times these planes and columns a tile has; 0 if they do not fit once."""
            most = bisect.bisect_left(
                range(1, total + 1),
                True,
                key=lambda n: not fits(max(1, planes * n), columns * n or self.columns, HALVES, room),
            )
            return -(-total // -(-total // most)) if most else 0

        room = config.scratch_bytes
        if planes := balanced(self.planes, 1, 0):
            return self._tile(planes, self.columns)
        if units := balanced(-(-self.columns // self.unit), 0, self.unit):
            return self._tile(1, units * self.unit)
        raise InputError(
            f"{self.operator.name}: {self.unit} columns of {rows} elements, twice, and {stays} bytes of "
            f"configurations must fit {config.scratch_bytes} bytes of the scratchpad, their results "
            f"{config.out_bytes} of the output buffer"
        )


def column_views(operator: ColumnSoftmax, homes: Mapping[str, Allocation]) -> tuple[View, ...]:
    """Input and output as [..., planes, rows, columns], with as few axes as possible and adjacent columns."""
    x, y = operator.x, operator.output
    column, last = column_axis(x, y), len(x.shape) - 1
    assert column is not None
    order = [*(a for a in descending(x) if a not in (column, last)), column, last]
    made = []
    for view in merged_axes((transposed(x, order), transposed(y, order)), homes, fixed=1):
        shape, strides = (1, *view.shape), (0, *view.strides)
        whole = View(view.tensor, shape, strides, view.offset) if len(view.shape) == 2 else view
        axes = range(len(whole.shape))
        made.append(transposed(whole, [*axes[:-2], axes[-1], axes[-2]]))
    return tuple(made)


def _quicker(operator: ColumnSoftmax, copies: Copies) -> bool:
    """Whether softmax by columns is possible, and quicker than by rows with a copy before and after it."""
    config = copies.config
    if config.cgra is None or config.cgra.lanes == 1 or column_axis(operator.x, operator.output) is None:
        return False
    if operator.x.elements < _FEWEST:
        return False  # Both ways mostly load configurations, and to map loops takes long.
    homes = {}
    for tensor in (copies.tensors[v.tensor] for v in (operator.x, operator.output)):
        row = tensor.shape[-1]
        homes[tensor.name] = Allocation.of(tensor, Kind.ACTIVATION, 0, row, -1, 0, row)
    elements = operator.x.elements
    cycles = by_rows = _PER_ELEMENT * elements + _PER_ROW * elements // operator.columns + _ONCE
    # There may be no PE for an operation with lanes, no route to it, or no room for columns.
    with refusals_ignored():
        room = config.scratch_bytes * 3 // 4
        # One mapping of each loop tells enough.
        cycles = LoweredColumns(operator, LoweringContext(config, homes, room), seeds=1).cycles
    return cycles < by_rows


@legalise.register
def _(operator: ColumnSoftmax, copies: Copies) -> None:
    if _quicker(operator, copies):
        copies.append(operator, True)
    else:
        legalise.dispatch(ByteOperator)(operator, copies)


@lower.register
def _(operator: ColumnSoftmax, context: LoweringContext) -> LoweredOperator:
    by_rows = rows_contiguous(operator.x) and rows_contiguous(operator.output)
    return lowered_rows(operator, context) if by_rows else LoweredColumns(operator, context)
