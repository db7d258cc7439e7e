"""Operators of the host: the edges of a model, and nodes that the machine cannot execute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hw.errors import InputError
from sw.frontend.importer import Importer
from sw.frontend.lowering import collapsed
from sw.frontend.node import OnnxNode
from sw.frontend.sizes import Kind, inferred
from sw.frontend.values import Constant, Dequantised, FixedPoint, Quantisation, Stored, Value
from sw.graph.host import HostOperator, check_node, known_opset, node_of, run_node
from sw.graph.network import ELEMENTS, View, whole
from sw.graph.requantise import LIMITS
from sw.operators.registry import takes_padding

if TYPE_CHECKING:
    from onnx import NodeProto


def _proto(importer: Importer, node: OnnxNode, present: Sequence[bool]) -> tuple[NodeProto, int]:
    """A node for the host, and the opset with which the host executes it.

    It is the model's opset, or the nearest one that has the operator in this form.
    """
    domain, _, op = node.op.rpartition("::")
    proto = node_of(op, present, node.attributes, len(node.outputs), domain)
    return proto, known_opset(node.op, importer.model.opset, node.attributes)


def host_operator(
    importer: Importer,
    node: OnnxNode,
    operands: Sequence[View | None],
    output: View,
    result: int = 0,
    edge: bool = False,
    reason: str = "",
) -> View:
    """Appends a node that the host executes, and returns its result; raises `InputError` if it cannot."""
    given = tuple(view for view in operands if view is not None)
    proto, opset = _proto(importer, node, [v is not None for v in operands])
    elements = [importer.tensors[view.tensor].element for view in (*given, output)]
    check_node(proto, opset, elements[:-1], elements[-1], node.place)
    importer.operators.append(
        HostOperator(
            *(node.name, node.op, (node.name,), output, given, proto.SerializeToString()),
            *(opset, result, edge, reason),
        )
    )
    return output


def run(importer: Importer, node: OnnxNode, inputs: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    """Executes a node on given inputs with onnxruntime."""
    proto, opset = _proto(importer, node, [i in inputs for i in range(len(node.inputs))])
    arrays = {f"i{i}": inputs[key] for i, key in enumerate(sorted(inputs))}
    return run_node(proto, opset, arrays, node.place)


def quantised_input(importer: Importer, node: OnnxNode, value: Stored, grid: Quantisation) -> Stored:
    """QuantizeLinear of a float tensor; for inputs of the model, a part of loading them."""
    edge = value.view.tensor in importer.model.inputs
    if not edge:
        importer.refuse(node, reason := f"its input {node.inputs[0]!r} is computed in float32 on the host")
    if edge and grid.uniform:
        low, high = LIMITS[grid.element]
        zero, scale = int(grid.zero.item()), float(grid.scale.item())
        importer.ranges.setdefault(value.view.tensor, ((low - zero) * scale, (high - zero) * scale))
    output = importer.tensor(node.outputs[0], value.shape, grid.element)
    operands: list[View | None] = [value.view]
    for index, what in ((1, "the scale"), (2, "the zero point")):
        array = importer.fixed(node, index, what)
        operands.append(None if array is None else importer.constant(array, node.inputs[index]))
    view = host_operator(importer, node, operands, output, edge=edge, reason="" if edge else reason)
    return Stored(view, grid.element)


def outputs(importer: Importer) -> None:
    """Every output of the model as a tensor of its name."""
    for name in importer.model.outputs:
        if name in importer.model.inputs:
            continue
        if name not in importer.values and name in importer.model.constants:
            importer.values[name] = Constant(importer.model.constants[name])
        if name in importer.lost:
            continue
        if name not in importer.values:
            raise InputError(f"output {name!r}: no node computes it")
        _output(importer, name, importer.values[name])


def _output(importer: Importer, name: str, value: Value) -> None:
    node = importer.producers.get(name, OnnxNode(name, "Output", (), (name,)))
    if isinstance(value, Constant) and str(value.array.dtype) in ELEMENTS:
        value = Stored(importer.constant(value.array, f"{name}.constant"), str(value.array.dtype))
    match value:
        case Stored(view, element) if importer.movable(view):
            if view.tensor != name or view != whole(importer.tensors[name]):
                importer.copy(node, view, _named(importer, name, view.shape, element))
            return
        case Dequantised() if _dequantisable(value):
            dequantised(importer, node, value, _named(importer, name, value.shape, "float32"), edge=True)
            return
        case Stored(view, element):
            reason = f"the machine cannot move elements of {element}"
        case Constant(array):
            reason = _needs_host(importer, name, node)
            view, element = importer.constant(array, f"{name}.constant"), str(array.dtype)
        case _:
            reason = _needs_host(importer, name, node)
            view, element = hosted_value(importer, name, reason), "float32"
    if view.tensor != name:
        hosted = OnnxNode(f"{name}.output", "Identity", (name,), (name,))
        output = _named(importer, name, value.shape, element)
        host_operator(importer, hosted, [view], output, 0, view.tensor in importer.edges, reason)


def _needs_host(importer: Importer, name: str, node: OnnxNode) -> str:
    """Records that the host computes an output, and returns the reason."""
    text = f"{node.place} computes it in float32; it needs QuantizeLinear and DequantizeLinear before it"
    importer.refuse(node, importer.unfit.get(name, text), f"output {name!r}")
    return importer.refusals[-1].reason


def _named(importer: Importer, name: str, shape: Sequence[int], element: str) -> View:
    """The tensor of an output; another value that has the name gets a different one."""
    view = importer.tensor(name, shape, element)
    if view.tensor != name:
        importer.taken[name] = view.tensor
    return view


def dequantised(
    importer: Importer, node: OnnxNode, value: Dequantised, output: View, edge: bool, reason: str = ""
) -> View:
    """The real numbers of a tensor, by the host."""
    axes = _axes(value)
    if len(axes) > 1:
        raise node.error("scales must differ along one axis at most")
    places = tuple(slice(None) if a in axes else 0 for a in range(len(value.shape)))
    scale, zero = (np.broadcast_to(x, value.shape)[places] for x in (value.scale, value.zero))
    step = importer.constant(scale.astype(np.float32), f"{output.tensor}.scale")
    operands: list[View | None] = [value.view, step]
    if value.element != "int32":
        held = zero.astype(value.element)
        operands.append(importer.constant(held, f"{output.tensor}.zero"))
    attributes = {"axis": axes[0]} if axes else {}
    made = OnnxNode(node.name, "DequantizeLinear", ("",) * len(operands), (output.tensor,), attributes)
    return host_operator(importer, made, operands, output, edge=edge, reason=reason)


def _axes(value: Dequantised) -> list[int]:
    """The axes along which scale and zero point vary."""
    if value.uniform:
        return []
    pair = [collapsed(np.broadcast_to(x, value.shape)) for x in (value.scale, value.zero)]
    return [a for a in range(len(value.shape)) if any(x.shape[a] > 1 for x in pair)]


def _dequantisable(value: Dequantised) -> bool:
    """Whether DequantizeLinear gives a tensor's real numbers, within the bound for fixed point."""
    return len(_axes(value)) < 2 and not (isinstance(value, FixedPoint) and value.rough)


