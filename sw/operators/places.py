"""Data movement: a map of element indices becomes a few copies of views.

A map says for every element of a result which element of the operands it is. Reshapes, transposes, slices,
gathers by constants, pads, repeats and nearest neighbours are such maps. Each is split into boxes, which
strides can describe.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.graph.expression import Integers, Number
from sw.graph.network import View
from sw.graph.views import reshaped, sliced, strided


@dataclass(frozen=True)
class Boxes:
    """The positions of whole operands in a result that is otherwise filled; needs no element map.

    Only one operand may leave elements to be filled.
    """

    shape: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]


#: Map entry of an element that gets the fill value.
FILL = -1
#: Most copies for a map; each is a separate operator.
MOST_BOXES = 64


def assembled(
    importer: Importer,
    node: OnnxNode,
    views: Sequence[View],
    places: Integers | Boxes,
    element: str,
    name: str,
    fill: int = 0,
) -> View:
    """Assembles the elements at these positions of the views, numbered one view after the other.

    `fill` is the word stored where the map holds `FILL`, or where there is no box. Raises `InputError` if too
    many copies are needed.
    """
    for view in views:
        importer.check_movable(node, view)
    if isinstance(places, Boxes):
        return _boxed(importer, node, views, places, importer.tensor(name, places.shape, element), fill)
    starts = np.cumsum([0, *(view.elements for view in views)])
    labels = np.where(places < 0, FILL, np.searchsorted(starts, places, "right") - 1)
    numbers = np.concatenate([*(view.numbers.reshape(-1) for view in views), [FILL]])[places]
    output = importer.tensor(name, places.shape, element)
    for target, label, source in _boxes(node, output, numbers, labels):
        if label == FILL:
            importer.write(node, target, Number(fill))
        else:
            view = View(views[label].tensor, source.shape, source.strides, source.offset)
            importer.copy(node, view, target)
    return output


def _boxed(
    importer: Importer, node: OnnxNode, views: Sequence[View], boxes: Boxes, output: View, fill: int
) -> View:
    """Copies every operand to its position, and fills around the first one."""
    for view, start in zip(views, boxes.starts, strict=True):
        target = output
        for axis, begin in enumerate(start):
            target = sliced(target, axis, begin, view.shape[axis])
        importer.copy(node, view, target)
    # The regions around an operand, each inside those of the axes before.
    inside = output
    for axis, begin in enumerate(boxes.starts[0]) if len(views) == 1 else ():
        size = views[0].shape[axis]
        end = begin + size
        for low, count in ((0, begin), (end, output.shape[axis] - end)):
            if count:
                importer.write(node, sliced(inside, axis, low, count), Number(fill))
        inside = sliced(inside, axis, begin, size)
    return output


def _boxes(node: OnnxNode, output: View, numbers: Integers, labels: Integers) -> list[tuple[View, int, View]]:
    """Parts of the output that are not filled: their sources and their elements."""
    found: list[tuple[View, int, View]] = []
    waiting = [(output, numbers, labels)]
    while waiting:
        target, part, label = waiting.pop()
        first = int(label.flat[0])
        source = strided("", part) if np.all(label == first) else None
        if source is not None:
            found.append((target, first, source))
        else:
            waiting += _divided(target, part, label)
        if len(found) + len(waiting) > MOST_BOXES:
            raise node.error(f"moving its elements takes more than {MOST_BOXES} copies")
    return found


_Part = tuple[View, Integers, Integers]


def _divided(target: View, part: Integers, label: Integers) -> list[_Part]:
    """A part of a map split into smaller ones, or seen with one more axis."""
    mixed = bool(np.any(label != label.flat[0]))
    for axis, size in enumerate(part.shape):
        steps = np.diff(np.moveaxis(label if mixed else part, axis, -1).reshape(-1, size), axis=1)
        if np.all(steps == steps[:1]):
            steps = steps[:1]
        changes = (np.flatnonzero(np.any(steps != 0, axis=0)) + 1).tolist() if mixed else []
        if len(changes) if mixed else not np.all(steps == steps[:, :1]):
            period = _period(steps, size)
            if period is not None:
                shape = (*part.shape[:axis], size // period, period, *part.shape[axis + 1 :])
                view = reshaped(target, shape)
                assert view is not None
                return [(view, part.reshape(shape), label.reshape(shape))]
            ends = [0, *changes, size] if mixed else _runs(steps, size)
            return _cut(target, part, label, axis, ends)
    # Each line is regular, but lines differ.
    axis = next(a for a, size in enumerate(part.shape) if size > 1)
    return _cut(target, part, label, axis, range(part.shape[axis] + 1))


def _cut(target: View, part: Integers, label: Integers, axis: int, ends: Sequence[int]) -> list[_Part]:
    """Pieces along an axis, from each end to the next."""
    if len(ends) > MOST_BOXES + 1:
        # That is more than allowed in any case.
        ends = [*range(MOST_BOXES + 1), part.shape[axis]]
    made = []
    for low, high in itertools.pairwise(ends):
        inside = (slice(None),) * axis + (slice(low, high),)
        made.append((sliced(target, axis, low, high - low), part[inside], label[inside]))
    return made


def _period(steps: Integers, size: int) -> int | None:
    """The length of equal, equally spaced blocks along an axis; None if it has none."""
    offsets = np.pad(np.cumsum(steps, axis=1), ((0, 0), (1, 0)))
    for period in (n for n in range(2, size // 2 + 1) if size % n == 0):
        blocks = offsets.reshape(len(offsets), -1, period)
        starts = np.diff(blocks[:, :, 0], axis=1)
        inner = blocks - blocks[:, :, :1]
        if np.all(starts == starts[:, :1]) and np.all(inner == inner[:, :1]):
            return period
    return None


def _runs(steps: Integers, size: int) -> list[int]:
    """The starts of runs of equal steps, and the end of the last one."""
    ends = [0]
    while ends[-1] < size and len(ends) <= MOST_BOXES:
        rest = steps[:, ends[-1] :]
        changes = np.flatnonzero(np.any(rest != rest[:, :1], axis=0))
        ends.append(ends[-1] + int(changes[0]) + 1 if len(changes) else size)
    return ends if ends[-1] == size else [*ends, size]
