"""Operators of domain com.microsoft and the QLinear operators, as operators of the standard domain.

They are what onnxruntime's quantiser writes. An operator on quantised tensors becomes DequantizeLinear, the
operator, QuantizeLinear; products and convolutions become the sum of products of whole numbers, which is
scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sw.frontend.node import OnnxNode

MICROSOFT = "com.microsoft"


@dataclass
class _Parts:
    """The nodes that a node becomes; they have its name."""

    node: OnnxNode
    constants: dict[str, np.ndarray]
    nodes: list[OnnxNode] = field(default_factory=list)

    def add(
        self, op: str, inputs: Sequence[str], output: str = "", attributes: Mapping[str, Any] | None = None
    ) -> str:
        """Append a node; gives the name of its result."""
        output = output or f"{self.node.outputs[0]}.{len(self.nodes)}.{op}"
        self.nodes.append(OnnxNode(self.node.name, op, tuple(inputs), (output,), dict(attributes or {})))
        return output

    def constant(self, what: str, values: np.ndarray) -> str:
        """A constant of the node; gives its name."""
        name = f"{self.node.outputs[0]}.{what}"
        self.constants[name] = values
        return name

    def value(self, index: int, what: str) -> np.ndarray:
        """A constant input of the node; raises `InputError` for another one, and for a scale that is none."""
        name = self.node.optional(index)
        if name not in self.constants:
            raise self.node.error(f"{what} must be a constant, not {name!r}")
        found = self.constants[name]
        if what.endswith("scale") and not np.all(np.isfinite(found) & (found > 0)):
            wrong = found[~(np.isfinite(found) & (found > 0))]
            raise self.node.error(f"{what} must be positive, not {wrong.flat[0]}")
        return found

    def dequantised(self, index: int, axis: int | None = None) -> str:
        """The inputs from `index` on are a tensor, its scale and its zero point: the tensor's real values."""
        given = [self.node.optional(index + i) for i in range(3)]
        return self.add("DequantizeLinear", given, attributes={"axis": axis} if axis is not None else {})

    def quantised(self, value: str, index: int, axis: int | None = None) -> None:
        """The output, quantised by the scale and zero point that are inputs from `index` on."""
        given = [self.node.optional(index + i) for i in range(2)]
        attributes = {"axis": axis} if axis is not None else {}
        self.add("QuantizeLinear", [value, *given], self.node.outputs[0], attributes)


def expanded(node: OnnxNode, domain: str, constants: dict[str, np.ndarray]) -> list[OnnxNode]:
    """The nodes of the standard domain that a node is; new constants are added to `constants`.

    Raises `InputError` for other domains and operators.
    """
    rules = {"": _STANDARD, MICROSOFT: _MICROSOFT}.get(domain)
    if rules is None:
        raise node.error(f"operators of domain {domain!r} are not supported, only of '' and {MICROSOFT!r}")
    rule = rules.get(node.op)
    if rule is None:
        if domain == MICROSOFT:
            known = ", ".join(sorted(_MICROSOFT))
            raise node.error(f"the operator of domain {MICROSOFT!r} is not supported, only {known}")
        return [node]
    parts = _Parts(node, constants)
    rule(parts)
    return parts.nodes


def _rows(scale: np.ndarray) -> np.ndarray:
    """Scales of the rows of a matrix as they broadcast."""
    return scale[:, None] if scale.ndim == 1 and scale.size > 1 else scale


def _scaled(parts: _Parts, total: str, scale: np.ndarray, output: str = "") -> str:
    """A sum in whole numbers as the real number that it stands for."""
    real = parts.add("Cast", [total], attributes={"to": 1})
    return parts.add("Mul", [real, parts.constant("scale", scale.astype(np.float32))], output)


def _q_linear_mat_mul(parts: _Parts) -> None:
    a, _, zero_a, b, _, zero_b, *_ = parts.node.inputs
    scale = np.float32(1) * _rows(parts.value(1, "a_scale")) * parts.value(4, "b_scale")
    total = parts.add("MatMulInteger", [a, b, zero_a, zero_b])
    axis = -2 if parts.value(6, "y_scale").size > 1 else None
    parts.quantised(_scaled(parts, total, scale), 6, axis)


def _q_linear_conv(parts: _Parts) -> None:
    node = parts.node
    x, _, zero_x, w, _, zero_w, *_ = node.inputs
    scale = np.float32(1) * parts.value(1, "x_scale") * parts.value(4, "w_scale")
    kernel = node.attributes.get("kernel_shape")
    if kernel is None and w not in parts.constants:
        raise node.error("kernel_shape is needed where the weights are no constant")
    axes = len(kernel) if kernel is not None else parts.constants[w].ndim - 2
    along = (-1, *(1,) * axes)
    total = parts.add("ConvInteger", [x, w, zero_x, zero_w], attributes=node.attributes)
    if node.optional(8):
        bias = parts.constant("bias", parts.value(8, "B").reshape(along))
        total = parts.add("Add", [total, bias])
    parts.quantised(_scaled(parts, total, scale.reshape(along) if scale.size > 1 else scale), 6)


def _q_gemm(parts: _Parts) -> None:
    node = parts.node
    swapped = bool(node.attributes.get("transB", 0))
    scale = np.float32(1) * parts.value(1, "a_scale") * parts.value(4, "b_scale")
    given = [parts.dequantised(0), parts.dequantised(3, 0 if swapped else 1)]
    if node.optional(6):
        bias = [node.inputs[6], parts.constant("bias_scale", scale)]
        given.append(parts.add("DequantizeLinear", bias, attributes={"axis": 0}))
    alpha = float(node.attributes.get("alpha", 1.0))
    layout = {k: v for k, v in node.attributes.items() if k in ("transA", "transB")}
    edge = "" if node.optional(7) or alpha != 1 else node.outputs[0]
    real = parts.add("Gemm", given, edge, layout)
    if alpha != 1:
        factor = parts.constant("alpha", np.asarray(alpha, np.float32))
        real = parts.add("Mul", [real, factor], "" if node.optional(7) else node.outputs[0])
    if node.optional(7):
        parts.quantised(real, 7)


