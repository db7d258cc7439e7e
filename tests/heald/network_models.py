"""Small quantised models for tests, as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21


def value(name: str, kind: int, shape: tuple[Any, ...]) -> onnx.ValueInfoProto:
    """A tensor of a graph's border."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, np.ndarray]
) -> onnx.ModelProto:
    """A model of these nodes."""
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    made.ir_version = 10
    return made


def perceptron(m: int = 5, k: int = 9, n: int = 7) -> onnx.ModelProto:
    """Two quantised products with a residual: float input x, float output y."""
    rng = np.random.default_rng(3)
    constants: dict[str, np.ndarray] = {
        "x_scale": np.float32(0.05),
        "x_zero": np.int8(3),
        "w_scale": np.float32(0.02),
        "w_zero": np.int8(0),
        "y_scale": np.float32(0.3),
        "y_zero": np.int8(-4),
        "w1": rng.integers(-128, 128, (k, n)).astype(np.int8),
        "w2": rng.integers(-128, 128, (n, k)).astype(np.int8),
    }
    x, w, y = ([f"{c}_scale", f"{c}_zero"] for c in "xwy")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *x], ["xq"], "quantise"),
        helper.make_node("QLinearMatMul", ["xq", *x, "w1", *w, *y], ["h"], "up"),
        helper.make_node("QLinearMatMul", ["h", *y, "w2", *w, *y], ["g"], "down"),
        helper.make_node("DequantizeLinear", ["g", *y], ["gf"], "left"),
        helper.make_node("DequantizeLinear", ["xq", *x], ["xf"], "right"),
        helper.make_node("Add", ["gf", "xf"], ["s"], "sum"),
        helper.make_node("QuantizeLinear", ["s", *y], ["sq"], "requantise"),
        helper.make_node("DequantizeLinear", ["sq", *y], ["y"], "dequantise"),
    ]
    f = TensorProto.FLOAT
    return model(nodes, [value("x", f, (m, k))], [value("y", f, (m, k))], constants)


def hosted() -> onnx.ModelProto:
    """Work for the machine before and after a Sine, which it does not have."""
    nodes = [
        helper.make_node("Add", ["a", "a"], ["twice"], "double"),
        helper.make_node("Cast", ["twice"], ["real"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Sin", ["real"], ["sine"], "sine"),
        helper.make_node("QuantizeLinear", ["sine", "scale", "zero"], ["q"], "quantise"),
        helper.make_node("Max", ["q", "b"], ["y"], "max"),
    ]
    inputs = [value("a", TensorProto.INT32, (3, 8)), value("b", TensorProto.INT8, (3, 8))]
    constants: dict[str, np.ndarray] = {"scale": np.float32(0.01), "zero": np.int8(0)}
    return model(nodes, inputs, [value("y", TensorProto.INT8, (3, 8))], constants)


def integers(
    node: str = "Add", kind: int = TensorProto.INT32, shape: tuple[Any, ...] = (3, 5)
) -> onnx.ModelProto:
    """One node on two integer inputs."""
    inputs = [value(name, kind, shape) for name in "ab"]
    return model([helper.make_node(node, ["a", "b"], ["y"], "only")], inputs, [value("y", kind, shape)], {})


def save(folder: Path, proto: onnx.ModelProto, name: str = "model.onnx") -> Path:
    """Write a model to a file."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path
