"""Functions of real numbers as float32 has them: each operator's exact result, rounded to float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Function = Callable[..., np.ndarray]
_erf = np.vectorize(math.erf, otypes=[np.float64])
_HALF_ROOT = math.sqrt(0.5)


def _where(condition: np.ndarray, x: np.ndarray, y: np.ndarray | float) -> np.ndarray:
    return np.asarray(np.where(condition, x, y))


def _gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1 + _erf(x * _HALF_ROOT)))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    # Without overflow at either end.
    small = np.exp(-np.abs(x))
    return _where(x >= 0, 1 / (1 + small), small / (1 + small))


def _hard_sigmoid(x: np.ndarray, alpha: float = 0.2, beta: float = 0.5) -> np.ndarray:
    single = np.float32
    steps = single(alpha) * x.astype(single) + single(beta)
    return np.asarray(np.clip(steps, 0, 1), np.float64)


def _hard_swish(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * _hard_sigmoid(x, 1 / 6, 0.5))


def _elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return _where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))


def _selu(x: np.ndarray, alpha: float = 1.6732632, gamma: float = 1.0507010) -> np.ndarray:
    return np.asarray(np.float32(gamma) * _elu(x, alpha))


#: Operators on single numbers: their value in float64, for operands that are float32.
FUNCTIONS: dict[str, Function] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Max": lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)),
    "Min": lambda *x: np.minimum.reduce(np.broadcast_arrays(*x)),
    "Sum": lambda *x: np.add.reduce(np.broadcast_arrays(*x)),
    "Where": lambda c, x, y: _where(c != 0, x, y),
    "PRelu": lambda x, slope: _where(x < 0, x * slope, x),
    "Relu": lambda x: np.maximum(x, 0),
    "LeakyRelu": lambda x, alpha=0.01: _where(x >= 0, x, np.float32(alpha) * x),
    "ThresholdedRelu": lambda x, alpha=1.0: _where(x > np.float32(alpha), x, 0),
    "Sigmoid": _sigmoid,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Swish": lambda x, alpha=1.0: x * _sigmoid(np.float32(alpha) * x),
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Gelu": _gelu,
    "Elu": _elu,
    "Celu": lambda x, alpha=1.0: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha)),
    "Selu": _selu,
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Tanh": np.tanh,
    "Erf": _erf,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sin": np.sin,
    "Cos": np.cos,
}


def apply_function(op: str, operands: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> np.ndarray:
    """The float32 result of an operator for float32 operands that broadcast.

    Sums, products, quotients and roots rounded to float64 and then to float32 are those of float32.
    """
    function = FUNCTIONS[op]
    with np.errstate(all="ignore"):
        found = function(*(np.asarray(x).astype(np.float64) for x in operands), **attributes)
        return np.asarray(found).astype(np.float32)
