"""One operator of ONNX between DequantizeLinear and QuantizeLinear, executed by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


def run(
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
) -> np.ndarray:
    """The quantised result of an operator on dequantised numbers, without any optimisation."""
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
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    found: np.ndarray = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})[
        0
    ]
    return found
