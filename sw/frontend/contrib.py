"""Operators of domain com.microsoft and the QLinear operators, as operators of the standard domain.

They are what onnxruntime's quantiser writes. An operator on quantised tensors becomes DequantizeLinear, the
operator, QuantizeLinear.
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

    def dequantised(self, *places: int, axis: int | None = None) -> str:
        """The inputs at these places are a tensor, its scale and its zero point: the tensor's real values."""
        given = [self.node.optional(place) for place in places]
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


def _scale(parts: _Parts, a: int, b: int, names: str = "ab") -> np.ndarray:
    """The scale of a product of the operands whose scales these inputs are."""
    one, other = (parts.value(i, f"{name}_scale") for i, name in zip((a, b), names, strict=True))
    return np.asarray(np.float32(1) * one.reshape(-1) * other)


def _q_linear_mat_mul(parts: _Parts) -> None:
    _scale(parts, 1, 4)
    rows = -2 if parts.value(6, "y_scale").size > 1 else None
    operands = [parts.dequantised(0, 1, 2, axis=-2), parts.dequantised(3, 4, 5, axis=-1)]
    parts.quantised(parts.add("MatMul", operands), 6, rows)


def _biased(parts: _Parts, axis: int, bias: int, scale: np.ndarray) -> list[str]:
    """The operands of a product: two tensors, weights with an axis of scales, and a bias of int32."""
    given = [parts.dequantised(0, 1, 2), parts.dequantised(3, 4, 5, axis=axis)]
    if parts.node.optional(bias):
        named = [parts.node.inputs[bias], parts.constant("bias_scale", np.squeeze(scale))]
        given.append(parts.add("DequantizeLinear", named, attributes={"axis": 0}))
    return given


def _q_linear_conv(parts: _Parts) -> None:
    given = _biased(parts, 0, 8, _scale(parts, 1, 4, "xw"))
    parts.quantised(parts.add("Conv", given, attributes=parts.node.attributes), 6)


def _q_gemm(parts: _Parts) -> None:
    node = parts.node
    given = _biased(parts, 0 if node.attributes.get("transB", 0) else 1, 6, _scale(parts, 1, 4))
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
    _scale(parts, 2, 3)
    operands = [parts.dequantised(0, 2, 4, axis=-2), parts.dequantised(1, 3, 5, axis=-1)]
    bias, output = parts.node.optional(6), parts.node.outputs[0]
    real = parts.add("MatMul", operands, "" if bias else output)
    if bias:
        parts.add("Add", [real, bias], output)


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


def _binary(op: str) -> Callable[[_Parts], None]:
    def rule(parts: _Parts) -> None:
        parts.quantised(parts.add(op, [parts.dequantised(0, 1, 2), parts.dequantised(3, 4, 5)]), 6)

    return rule


def _unary(op: str) -> Callable[[_Parts], None]:
    def rule(parts: _Parts) -> None:
        if parts.node.attributes.get("channels_last", 0):
            raise parts.node.error(
                "channels must come before rows and columns, channels_last is not supported"
            )
        attributes = {k: v for k, v in parts.node.attributes.items() if k != "channels_last"}
        parts.quantised(parts.add(op, [parts.dequantised(0, 1, 2)], attributes=attributes), 3)

    return rule


def _concat(parts: _Parts) -> None:
    count = (len(parts.node.inputs) - 2) // 3
    given = [parts.dequantised(*range(2 + 3 * i, 5 + 3 * i)) for i in range(count)]
    parts.quantised(parts.add("Concat", given, attributes=parts.node.attributes), 0)


def _where(parts: _Parts) -> None:
    given = [parts.node.inputs[0], parts.dequantised(1, 2, 3), parts.dequantised(4, 5, 6)]
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
