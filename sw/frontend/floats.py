"""Functions of real numbers as float32 has them: each operator's exact result, rounded to float32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sw.graph.host import node_of, run_node

#: Operators on single numbers.
FUNCTIONS = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Where", "PRelu", "Relu", "LeakyRelu"),
    *("ThresholdedRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Swish", "Mish", "Gelu", "Elu", "Celu"),
    *("Selu", "Softplus", "Softsign", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs"),
    *("Sign", "Floor", "Ceil", "Round", "Sin", "Cos"),
)
#: Operators whose steps are rounded one by one.
_SINGLE = ("HardSigmoid", "HardSwish")
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """Gelu in float64; the reference of ONNX has its constants in float32."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1 + _erf(x * math.sqrt(0.5))))


def apply_function(op: str, operands: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> np.ndarray:
    """The float32 result of an operator for float32 operands that broadcast, by the reference of ONNX.

    Sums, products, quotients and roots rounded to float64 and then to float32 are those of float32.
    """
    from onnx import defs

    kind = np.float32 if op in _SINGLE else np.float64
    given: list[np.ndarray] = [x if x.dtype == np.bool_ else x.astype(kind) for x in operands]
    with np.errstate(all="ignore"):
        if op == "Gelu":
            return _gelu(given[0], **attributes).astype(np.float32)
        node = node_of(op, [True] * len(given), **attributes)
        arrays = {f"i{i}": x for i, x in enumerate(given)}
        return run_node(node, int(defs.onnx_opset_version()), arrays, op)[0].astype(np.float32)
