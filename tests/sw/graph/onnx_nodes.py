"""A single ONNX operator between DequantizeLinear and QuantizeLinear, executed by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, shape_inference

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


def model(
    op: str,
    x: np.ndarray,
    x_scale: float,
    x_zero: int,
    y_scale: float,
    y_zero: int,
    result: str,
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 19,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one operator on dequantised numbers, whose result is quantised."""
    given = {
        "x_scale": np.float32(x_scale),
        "x_zero": np.asarray(x_zero, x.dtype),
        "y_scale": np.float32(y_scale),
        "y_zero": np.asarray(y_zero, result),
        **(constants or {}),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["a"]),
        helper.make_node(op, ["a", *(constants or {})], ["b"], **attributes),
        helper.make_node("QuantizeLinear", ["b", "y_scale", "y_zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TYPES[str(x.dtype)], x.shape)],
        [helper.make_tensor_value_info("y", TYPES[result], None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in given.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 9
    return shape_inference.infer_shapes(made)


def run(op: str, x: np.ndarray, *arguments: Any, **options: Any) -> np.ndarray:
    """The result of such a model, without any optimisation."""
    return executed(model(op, x, *arguments, **options), x)


def executed(made: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The result of a model of one input and one output by onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    found: np.ndarray = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, {"x": x})[0]
    return found
