"""Quantisation with a scale that is found at run time: its float32 is computed at the edges of the model.

What onnxruntime's `quantize_dynamic` writes is DynamicQuantizeLinear, a product of whole numbers, and what
scales it. The host quantises inputs of the model, multiplies scales, and scales what the machine leaves where
only outputs of the model follow. Between two products float32 is the host's, which must be allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Constant, Dequantised, Stored, Value
from sw.graph.network import View
from sw.operators.host import dequantised, host_operator
from sw.operators.registry import imports


@imports("DynamicQuantizeLinear")
def _dynamic(importer: Importer, node: OnnxNode) -> list[Value]:
    value = importer.value(node, 0)
    if not isinstance(value, Stored) or value.element != "float32":
        raise node.error("its input must be float32; QuantizeLinear of a fixed scale keeps it on the machine")
    if value.view.tensor not in importer.model.inputs:
        raise node.error("its input is computed in float32 on the host; static quantisation avoids that")
    made: list[Value] = []
    kinds = (value.shape, "uint8"), ((), "float32"), ((), "uint8")
    for index, (name, (shape, element)) in enumerate(zip(node.outputs, kinds, strict=True)):
        output = importer.tensor(name, shape, element)
        host_operator(importer, node, [value.view], output, index, edge=True)
        importer.edges.add(output.tensor)
        made.append(Stored(output, element))
    return made


def at_edge(importer: Importer, node: OnnxNode, op: str, values: Sequence[Value]) -> Stored | None:
    """An operator on scales found at run time, or on sums times such; None for others."""
    stored = [v for v in values if isinstance(v, Stored)]
    if not stored or any(v.view.tensor not in importer.edges or v.element != "float32" for v in stored):
        return None
    views: list[View] = []
    for value in values:
        match value:
            case Stored(view, _):
                views.append(view)
            case Constant(array):
                views.append(importer.constant(array.astype(np.float32), f"{node.outputs[0]}.number"))
            case Dequantised():
                real = importer.tensor(f"{node.outputs[0]}.real", value.shape, "float32")
                views.append(dequantised(importer, node, value, real, edge=True))
            case _:
                return None
    shape = np.broadcast_shapes(*(view.shape for view in views))
    output = importer.tensor(node.outputs[0], shape, "float32")
    attributes = node.attributes if op == node.op else {}
    made = OnnxNode(node.name, op, ("",) * len(views), (output.tensor,), attributes)
    host_operator(importer, made, views, output, edge=True)
    importer.edges.add(output.tensor)
    return Stored(output, "float32")
