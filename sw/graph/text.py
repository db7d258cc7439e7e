"""Prints a network as text, one line per operator."""

from __future__ import annotations

from sw.graph.expression import Expression, operations
from sw.graph.host import HostOperator
from sw.graph.network import (
    Elementwise,
    Epilogue,
    ImageConvolution,
    MatrixProduct,
    Network,
    Operator,
    Tensor,
    View,
    whole,
)


def text(network: Network) -> str:
    """Inputs, outputs, and the operators in order with their shapes, nodes and fused operators."""
    lines = [f"network {network.name}"]
    for kind, names in (("input", network.inputs), ("output", network.outputs)):
        lines += [f"  {kind} {_typed(network.tensors[name])}" for name in names]
    for number, operator in enumerate(network.operators):
        lines.append(f"  {number}: {line(operator, network)}")
    return "\n".join(lines)


def line(operator: Operator, network: Network) -> str:
    """One operator: name, kind, result, operands, nodes, epilogue."""
    where = ""
    if isinstance(operator, HostOperator):
        where = " on the host (edge)" if operator.edge else " on the host"
    operands = ", ".join(_view(view, network) for view in operator.inputs)
    result = f"{_view(operator.output, network)} = {operator.op}({operands}){where}"
    fused = [node for node in operator.nodes if node != operator.name]
    parts = [f"{operator.name}: {result}"]
    if fused:
        parts.append("fused " + " ".join(fused))
    value = _expression(operator)
    if value is not None:
        parts.append(f"{operations(value)} operations per element")
    return "; ".join(parts)


def _expression(operator: Operator) -> Expression | None:
    """The expression computed for each element of the result, if there is one."""
    match operator:
        case Elementwise(value=value):
            return value
        case MatrixProduct(epilogue=Epilogue(value=value)) | ImageConvolution(epilogue=Epilogue(value=value)):
            return value
    return None


def _typed(tensor: Tensor) -> str:
    return f"{tensor.name} {tensor.element}{list(tensor.shape)}"


def _view(view: View, network: Network) -> str:
    tensor = network.tensors[view.tensor]
    if view == whole(tensor):
        return _typed(tensor)
    strides = "x".join(map(str, view.strides))
    start = f"+{view.offset}" if view.offset else ""
    return f"{tensor.name}{start} {tensor.element}{list(view.shape)} by {strides or '-'}"
