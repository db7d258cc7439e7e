"""Values of names in a model during import.

Real numbers are not computed where they occur. They are kept in symbolic form until QuantizeLinear says on
which integer grid they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sw.frontend.node import OnnxNode
from sw.graph.network import View


@dataclass(frozen=True, eq=False)
class Constant:
    """Elements that the model holds or that follow from it, of any type."""

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.array.shape


@dataclass(frozen=True, eq=False)
class Stored:
    """The elements of a network tensor, unchanged; their type may be one that only the host knows."""

    view: View
    element: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.view.shape


@dataclass(frozen=True, eq=False)
class Dequantised:
    """The real numbers (q - zero) * scale for elements q of a view.

    `scale` (float32) and `zero` (int64) have one element, or the view's shape. `reach` is the largest
    magnitude that q - zero can have.
    """

    view: View
    element: str
    scale: np.ndarray
    zero: np.ndarray
    reach: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.view.shape

    @property
    def uniform(self) -> bool:
        """Whether all elements share one scale and one zero point."""
        return self.scale.size == 1 and self.zero.size == 1


#: Largest error of real numbers that leave fixed point, relative to the tensor's range.
RANGE = 2.0**-10


@dataclass(frozen=True, eq=False)
class FixedPoint(Dequantised):
    """Real numbers of an int32 tensor, with a power of two as scale (`sw.operators.fixed`).

    They are from `low` to `high`, and within `error` of the results of exact arithmetic.
    """

    low: float
    high: float
    error: float

    @property
    def rough(self) -> bool:
        """Whether the error is too large for real numbers that leave fixed point."""
        return self.error > RANGE * self.extent

    @property
    def extent(self) -> float:
        """The reference for the error: the range, or the largest magnitude if that is larger."""
        return max(self.high - self.low, abs(self.low), abs(self.high))


@dataclass(frozen=True, eq=False)
class Real:
    """The result of an operator for each element of real operands, which have its shape or one element."""

    op: str
    inputs: tuple[Reals, ...]
    shape: tuple[int, ...]
    node: OnnxNode
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Structured:
    """The real result of an operator on whole tensors (softmax, normalisation, pooling).

    `make` computes it on a grid: it appends an operator with a given name and returns a view of its result.
    `fixed` computes it in fixed point, if that is requested.
    """

    node: OnnxNode
    shape: tuple[int, ...]
    make: Callable[[str, Quantisation], View]
    fixed: Callable[[], Reals] | None = None


@dataclass(frozen=True, eq=False)
class Quantisation:
    """The grid of a QuantizeLinear: `scale` and `zero` have one element or the result's shape."""

    element: str
    scale: np.ndarray
    zero: np.ndarray
    node: OnnxNode

    @property
    def uniform(self) -> bool:
        """Whether all elements share one scale and one zero point."""
        return self.scale.size == 1 and self.zero.size == 1

    def nodes(self, node: OnnxNode) -> tuple[str, ...]:
        """Names of a node and of the QuantizeLinear after it."""
        return tuple(dict.fromkeys((node.name, self.node.name)))

    def scales(self, value: Dequantised) -> dict[str, Any]:
        """Types and scales of operand and result, as operators with one of each take them."""
        return {
            "element": value.element,
            "x_scale": float(value.scale.item()),
            "y_scale": float(self.scale.item()),
            "y_zero": int(self.zero.item()),
            "result": self.element,
        }


Reals = Constant | Dequantised | Real
Value = Constant | Stored | Dequantised | Real | Structured


def is_real(value: Value) -> bool:
    """Whether a value consists of real numbers that the machine can only represent on a grid."""
    if isinstance(value, Constant):
        return value.array.dtype.kind == "f"
    return not isinstance(value, Stored)
