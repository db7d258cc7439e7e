"""ONNX models for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}


def value(name: str, kind: str, shape: tuple[Any, ...]) -> onnx.ValueInfoProto:
    """A tensor of a graph's border."""
    return helper.make_tensor_value_info(name, TYPES[kind], shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, np.ndarray]) -> Any:
    """A model of these nodes."""
    graph = helper.make_graph(
        nodes, "test", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in constants.items()]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    made.ir_version = 8
    return made


def matmul_integer(
    shape_a: tuple[Any, ...],
    shape_b: tuple[Any, ...],
    *,
    nodes: int = 1,
    type_a: str = "uint8",
    type_b: str = "int8",
    constants: dict[str, np.ndarray] | None = None,
    zero_points: tuple[str, ...] = (),
) -> Any:
    """Nodes product0... from inputs a0, b0... to y0...; `zero_points` name constants."""
    made, inputs, outputs = [], [], []
    for i in range(nodes):
        inputs += [value(f"a{i}", type_a, shape_a), value(f"b{i}", type_b, shape_b)]
        rank = max(len(shape_a), len(shape_b), 2) - (len(shape_a) == 1) - (len(shape_b) == 1)
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.INT32, [None] * rank))
        made.append(
            helper.make_node("MatMulInteger", [f"a{i}", f"b{i}", *zero_points], [f"y{i}"], name=f"product{i}")
        )
    return model(made, inputs, outputs, constants or {})


def conv_integer(
    shape_x: tuple[Any, ...],
    shape_w: tuple[Any, ...],
    *,
    type_x: str = "uint8",
    type_w: str = "int8",
    constants: dict[str, np.ndarray] | None = None,
    zero_points: tuple[str, ...] = (),
    **attributes: Any,
) -> Any:
    """One ConvInteger node from inputs x and w to y; `zero_points` name constants."""
    inputs = [value("x", type_x, shape_x), value("w", type_w, shape_w)]
    output = helper.make_tensor_value_info("y", TensorProto.INT32, [None] * len(shape_x))
    node = helper.make_node("ConvInteger", ["x", "w", *zero_points], ["y"], name="conv", **attributes)
    return model([node], inputs, [output], constants or {})


def save(folder: Path, proto: Any, name: str = "model.onnx") -> Path:
    """Write a model to a file."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path
