"""What the tiles of operators share: axes of views that are one, loops over tiles, places that take turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

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
#: Tiles that an operator is cut into, so that its steps overlap.
PIECES = 6


def nest(view: View, inner: int, cuts: Sequence[tuple[str, int, int]]) -> tuple[Loop, ...]:
    """Loops over the outer axes of a view, and over tiles of the `inner` last ones.

    `cuts` are name, size and size of a tile of those that may be cut.
    """
    batches = [Loop(f"batch{i}", n) for i, n in enumerate(view.shape[:-inner])]
    return (*batches, *(Loop(name, -(-whole // tile)) for name, whole, tile in cuts if tile < whole))


def batch_steps(view: View, inner: int) -> dict[str, int]:
    """Elements that a view moves on with the loops over its outer axes."""
    return {f"batch{i}": s for i, s in enumerate(view.strides[:-inner])}


def nested(loops: Sequence[Loop], body: list[Statement]) -> list[Statement]:
    """The body inside of loops."""
    for level in reversed(loops):
        body = [loop(level, body)]
    return body


def turn(loops: Sequence[Loop], places: int = HALVES) -> Expr:
    """Which of two places the present tile has; 0 where there is one."""
    return count(loops) % HALVES if places > 1 else Const(0)


def place(area: ChipSpace, turn: Expr, places: int, size: int) -> Expr:
    """A byte of an area, of so many places that take turns, each of some bytes."""
    step = round_up(size, area.alignment)
    return turn * step + area.take(places * step)


def falling(number: int, by: int) -> Iterator[int]:
    """Numbers down to 1, each less by 1/`by` than the one before."""
    while number > 1:
        yield number
        number -= max(1, number // by)
    yield 1


def merged_axes(views: Sequence[View], homes: Mapping[str, Allocation], fixed: int = 0) -> tuple[View, ...]:
    """Views of one shape with as few axes as possible, but at least two: rows and columns.

    Axes of one element go, neighbours that lie alike in every view become one; the last `fixed` axes stay.
    """
    shape = views[0].shape
    keep = [axis for axis, n in enumerate(shape) if n > 1 or axis >= len(shape) - fixed]
    kept = [
        dataclasses.replace(v, shape=tuple(shape[a] for a in keep), strides=tuple(v.strides[a] for a in keep))
        for v in views
    ]
    axis = len(keep) - 2 - fixed
    while axis >= 0:
        if all(_joins(v, axis, homes[v.tensor]) for v in kept):
            kept = [_joined(v, axis) for v in kept]
        axis -= 1
    if not fixed and any(_apart(v, homes[v.tensor]) for v in kept):
        kept = [dataclasses.replace(v, shape=(*v.shape, 1), strides=(*v.strides, 1)) for v in kept]
    while len(kept[0].shape) < max(2, fixed + 1):
        kept = [dataclasses.replace(v, shape=(1, *v.shape), strides=(0, *v.strides)) for v in kept]
    return tuple(kept)


def _apart(view: View, home: Allocation) -> bool:
    """Whether neighbours of the last axis lie in different rows of a tensor with padding."""
    if not view.shape or view.shape[-1] == 1 or home.dense:
        return False
    return view.strides[-1] != 0 and view.strides[-1] % home.row == 0


def ordered(views: Sequence[View]) -> tuple[View, ...]:
    """Views with their axes in the order in which the first one's elements lie in memory.

    Its strides become positive, and its last axis contiguous, if need be an axis of one element.
    """
    first = views[0]
    axes = [a for a in descending(first) if first.shape[a] > 1]
    turned = [tuple(v.shape[a] - 1 if first.strides[a] < 0 else 0 for a in axes) for v in views]
    signs = [-1 if first.strides[a] < 0 else 1 for a in axes]
    made = [
        View(
            v.tensor,
            tuple(v.shape[a] for a in axes),
            tuple(s * v.strides[a] for a, s in zip(axes, signs, strict=True)),
            v.offset + sum(n * v.strides[a] for a, n in zip(axes, skipped, strict=True)),
        )
        for v, skipped in zip(views, turned, strict=True)
    ]
    if axes and made[0].strides[-1] != 1:
        made = [dataclasses.replace(v, shape=(*v.shape, 1), strides=(*v.strides, 1)) for v in made]
    return tuple(made)


def _joins(view: View, axis: int, home: Allocation) -> bool:
    inner, outer = view.strides[axis + 1], view.strides[axis]
    if outer != view.shape[axis + 1] * inner:
        return False
    # Elements of a tensor with padding lie alike inside of a row only.
    return home.dense or inner == 0 or inner % home.row == 0


def _joined(view: View, axis: int) -> View:
    shape, strides = list(view.shape), list(view.strides)
    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    del strides[axis]
    return dataclasses.replace(view, shape=tuple(shape), strides=tuple(strides))