def hosted_value(importer: Importer, name: str, reason: str) -> View:
    """A name of the model as a tensor that the host can read, computed on the host if necessary."""
    if name in importer.hosted:
        return importer.hosted[name]
    value = importer.values.get(name)
    if value is None and name in importer.model.constants:
        value = Constant(importer.model.constants[name])
    match value:
        case Stored(view, _):
            found = view
        case Constant(array):
            found = importer.constant(array, name)
        case Dequantised() if _dequantisable(value):
            output = importer.tensor(f"{name}.real", value.shape, "float32")
            found = dequantised(importer, importer.producers[name], value, output, False, reason)
        case _:
            on_host(importer, importer.producers[name], reason)
            return importer.hosted[name]
    importer.hosted[name] = found
    return found


def on_host(importer: Importer, node: OnnxNode, reason: str, edge: bool = False) -> list[Value | None]:
    """Executes a node on the host, for a reason or at an edge: one operator per named output."""
    if node.op == "Dropout" and node.optional(2):
        raise node.error("in training mode its result changes from run to run, on the host too")
    read = f"{node.place}, which is on the host, reads it as real numbers"
    operands = [hosted_value(importer, name, read) if name else None for name in node.inputs]
    kinds = _inferred(importer, node, operands)
    found: list[Value | None] = []
    for index, (name, (shape, element)) in enumerate(zip(node.outputs, kinds, strict=True)):
        if not name:
            found.append(None)
            continue
        output = importer.tensor(name, shape, element)
        importer.hosted[name] = host_operator(importer, node, operands, output, index, edge, reason)
        (importer.edges if edge else importer.of_host).add(output.tensor)
        found.append(Stored(output, element))
    return found


def _inferred(
    importer: Importer, node: OnnxNode, operands: Sequence[View | None]
) -> list[tuple[tuple[int, ...], str]]:
    """Shape and type of every output of a node, by the shape inference of ONNX."""
    present: dict[int, Kind | np.ndarray] = {}
    for index, view in enumerate(operands):
        if view is not None:
            array = importer.array(view)
            dtype = np.dtype(importer.tensors[view.tensor].element)
            present[index] = (dtype, view.shape) if array is None else array
    if "::" in node.op:
        # Only onnxruntime knows operators of other domains; shapes do not depend on element values.
        arrays = {i: x if isinstance(x, np.ndarray) else np.zeros(x[1], x[0]) for i, x in present.items()}
        return [(array.shape, str(array.dtype)) for array in run(importer, node, arrays)]
    given = {node.inputs[index]: operand for index, operand in present.items()}
    try:
        kinds = inferred(node, importer.model.opset, given)
    except InputError as error:
        raise node.error(f"the host cannot execute it: {error}") from None
    found = [(kind[1], str(kind[0])) for kind in kinds if kind is not None and min(kind[1], default=1) > 0]
    if len(found) < len(kinds):
        raise node.error("the shape of its result must be known and without empty axes")
    return found


@takes_padding.register
def _(operator: HostOperator, view: View, row: int) -> bool:
    return True
