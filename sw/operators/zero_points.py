"""Zero points that differ from row to row, on an array that subtracts one from the whole operand.

The sum over k of (a_k - z_m) * b_k, with z_m the row's own zero point, equals the sum of (a_k - z) * b_k
plus that of (c_m - z) * b_k, where c_m = 2 z - z_m: the operand gets as many steps of depth again, filled
with c_m, and the other operand is repeated. There is a z for which every c_m fits the type, except where the
zero points differ by the whole range of it; then two such fills share the difference.
"""

from __future__ import annotations

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Stored
from sw.graph.network import View
from sw.operators.host import host_operator


def common_zero(zeros: np.ndarray, dtype: np.dtype) -> tuple[int, list[np.ndarray]]:
    """One zero point for the whole operand, and the fills that make up for it.

    `zeros` are the zero points of the rows, of the operand's type `dtype` (int8 or uint8); the fills have
    their shape and type. There are none where all zero points are equal.
    """
    values = zeros.astype(np.int64)
    low, high = int(values.min()), int(values.max())
    if low == high:
        return low, []
    limits = np.iinfo(dtype)
    for count in (1, 2):
        # count fills c with sum(c) = (count + 1) * z - z_m, each within the type.
        least = -(-(count * limits.min + high) // (count + 1))
        most = (count * limits.max + low) // (count + 1)
        if least <= most:
            break
    zero = min(max(least, limits.min), most)
    left = (count + 1) * zero - values
    fills = []
    for i in range(count, 0, -1):
        part = left // i
        fills.append(part.astype(dtype))
        left = left - part
    return zero, fills


def at_edges(importer: Importer, node: OnnxNode, *operands: Stored) -> bool:
    """Whether a node gives an output of the model and reads nothing but inputs and constants of it."""
    tensors = [importer.tensors[x.view.tensor] for x in operands]
    given = all(t.constant is not None or t.name in importer.model.inputs for t in tensors)
    return given and node.outputs[0] in importer.model.outputs


def extended(importer: Importer, node: OnnxNode, x: Stored, axis: int, fills: list[np.ndarray]) -> Stored:
    """An operand with the steps of depth that fills add; the host appends them when it hands an input in."""
    more = [np.ascontiguousarray(np.broadcast_to(fill, x.shape)) for fill in fills]
    hint = f"{node.outputs[0]}.filled"
    held = importer.array(x.view)
    if held is not None:
        return Stored(importer.constant(np.concatenate([held, *more], axis), hint), x.element)
    views = [x.view, *(importer.constant(fill, f"{hint}.with") for fill in more)]
    shape = list(x.shape)
    shape[axis] *= len(views)
    return _handed_in(importer, node, "Concat", views, importer.tensor(hint, shape, x.element), axis)


def repeated(importer: Importer, node: OnnxNode, x: Stored, axis: int, indices: np.ndarray) -> Stored:
    """The other operand with the depth that belongs to the fills, which the host repeats."""
    hint = f"{node.outputs[0]}.repeated"
    held = importer.array(x.view)
    if held is not None:
        return Stored(importer.constant(np.take(held, indices, axis), hint), x.element)
    shape = list(x.shape)
    shape[axis] = len(indices)
    views = [x.view, importer.constant(indices.astype(np.int64), f"{hint}.order")]
    return _handed_in(importer, node, "Gather", views, importer.tensor(hint, shape, x.element), axis)


def _handed_in(
    importer: Importer, node: OnnxNode, op: str, views: list[View], output: View, axis: int
) -> Stored:
    """What the host does to an operand before the machine starts."""
    made = OnnxNode(node.name, op, ("",) * len(views), ("",), {"axis": axis % len(output.shape)})
    host_operator(importer, made, views, output, edge=True)
    return Stored(output, importer.tensors[output.tensor].element)
