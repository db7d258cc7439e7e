"""Quantisation with a scale computed at run time.

onnxruntime's `quantize_dynamic` writes DynamicQuantizeLinear, an integer matrix product, and the scaling of
its result. The host quantises inputs of the model, and scales results if only outputs of the model follow.
Between two products, the machine computes float32 bit for bit (`floats.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Constant, Dequantised, Stored, Value
from sw.graph import float32
from sw.graph.expression import Argument, Number
from sw.graph.float32 import SIGN, apply, number
from sw.graph.network import View
from sw.graph.requantise import clamped
from sw.operators.extremes import extreme
from sw.operators.floats import float_view, made_here, not_negative, quantised_again
from sw.operators.host import dequantised, host_operator
from sw.operators.registry import imports


@imports("DynamicQuantizeLinear")
def _dynamic(importer: Importer, node: OnnxNode) -> list[Value]:
    value = importer.value(node, 0)
    if not isinstance(value, Stored) or value.view.tensor not in importer.model.inputs:
        real = float_view(importer, node, value)
        if real is None:
            raise node.error(f"its input {node.inputs[0]!r} is computed in float32 on the host")
        return _on_machine(importer, node, real)
    if value.element != "float32":
        raise node.error("its input must be float32; QuantizeLinear of a fixed scale keeps it on the machine")
    made: list[Value] = []
    kinds = (value.shape, "uint8"), ((), "float32"), ((), "uint8")
    for index, (name, (shape, element)) in enumerate(zip(node.outputs, kinds, strict=True)):
        output = importer.tensor(name, shape, element)
        host_operator(importer, node, [value.view], output, index, edge=True)
        importer.edges.add(output.tensor)
        made.append(Stored(output, element))
    return made


def _on_machine(importer: Importer, node: OnnxNode, x: View) -> list[Value]:
    """Quantisation by the range of a tensor, including 0: elements, scale and zero point."""
    name, scale_name, zero_name = node.outputs
    flat = importer.reshaped(node, x, (x.elements,))
    most = extreme(importer, node, flat, 0, f"{name}.most")
    positive = not_negative(importer, node.inputs[0])
    least = None if positive else extreme(importer, node, flat, SIGN, f"{name}.least")
    between = most
    if least is not None:
        value = float32.total(Argument(0), Argument(1))
        between = importer.elementwise(node, value, [most, least], (), "float32", f"{name}.range").view
    steps_of = float32.divisor(number(255.0))
    found = float32.quotient(Argument(0), steps_of, Number(0))
    scale = importer.elementwise(
        node, apply("select", found, found, number(1.0)), [between], (), "float32", scale_name
    )
    inverse = importer.elementwise(
        node, float32.divisor(Argument(0)).inverse, [scale.view], (), "int32", f"{scale_name}.inverse"
    )
    by = dataclasses.replace(float32.parts(Argument(1)), inverse=Argument(2))
    value = float32.steps(Argument(0), by)
    zero: Value = Constant(np.zeros((), np.uint8))
    operands = [x, scale.view, inverse.view]
    if least is not None:
        limited = clamped(value, 0, 255)
        zero = importer.elementwise(node, limited, [least, *operands[1:]], (), "uint8", zero_name)
        value = apply("add", value, Argument(3))
        operands.append(zero.view)
    whole = importer.elementwise(node, clamped(value, 0, 255), operands, x.shape, "uint8", name)
    return [whole, scale, zero]


#: Host operators if the float32 that it scales goes only to outputs of the model.
_BEHIND = (
    *(
        "AveragePool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LogSoftmax",
        "MaxPool",
        "ReduceMax",
        "ReduceMean",
    ),
    *("ReduceSum", "Softmax"),
)


def behind(importer: Importer, node: OnnxNode) -> bool:
    """Whether a node is at the edge of the model: on float32 after the last product."""
    if node.op not in _BEHIND or node.outputs[0] in quantised_again(importer):
        return False
    value = importer.values.get(node.inputs[0])
    return isinstance(value, Stored) and value.element == "float32" and _scaled(importer, value.view)


def _scaled(importer: Importer, view: View) -> bool:
    """Whether a float32 value is scaled by the host after the machine, or computed by the machine."""
    return view.tensor in importer.edges or made_here(importer, view)


def at_edge(importer: Importer, node: OnnxNode, op: str, values: Sequence[Value]) -> Stored | None:
    """An operator on scales computed at run time, or on sums times such scales; None for others."""
    stored = [v for v in values if isinstance(v, Stored)]
    if not stored or any(v.element != "float32" or not _scaled(importer, v.view) for v in stored):
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