def _mat_mul_integer_to_float(parts: _Parts) -> None:
    a, b, *_ = parts.node.inputs
    scale = np.float32(1) * _rows(parts.value(2, "a_scale")) * parts.value(3, "b_scale")
    _real_product(parts, [a, b, parts.node.optional(4), parts.node.optional(5)], scale, 6)


def _dynamic_quantize_mat_mul(parts: _Parts) -> None:
    node = parts.node
    names = tuple(f"{node.outputs[0]}.{what}" for what in ("quantised", "scale", "zero"))
    parts.nodes.append(OnnxNode(node.name, "DynamicQuantizeLinear", (node.inputs[0],), names))
    total = parts.add("MatMulInteger", [names[0], node.inputs[1], names[2], node.optional(3)])
    real = parts.add("Cast", [total], attributes={"to": 1})
    scale = parts.add("Mul", [names[1], node.inputs[2]])
    bias = node.optional(4)
    real = parts.add("Mul", [real, scale], "" if bias else node.outputs[0])
    if bias:
        parts.add("Add", [real, bias], node.outputs[0])


def _real_product(parts: _Parts, operands: Sequence[str], scale: np.ndarray, bias: int) -> None:
    total = parts.add("MatMulInteger", operands)
    added = parts.node.optional(bias)
    real = _scaled(parts, total, scale, "" if added else parts.node.outputs[0])
    if added:
        parts.add("Add", [real, added], parts.node.outputs[0])


def _binary(op: str) -> Callable[[_Parts], None]:
    def rule(parts: _Parts) -> None:
        parts.quantised(parts.add(op, [parts.dequantised(0), parts.dequantised(3)]), 6)

    return rule


def _unary(op: str) -> Callable[[_Parts], None]:
    def rule(parts: _Parts) -> None:
        if parts.node.attributes.get("channels_last", 0):
            raise parts.node.error(
                "channels must come before rows and columns, channels_last is not supported"
            )
        attributes = {k: v for k, v in parts.node.attributes.items() if k != "channels_last"}
        parts.quantised(parts.add(op, [parts.dequantised(0)], attributes=attributes), 3)

    return rule


def _concat(parts: _Parts) -> None:
    count = (len(parts.node.inputs) - 2) // 3
    given = [parts.dequantised(2 + 3 * i) for i in range(count)]
    parts.quantised(parts.add("Concat", given, attributes=parts.node.attributes), 0)


def _where(parts: _Parts) -> None:
    given = [parts.node.inputs[0], parts.dequantised(1), parts.dequantised(4)]
    parts.quantised(parts.add("Where", given), 7)


def _plain(op: str) -> Callable[[_Parts], None]:
    def rule(parts: _Parts) -> None:
        parts.add(op, parts.node.inputs, parts.node.outputs[0], parts.node.attributes)

    return rule


def _bias_gelu(approximate: str) -> Callable[[_Parts], None]:
    def rule(parts: _Parts) -> None:
        node = parts.node
        x = parts.add("Add", node.inputs[:2]) if node.optional(1) else node.inputs[0]
        parts.add("Gelu", [x], node.outputs[0], {"approximate": approximate})

    return rule


def _quick_gelu(parts: _Parts) -> None:
    x = parts.node.inputs[0]
    alpha = parts.constant("alpha", np.asarray(parts.node.attributes.get("alpha", 1.702), np.float32))
    parts.add("Mul", [x, parts.add("Sigmoid", [parts.add("Mul", [x, alpha])])], parts.node.outputs[0])


def _skip_layer_normalization(parts: _Parts) -> None:
    node = parts.node
    if any(node.outputs[1:3]):
        raise node.error("mean and deviation as outputs are not supported")
    total = parts.add("Add", node.inputs[:2])
    if node.optional(4):
        total = parts.add("Add", [total, node.inputs[4]])
    if len(node.outputs) > 3 and node.outputs[3]:
        parts.nodes[-1] = OnnxNode(
            parts.nodes[-1].name, "Add", parts.nodes[-1].inputs, (node.outputs[3],), {}
        )
        total = node.outputs[3]
    given = [total, node.inputs[2], *([node.inputs[3]] if node.optional(3) else [])]
    epsilon = node.attributes.get("epsilon", 1e-12)
    parts.add("LayerNormalization", given, node.outputs[0], {"axis": -1, "epsilon": epsilon})


_STANDARD: dict[str, Callable[[_Parts], None]] = {
    "QLinearMatMul": _q_linear_mat_mul,
    "QLinearConv": _q_linear_conv,
}
_MICROSOFT: dict[str, Callable[[_Parts], None]] = {
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearSoftmax": _unary("Softmax"),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearAveragePool": _unary("AveragePool"),
    "QLinearReduceMean": _unary("ReduceMean"),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QGemm": _q_gemm,
    "MatMulIntegerToFloat": _mat_mul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_quantize_mat_mul,
    "Gelu": _plain("Gelu"),
    "BiasGelu": _bias_gelu("none"),
    "FastGelu": _bias_gelu("tanh"),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
    "QuantizeLinear": _plain("QuantizeLinear"),
    "DequantizeLinear": _plain("DequantizeLinear"),
}
