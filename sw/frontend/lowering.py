"""Builds the expression for one QuantizeLinear: its operands and constants."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.values import Quantisation
from sw.graph.expression import Apply, Argument, Expression, Lookup, Number, changed, evaluate, walk
from sw.graph.fuse import substitute
from sw.graph.network import View
from sw.graph.requantise import LIMITS
from sw.graph.views import broadcast, same_places

#: Most elements of a constant computed from others; each takes four bytes.
_MOST_COMPUTED = 1 << 16


@dataclass
class Lowering:
    """The expression for one QuantizeLinear under construction: its operands so far."""

    importer: Importer
    shape: tuple[int, ...]
    grid: Quantisation
    views: list[View] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.low, self.high = LIMITS[self.grid.element]
        self.node = self.grid.node

    def operand(self, view: View) -> Argument:
        """The operand for a view with the result's shape."""
        view = broadcast(view, self.shape)
        for index, known in enumerate(self.views):
            if same_places(known, view):
                return Argument(index)
        self.views.append(view)
        return Argument(len(self.views) - 1)

    def numbers(self, array: np.ndarray, hint: str, element: str = "int32") -> Expression:
        """Integers: one for all elements, or a constant operand in which constant axes have size 1."""
        array = collapsed(array)
        if array.size == 1:
            return Number(int(array.item()))
        return self.operand(self.importer.constant(array.astype(element), f"{self.node.outputs[0]}.{hint}"))

    def settled(self, value: Expression) -> Expression:
        """The expression with constants folded, and only the operands that remain."""
        value = self._computed(value)
        used = sorted({e.index for e in walk(value) if isinstance(e, Argument)})
        self.views = [self.views[index] for index in used]
        return substitute(value, {index: Argument(place) for place, index in enumerate(used)})

    def _computed(self, value: Expression) -> Expression:
        indices = {e.index for e in walk(value) if isinstance(e, Argument)}
        arrays = {i: self.importer.array(self.views[i]) for i in indices}
        # Axes that a view repeats have one element.
        held = {
            i: a[tuple(slice(0, None if stride else 1) for stride in a.strides)]
            for i, a in arrays.items()
            if a is not None
        }
        # An operand stays an operand.
        if isinstance(value, Apply | Lookup) and indices and len(held) == len(arrays):
            given = [held.get(i, np.zeros((), np.int8)) for i in range(len(self.views))]
            if math.prod(np.broadcast_shapes(*(a.shape for a in given))) <= _MOST_COMPUTED:
                return self.numbers(evaluate(value, given), "computed")
        return changed(value, self._computed)

    def on_grid(self, array: np.ndarray) -> np.ndarray:
        """Real numbers, quantised as QuantizeLinear does."""
        if np.isnan(array).any():
            raise self.node.error("values to quantise must be numbers, not NaN")
        with np.errstate(over="ignore"):
            steps = np.rint(array.astype(np.float32) / self.grid.scale).astype(np.float64) + self.grid.zero
        return np.asarray(np.clip(steps, self.low, self.high), np.int64)


def collapsed(array: np.ndarray) -> np.ndarray:
    """An array with size 1 along the axes along which it is constant."""
    for axis in range(array.ndim):
        part = np.take(array, [0], axis)
        same = array.strides[axis] == 0 or np.array_equal(np.broadcast_to(part, array.shape), array)
        array = part if same else array
    return array
