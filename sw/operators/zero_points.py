"""Zero points of the operands of products and convolutions.

The array subtracts one zero point from the whole operand. If zero points differ by row, the sum over k of
(a_k - z_m) * b_k, with z_m the row's own zero point, equals the sum of (a_k - z) * b_k plus that of (c_m - z)
* b_k, where c_m = 2 z - z_m. So the depth of the operand is doubled with steps filled with c_m, and the other
operand is repeated. There is a z for which every c_m fits the type, unless the zero points differ by the
type's whole range; then two such fills share the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Constant, Stored
from sw.graph.network import View
from sw.operators.host import host_operator, run


@dataclass(frozen=True)
class Zeros:
    """Zero points of an operand: one subtracted from all elements, and the difference of each row or column.

    `more` broadcasts to the result; None if all zero points are equal.
    """

    base: int
    more: View | None = None

    def array(self, importer: Importer) -> np.ndarray | None:
        """Zero points that differ, broadcast to the result; None if they are equal or computed."""
        held = None if self.more is None else importer.array(self.more)
        return None if held is None else held + self.base

    def all(self, importer: Importer) -> np.ndarray | None:
        """All zero points, or one if they are equal; None if they are computed."""
        return np.asarray(self.base) if self.more is None else self.array(importer)


def zeros(
    importer: Importer, array: np.ndarray, hint: str, along: Callable[[np.ndarray], np.ndarray]
) -> Zeros:
    """Zero points from an array; `along` gives it the axes with which it broadcasts to the result."""
    values = array.astype(np.int32)
    base = int(values.flat[0])
    if np.all(values == base):
        return Zeros(base)
    return Zeros(base, importer.constant(along(values - base), f"{hint}.more"))


def zero_points(
    importer: Importer,
    node: OnnxNode,
    index: int,
    operand: Stored,
    shape: tuple[int, ...],
    along: Callable[[np.ndarray], np.ndarray],
) -> Zeros:
    """The zero points of input `index`: one, a vector along `along`, or an array of `shape`."""
    if not node.optional(index):
        return Zeros(0)
    value = importer.value(node, index)
    found = value.array.dtype if isinstance(value, Constant) else getattr(value, "element", "real")
    if str(found) != operand.element:
        raise node.error(f"zero points must be {operand.element} like their operand, not {found}")
    size = math.prod(value.shape)
    if size != 1 and value.shape != shape and value.shape != (max(shape),):
        raise node.error(
            f"zero points must be one value, a vector of {max(shape)} or of shape {list(shape)}, "
            f"not {list(value.shape)}"
        )
    if isinstance(value, Constant):
        return zeros(importer, value.array, node.outputs[0], along)
    assert isinstance(value, Stored)
    pattern = along(np.zeros(value.shape, np.int8)).shape
    return Zeros(0, importer.reshaped(node, value.view, pattern))


def at_edges(importer: Importer, node: OnnxNode, *operands: Stored) -> bool:
    """Whether a node gives an output of the model and reads only its inputs and constants."""
    tensors = [importer.tensors[x.view.tensor] for x in operands]
    given = all(t.constant is not None or t.name in importer.model.inputs for t in tensors)
    return given and node.outputs[0] in importer.model.outputs


def deepened(
    importer: Importer,
    node: OnnxNode,
    x: Stored,
    zeros: np.ndarray,
    axis: int,
    other: Stored,
    across: int,
    groups: int = 1,
) -> tuple[Stored, Zeros, Stored]:
    """An operand with one zero point, deeper along an axis, and the other one with the depth repeated.

    `zeros` are the zero points, which broadcast to the operand.
    """
    zero, fills = _common_zero(zeros, np.dtype(x.element))
    depth = np.arange(other.shape[across]).reshape(groups, -1)
    order = np.tile(depth, len(fills) + 1).reshape(-1)
    more = [np.broadcast_to(fill, x.shape) for fill in fills]
    deep = _handed_in(importer, node, "Concat", x, more, axis, f"{node.outputs[0]}.filled")
    again = _handed_in(importer, node, "Gather", other, [order], across, f"{node.outputs[0]}.repeated")
    return deep, Zeros(zero), again


def _common_zero(zeros: np.ndarray, dtype: np.dtype) -> tuple[int, list[np.ndarray]]:
    """One zero point for the whole operand, int8 or uint8, and the fills that compensate for it."""
    values = zeros.astype(np.int64)
    low, high = int(values.min()), int(values.max())
    limits = np.iinfo(dtype)
    for count in (1, 2):
        # `count` fills c with sum(c) = (count + 1) * z - z_m, each within the type.
        least = -(-(count * limits.min + high) // (count + 1))
        most = (count * limits.max + low) // (count + 1)
        if least <= most:
            break
    zero = min(max(least, limits.min), most)
    left = (count + 1) * zero - values
    fills = []
    for i in range(count, 0, -1):
        fills.append((left // i).astype(dtype))
        left = left - left // i
    return zero, fills


def _handed_in(
    importer: Importer,
    node: OnnxNode,
    op: str,
    x: Stored,
    others: Sequence[np.ndarray],
    axis: int,
    hint: str,
) -> Stored:
    """An operator on an operand and constants: computed now, or by the host before the machine starts."""
    count = 1 + len(others)
    made = OnnxNode(node.name, op, ("",) * count, ("",), {"axis": axis % len(x.shape)})
    held = importer.array(x.view)
    given = np.zeros(x.shape, x.element) if held is None else held
    (result,) = run(importer, made, dict(enumerate([given, *others])))
    if held is not None:
        return Stored(importer.constant(result, hint), x.element)
    views = [x.view, *(importer.constant(array, f"{hint}.with") for array in others)]
    output = importer.tensor(hint, result.shape, x.element)
    return Stored(host_operator(importer, made, views, output, edge=True), x.element)
