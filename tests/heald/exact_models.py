"""Nodes of a quantised model in double precision: which results are exact ones rounded once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from sw.frontend.floats import evaluated
from sw.graph.host import run_node

#: How far from a tie a result may be rounded to either side, in units of its last place.
NEAR = 2.0**-12
#: Operators that stand for others on dequantised operands, by the places of tensors and their grids.
_LINEAR = {"QLinearMatMul": "MatMul", "QLinearConv": "Conv", "QLinearAdd": "Add", "QLinearMul": "Mul"}


class Exact:
    """Values of a model's tensors; those of other nodes than `nodes` are taken from `known`."""

    def __init__(self, model: onnx.ModelProto, known: Mapping[str, np.ndarray], nodes: Collection[str]):
        self.opset = next(o.version for o in model.opset_import if not o.domain)
        self.known, self.nodes = known, nodes
        self.producers = {name: (n, i) for n in model.graph.node for i, name in enumerate(n.output)}
        self.constants = {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}

    def value(self, name: str) -> np.ndarray:
        """A tensor: whole numbers as they are, real ones in double precision."""
        if name in self.constants:
            array = self.constants[name]
            return array.astype(np.float64) if array.dtype.kind == "f" else array
        if name in self.known:
            whole = self.known[name].dtype.kind != "f"
            if name not in self.producers or (whole and self.producers[name][0].name not in self.nodes):
                return self.known[name]
        found = self._real(name)
        node = self.producers[name][0]
        grid = _grid(node)
        if grid is None:
            return found
        zero = self.constants[grid[1]]
        limits = np.iinfo(zero.dtype)
        return np.clip(np.rint(found), limits.min, limits.max).astype(zero.dtype)

    def unrounded(self, name: str) -> np.ndarray:
        """A tensor before it is rounded, limited to its type."""
        found = self._real(name)
        grid = _grid(self.producers[name][0])
        if grid is None:
            return np.asarray(found, np.float64)
        limits = np.iinfo(self.constants[grid[1]].dtype)
        return np.clip(found, limits.min, limits.max)

    def _real(self, name: str) -> np.ndarray:
        """The result of a node; what it puts on a grid is not rounded."""
        node, index = self.producers[name]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "DequantizeLinear":
            return self._dequantised(*node.input, axis=attributes.get("axis", 1))
        if node.op_type == "QuantizeLinear":
            return self._on_grid(self.value(node.input[0]), node.input[1:3])
        if node.op_type.startswith("Q"):
            return self._on_grid(self._linear(node, attributes), _grid(node) or ())
        given = {f"i{i}": self.value(x) for i, x in enumerate(node.input) if x}
        if node.op_type == "Cast" and attributes["to"] == onnx.TensorProto.FLOAT:
            return given["i0"].astype(np.float64)
        names = [f"i{i}" if x else "" for i, x in enumerate(node.input)]
        made = helper.make_node(node.op_type, names, [f"o{i}" for i in range(len(node.output))], **attributes)
        # The reference of ONNX leaves pads of windows along one axis out. onnxruntime has maxima of float64.
        compute = run_node if node.op_type == "MaxPool" else evaluated
        return compute(made, self.opset, given, node.name)[index]

    def _dequantised(self, x: str, scale: str, zero: str = "", *, axis: int = 1) -> np.ndarray:
        array = self.value(x).astype(np.float64)
        form = [1] * array.ndim
        scales = self.value(scale)
        if scales.size > 1:
            form[axis] = -1
        none = self.value(zero).astype(np.float64) if zero else np.zeros(scales.shape)
        if scales.size == 1:
            return (array - none.item()) * scales.item()
        found: np.ndarray = (array - none.reshape(form)) * scales.reshape(form)
        return found

    def _on_grid(self, real: np.ndarray, grid: Any) -> np.ndarray:
        found: np.ndarray = real / self.value(grid[0]).item() + float(self.value(grid[1]).item())
        return found

    def _linear(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> np.ndarray:
        """The real result of an operator on grids."""
        given = list(node.input)
        if node.op_type == "QLinearConcat":
            parts = [self._dequantised(*given[i : i + 3]) for i in range(2, len(given), 3)]
            return np.concatenate(parts, attributes["axis"])
        weights = {"QLinearMatMul": -1, "QLinearConv": 0, "QGemm": 0 if attributes.get("transB") else 1}
        a = self._dequantised(*given[:3])
        b = self._dequantised(*given[3:6], axis=weights.get(node.op_type, 0))
        operands = [a, b]
        bias = {"QLinearConv": 8, "QGemm": 6}.get(node.op_type, len(given))
        if bias < len(given) and given[bias]:
            unit = self.value(given[1]) * self.value(given[4])
            operands.append(self.value(given[bias]).astype(np.float64) * unit)
        op = _LINEAR.get(node.op_type, "Gemm")
        names = [f"i{i}" for i in range(len(operands))]
        made = helper.make_node(op, names, ["o0"], **attributes)
        return evaluated(made, self.opset, dict(zip(names, operands, strict=True)), node.name)[0]


def _grid(node: onnx.NodeProto) -> tuple[str, str] | None:
    """The names of scale and zero point of a node's result."""
    given = list(node.input)
    places = {
        "QuantizeLinear": (1, 2),
        "QLinearConcat": (0, 1),
        "QGemm": (7, 8),
        "QLinearAdd": (6, 7),
        "QLinearMul": (6, 7),
        "QLinearMatMul": (6, 7),
        "QLinearConv": (6, 7),
    }.get(node.op_type)
    return None if places is None else (given[places[0]], given[places[1]])


def unexplained(exact: np.ndarray, found: np.ndarray) -> int:
    """Elements that are not the exact result rounded once, ties apart."""
    return int((np.abs(found.astype(np.float64) - exact) > 0.5 + NEAR).sum())
