"""Common parts of operators' tiles: merged axes of views, loops over tiles, double buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sw.compile.forms import HALVES, Loop, count
from sw.compile.memory import Allocation
from sw.compile.writer import ChipSpace, loop
from sw.graph.network import View
from sw.graph.views import descending
from sw.ir.expression import Const, Expr
from sw.ir.program import Statement
from sw.layout import round_up

#: Names of the loops over tiles.
PLANES, DOWN, ACROSS = "planes", "rows", "columns"
#: Number of tiles that an operator is cut into, so that engines overlap.
PIECES = 6
#: Supported repetition factors along rows of enlarged images.
REPEATS = (2, 4, 8)
#: An axis shared by several views: its size, and its stride in each view.
Axis = tuple[int, tuple[int, ...]]


def nest(view: View, inner: int, cuts: Sequence[tuple[str, int, int]]) -> tuple[Loop, ...]:
    """Loops over the outer axes of a view, and over tiles of the `inner` last ones.

    `cuts` holds name, size and tile size of those that may be cut.
    """
    batches = [Loop(f"batch{i}", n) for i, n in enumerate(view.shape[:-inner])]
    return (*batches, *(Loop(name, -(-whole // tile)) for name, whole, tile in cuts if tile < whole))


def batch_steps(view: View, inner: int) -> dict[str, int]:
    """Strides of a view, in elements, in the loops over its outer axes."""
    return {f"batch{i}": s for i, s in enumerate(view.strides[:-inner])}


def nested(loops: Sequence[Loop], body: list[Statement]) -> list[Statement]:
    """The body inside loops."""
    for level in reversed(loops):
        body = [loop(level, body)]
    return body


def turn(loops: Sequence[Loop], places: int = HALVES) -> Expr:
    """Which of two buffers the current tile uses; 0 if there is only one."""
    return count(loops) % HALVES if places > 1 else Const(0)


def place(area: ChipSpace, turn: Expr, places: int, size: int) -> Expr:
    """Address in an area of the buffer used in this turn."""
    step = round_up(size, area.alignment)
    return turn * step + area.take(places * step)


def falling(number: int, by: int) -> Iterator[int]:
    """Numbers down to 1, each smaller than the one before by 1/`by`."""
    while number > 1:
        yield number
        number -= max(1, number // by)
    yield 1


def merged_axes(views: Sequence[View], homes: Mapping[str, Allocation], fixed: int = 0) -> tuple[View, ...]:
    """Views of one shape with as few axes as possible, but at least two: rows and columns.

    Axes of size 1 are dropped, and neighbours with compatible strides in every view are merged; the last
    `fixed` axes stay.
    """
    lying = [homes[v.tensor] for v in views]
    every = _axes(views, range(len(views[0].shape)))
    split = len(every) - fixed
    axes: list[Axis] = []
    for size, strides in every[:split]:
        if axes and size > 1 and all(map(_joins, axes[-1][1], strides, [size] * len(lying), lying)):
            axes[-1] = (axes[-1][0] * size, strides)
        elif size > 1:
            axes.append((size, strides))
    if not fixed and axes and any(map(_apart, axes[-1][1], lying)):
        axes.append((1, (1,) * len(views)))
    axes += every[split:]
    missing = max(2, fixed + 1) - len(axes)
    return _with_axes(views, [(1, (0,) * len(views))] * missing + axes)


def ordered(views: Sequence[View]) -> tuple[View, ...]:
    """Views with their axes in the memory order of the first one.

    The strides of the first view become positive and its last axis contiguous, if necessary an axis of size
    1.
    """
    first, axes = views[0], []
    for size, strides in _axes(views, [a for a in descending(first) if first.shape[a] > 1]):
        if strides[0] < 0:
            ends = [v.offset + (size - 1) * s for v, s in zip(views, strides, strict=True)]
            views = [dataclasses.replace(v, offset=end) for v, end in zip(views, ends, strict=True)]
            strides = tuple(-s for s in strides)
        axes.append((size, strides))
    if axes and axes[-1][1][0] != 1:
        axes.append((1, (1,) * len(views)))
    return _with_axes(views, axes)


def resized(views: Sequence[View], homes: Mapping[str, Allocation]) -> tuple[int, tuple[View, ...]] | None:
    """How often operands' elements repeat along rows, and views of whole rows; None if they do not repeat.

    The first view is the result, ordered. The last axis of an operand that repeats has that many times fewer
    elements. Axes along which all operands repeat are outermost, so that the others make large tiles.
    """
    first, *others = views
    if len(first.shape) < 2 or first.shape[-1] not in REPEATS or first.strides[-2] != first.shape[-1]:
        return None
    repeat, varying = first.shape[-1], [v for v in others if any(v.strides)]
    if not varying or any(v.strides[-1] or v.strides[-2] != 1 for v in varying):
        return None
    *outer, (columns, _), _ = _axes(views, range(len(first.shape)))
    outer.sort(key=lambda axis: any(s for s, v in zip(axis[1][1:], others, strict=True) if v in varying))
    rows = (columns * repeat, tuple(int(v is first or v in varying) for v in views))
    made = merged_axes(_with_axes(views, [*outer, rows]), homes, fixed=1)
    if columns == 1 or any(
        v.strides[-2] == 0 for v, whole in zip(made, views, strict=True) if whole in varying
    ):
        return None
    return repeat, tuple(
        dataclasses.replace(v, shape=(*v.shape[:-1], columns)) if whole in varying else v
        for v, whole in zip(made, views, strict=True)
    )


def packed(
    views: Sequence[View], homes: Mapping[str, Allocation]
) -> tuple[tuple[View, ...], dict[str, int]] | None:
    """Views as one row whose operands are packed by their loads, with the size of the loads' rows by tensor.

    The result, the first view, has no padding after its rows. None if no operand has, or if more than one row
    would be left.
    """
    padded = {v.tensor: homes[v.tensor].row for v in views if any(v.strides) and not homes[v.tensor].dense}
    if not padded or views[0].tensor in padded:
        return None
    dense = {n: dataclasses.replace(home, pitch=home.row * home.itemsize) for n, home in homes.items()}
    made = merged_axes(views, dense)
    for view in made:
        *outer, rows, columns = zip(view.shape, view.strides, strict=True)
        row = padded.get(view.tensor, 1)
        whole = not (view.offset % row or columns[0] % row or any(step % row for _, step in outer))
        if rows[0] > 1 or not whole or (view.tensor in padded and columns[1] != 1):
            return None
    return made, padded


def _axes(views: Sequence[View], order: Iterable[int]) -> list[Axis]:
    return [(views[0].shape[a], tuple(v.strides[a] for v in views)) for a in order]


def _with_axes(views: Sequence[View], axes: Sequence[Axis]) -> tuple[View, ...]:
    shape = tuple(size for size, _ in axes)
    return tuple(
        View(v.tensor, shape, tuple(strides[i] for _, strides in axes), v.offset) for i, v in enumerate(views)
    )


def _joins(outer: int, inner: int, size: int, home: Allocation) -> bool:
    """Whether an axis and the next inner one, of this size, have the strides of a single axis."""
    # In a tensor with padding, elements are evenly spaced only within a row.
    return outer == size * inner and (home.dense or inner == 0 or inner % home.row == 0)


def _apart(stride: int, home: Allocation) -> bool:
    """Whether neighbours along an axis are in different rows of a tensor with padding."""
    return not home.dense and stride != 0 and stride % home.row == 0
