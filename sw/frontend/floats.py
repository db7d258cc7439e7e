"""Functions of real numbers as float32 computes them: each operator's exact result, rounded to float32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hw.errors import InputError
from sw.graph.host import node_of

if TYPE_CHECKING:
    from onnx import NodeProto

#: Operators on single numbers.
FUNCTIONS = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Where", "PRelu", "Relu", "LeakyRelu"),
    *("ThresholdedRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Swish", "Mish", "Gelu", "Elu", "Celu"),
    *("Selu", "Softplus", "Softsign", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs"),
    *("Sign", "Floor", "Ceil", "Round", "Sin", "Cos"),
)
#: Operators whose intermediate results are rounded individually.
_SINGLE = ("HardSigmoid", "HardSwish")
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """Gelu in float64; the reference of ONNX has its constants in float32."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1 + _erf(x * math.sqrt(0.5))))


def apply_function(
    op: str,
    operands: Sequence[np.ndarray],
    attributes: Mapping[str, Any],
    result: type[np.floating] = np.float32,
) -> np.ndarray:
    """The result of an operator for float32 operands that broadcast, from ONNX's reference.

    Sums, products, quotients and roots rounded to float64 and then to float32 equal those of float32.
    """
    from onnx import defs

    kind = np.float32 if op in _SINGLE and result is np.float32 else np.float64
    given: list[np.ndarray] = [x if x.dtype == np.bool_ else x.astype(kind) for x in operands]
    with np.errstate(all="ignore"):
        if op == "Erf":
            # The ONNX reference computes it in float32.
            return np.asarray(_erf(given[0]).astype(result))
        if op == "HardSwish" and result is np.float64:
            # The ONNX reference has 1/6 in float32.
            return np.asarray(given[0] * np.clip(given[0] / 6 + 0.5, 0, 1))
        if op == "Gelu":
            return _gelu(given[0], **attributes).astype(result)
        node = node_of(op, [True] * len(given), attributes)
        arrays = {f"i{i}": x for i, x in enumerate(given)}
        return evaluated(node, int(defs.onnx_opset_version()), arrays, op)[0].astype(result)


def evaluated(node: NodeProto, opset: int, arrays: Mapping[str, np.ndarray], name: str) -> list[np.ndarray]:
    """All results of one `NodeProto` by `onnx.reference`, which has float64 where onnxruntime does not.

    Raises `InputError` if it fails.
    """
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape))
        for n, a in arrays.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(o) for o in node.output]
    try:
        graph = helper.make_graph([node], "node", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        found = ReferenceEvaluator(model).run(None, dict(arrays))
    except Exception as error:  # the library raises errors of many types
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"{name}: the reference of ONNX cannot compute it: {text[:200]}") from None
    return [np.asarray(x) for x in found]
