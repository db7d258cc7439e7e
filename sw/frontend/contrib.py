"""Converts operators of domain com.microsoft and QLinear operators to standard operators.

onnxruntime's quantiser writes them. An operator on quantised tensors becomes DequantizeLinear, the operator,
QuantizeLinear.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sw.frontend.node import OnnxNode
from sw.graph.host import SUMS

MICROSOFT = "com.microsoft"
_IN_32_BITS = {SUMS: 1}


@dataclass
class _Parts:
    """The nodes that replace a node; they have its name, and the last one computes its first output."""

    node: OnnxNode
    constants: dict[str, np.ndarray]
    fresh: Callable[[str], str]
    nodes: list[OnnxNode] = field(default_factory=list)

    def add(self, op: str, /, *inputs: str, **attributes: Any) -> str:
        """Appends a node and returns the name of its result."""
        output = self.fresh(f"{self.node.outputs[0]}.{len(self.nodes)}.{op}")
        self.nodes.append(OnnxNode(self.node.name, op, inputs, (output,), attributes))
        return output

    def gives(self, output: str) -> str:
        """Names the result of the last node."""
        self.nodes[-1] = dataclasses.replace(self.nodes[-1], outputs=(output,))
        return output

    def constant(self, what: str, values: np.ndarray) -> str:
        """Adds a constant of the node and returns its name."""
        name = self.fresh(f"{self.node.outputs[0]}.{what}")
        self.constants[name] = values
        return name

    def value(self, index: int, what: str) -> np.ndarray:
        """A constant input of the node; raises `InputError` if it is computed, or not a valid scale."""
        name = self.node.optional(index)
        if name not in self.constants:
            raise self.node.error(f"{what} must be a constant, not {name!r}")
        found = self.constants[name]
        if what.endswith("scale") and not np.all(np.isfinite(found) & (found > 0)):
            wrong = found[~(np.isfinite(found) & (found > 0))]
            raise self.node.error(f"{what} must be positive, not {wrong.flat[0]}")
        return found

    def scale(self, a: int, b: int, names: str = "ab") -> np.ndarray:
        """The scale of a product, from the inputs that hold the scales of its operands."""
        one, other = (self.value(i, f"{name}_scale") for i, name in zip((a, b), names, strict=True))
        return np.asarray(np.float32(1) * one.reshape(-1) * other)

    def dequantised(self, first: int, step: int = 1, **axis: int) -> str:
        """The real values of input `first`; scale and zero point are the inputs at distance `step`."""
        given = (self.node.optional(first + i * step) for i in range(3))
        return self.add("DequantizeLinear", *given, **axis)

    def quantised(self, value: str, index: int, **axis: int) -> None:
        """The output, quantised with the scale and zero point in inputs `index` and following."""
        self.add("QuantizeLinear", value, self.node.optional(index), self.node.optional(index + 1), **axis)

    def plus(self, value: str, index: int) -> str:
        """A value plus an input, if that input is present."""
        bias = self.node.optional(index)
        return self.add("Add", value, bias) if bias else value


Rule = Callable[[_Parts], object]


def expanded(
    node: OnnxNode, domain: str, constants: dict[str, np.ndarray], fresh: Callable[[str], str]
) -> list[OnnxNode]:
    """The standard nodes that replace a node; new constants are added to `constants`.

    `fresh` makes a unique tensor name from a hint. Raises `InputError` for other domains and operators.
    """
    rules = {"": _STANDARD, MICROSOFT: _MICROSOFT}.get(domain)
    if rules is None:
        raise node.error(f"operators of domain {domain!r} are not supported, only of '' and {MICROSOFT!r}")
    if domain == MICROSOFT and node.op not in rules:
        raise node.error(
            f"the operator of domain {MICROSOFT!r} is not supported; docs/operators.md has the {len(rules)} "
            f"that are"
        )
    rule = rules.get(node.op)
    if rule is None:
        return [node]
    parts = _Parts(node, constants, fresh)
    rule(parts)
    parts.gives(node.outputs[0])
    return parts.nodes


def _q_linear_mat_mul(parts: _Parts) -> None:
    parts.scale(1, 4)
    rows = {"axis": -2} if parts.value(6, "y_scale").size > 1 else {}
    real = parts.add("MatMul", parts.dequantised(0, axis=-2), parts.dequantised(3, axis=-1), **_IN_32_BITS)
    parts.quantised(real, 6, **rows)


def _biased(parts: _Parts, axis: int, bias: int, scale: np.ndarray) -> list[str]:
    """The operands of a product: two tensors, weights with an axis of scales, and a bias of int32."""
    given = [parts.dequantised(0), parts.dequantised(3, axis=axis)]
    if parts.node.optional(bias):
        named = parts.node.inputs[bias], parts.constant("bias_scale", np.squeeze(scale))
        given.append(parts.add("DequantizeLinear", *named, axis=0))
    return given


def _q_linear_conv(parts: _Parts) -> None:
    given = _biased(parts, 0, 8, parts.scale(1, 4, "xw"))
    parts.quantised(parts.add("Conv", *given, **parts.node.attributes, **_IN_32_BITS), 6)


def _q_gemm(parts: _Parts) -> None:
    alpha = float(parts.node.attributes.get("alpha", 1.0))
    layout = {k: v for k, v in parts.node.attributes.items() if k in ("transA", "transB")}
    given = _biased(parts, 0 if layout.get("transB", 0) else 1, 6, parts.scale(1, 4))
    real = parts.add("Gemm", *given, **layout, **_IN_32_BITS)
    if alpha != 1:
        real = parts.add("Mul", real, parts.constant("alpha", np.asarray(alpha, np.float32)))
    if parts.node.optional(7):
        parts.quantised(real, 7)


def _mat_mul_integer_to_float(parts: _Parts) -> None:
    node = parts.node
    if any(name not in parts.constants for name in node.inputs[2:4]):
        # Scales computed at run time.
        total = parts.add("MatMulInteger", *node.inputs[:2], node.optional(4), node.optional(5))
        scale = parts.add("Mul", *node.inputs[2:4])
        parts.plus(parts.add("Mul", parts.add("Cast", total, to=1), scale), 6)
        return
    parts.scale(2, 3)
    operands = [parts.dequantised(0, 2, axis=-2), parts.dequantised(1, 2, axis=-1)]
    parts.plus(parts.add("MatMul", *operands, **_IN_32_BITS), 6)


def _dynamic_quantize_mat_mul(parts: _Parts) -> None:
    node = parts.node
    names = tuple(parts.fresh(f"{node.outputs[0]}.{what}") for what in ("quantised", "scale", "zero"))
    parts.nodes.append(OnnxNode(node.name, "DynamicQuantizeLinear", (node.inputs[0],), names))
    total = parts.add("MatMulInteger", names[0], node.inputs[1], names[2], node.optional(3))
    real = parts.add("Cast", total, to=1)
    parts.plus(parts.add("Mul", real, parts.add("Mul", names[1], node.inputs[2])), 4)


def _q_linear(operands: int) -> Rule:
    """The operator that the name denotes, on this many quantised operands."""

    def rule(parts: _Parts) -> None:
        attributes = dict(parts.node.attributes)
        if attributes.pop("channels_last", 0):
            raise parts.node.error(
                "channels must come before rows and columns, channels_last is not supported"
            )
        given = [parts.dequantised(3 * i) for i in range(operands)]
        real = parts.add(parts.node.op.removeprefix("QLinear"), *given, **attributes)
        parts.quantised(real, 3 * operands)

    return rule


def _concat(parts: _Parts) -> None:
    given = [parts.dequantised(i) for i in range(2, len(parts.node.inputs), 3)]
    parts.quantised(parts.add("Concat", *given, **parts.node.attributes), 0)


def _where(parts: _Parts) -> None:
    real = parts.add("Where", parts.node.inputs[0], parts.dequantised(1), parts.dequantised(4))
    parts.quantised(real, 7)


def _bias_gelu(approximate: str) -> Rule:
    return lambda parts: parts.add("Gelu", parts.plus(parts.node.inputs[0], 1), approximate=approximate)


def _quick_gelu(parts: _Parts) -> None:
    x = parts.node.inputs[0]
    alpha = parts.constant("alpha", np.asarray(parts.node.attributes.get("alpha", 1.702), np.float32))
    parts.add("Mul", x, parts.add("Sigmoid", parts.add("Mul", x, alpha)))


def _skip_layer_normalization(parts: _Parts) -> None:
    node = parts.node
    if any(node.outputs[1:3]):
        raise node.error("mean and deviation as outputs are not supported")
    total = parts.plus(parts.add("Add", *node.inputs[:2]), 4)
    if len(node.outputs) > 3 and node.outputs[3]:
        total = parts.gives(node.outputs[3])
    given = [total, node.inputs[2], *([node.inputs[3]] if node.optional(3) else [])]
    parts.add("LayerNormalization", *given, axis=-1, epsilon=node.attributes.get("epsilon", 1e-12))


_STANDARD: dict[str, Rule | None] = {
    "QLinearMatMul": _q_linear_mat_mul,
    "QLinearConv": _q_linear_conv,
}
#: Operators that the standard domain also has keep their name.
_MICROSOFT: dict[str, Rule | None] = {
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _q_linear(2)),
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"), _q_linear(1)),
    **dict.fromkeys(("QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearReduceMean"), _q_linear(1)),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QGemm": _q_gemm,
    "MatMulIntegerToFloat": _mat_mul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_quantize_mat_mul,
    "BiasGelu": _bias_gelu("none"),
    "FastGelu": _bias_gelu("tanh"),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
    **dict.fromkeys(("Gelu", "QuantizeLinear", "DequantizeLinear")),
}
#: Supported operators of domain com.microsoft.
CONTRIB = tuple(sorted(_MICROSOFT))
