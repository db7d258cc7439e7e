"""Linear sums of dequantised values: the form of real numbers with no function in between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sw.frontend.values import Constant, Dequantised, Real, Reals


@dataclass(frozen=True, eq=False)
class Summand:
    """A dequantised value without its scale (q - zero), times a factor.

    The factor is a product of float32 numbers in the order of the model, the scale first; some may be
    divisors, and arrays broadcast.
    """

    leaf: Dequantised
    steps: tuple[tuple[str, np.ndarray], ...]

    def then(self, op: str, array: np.ndarray) -> Summand:
        """The summand times (`Mul`) or divided by (`Div`) an array."""
        return Summand(self.leaf, (*self.steps, (op, array)))

    def factor(self, kind: type[np.floating]) -> np.ndarray:
        """The factor in float32 or float64, rounded after every step."""
        value = self.steps[0][1].astype(kind)
        for op, array in self.steps[1:]:
            value = value * array.astype(kind) if op == "Mul" else value / array.astype(kind)
        return value

    def exact(self) -> Fraction | None:
        """The factor as a fraction; None if it is not a single number."""
        value = Fraction(1)
        for op, array in self.steps:
            if array.size != 1 or not math.isfinite(array.item()):
                return None
            other = Fraction(float(array.item()))
            value = value * other if op == "Mul" else value / other
        return value


@dataclass(frozen=True, eq=False)
class Affine:
    """The sum of parts and of a constant in float64."""

    parts: tuple[Summand, ...]
    constant: np.ndarray


_MINUS = np.asarray(-1, np.float32)


def affine(value: Reals) -> Affine | None:
    """A real value as a linear sum; None if it is not one."""
    match value:
        case Constant(array):
            return Affine((), array.astype(np.float64))
        case Dequantised():
            return Affine((Summand(value, (("Mul", value.scale),)),), np.zeros(()))
        case Real(op="Add" | "Sum" | "Sub" | "Neg" as op, inputs=inputs):
            terms = [t for t in map(affine, inputs) if t is not None]
            if len(terms) < len(inputs):
                return None
            if op in ("Sub", "Neg"):
                terms[-1] = _times(terms[-1], "Mul", _MINUS)
            constant = np.asarray(sum(t.constant for t in terms))
            return Affine(tuple(p for t in terms for p in t.parts), constant)
        case Real(op="Mul" | "Div" as op, inputs=(x, y)):
            if op == "Mul" and isinstance(x, Constant):
                x, y = y, x
            left = affine(x)
            if not isinstance(y, Constant) or left is None or (op == "Div" and not np.all(y.array)):
                return None
            return _times(left, op, y.array)
    return None


def _times(value: Affine, op: str, array: np.ndarray) -> Affine:
    parts = tuple(p.then(op, array) for p in value.parts)
    other = array.astype(np.float64)
    # Infinite values have no exact form.
    with np.errstate(invalid="ignore"):
        return Affine(parts, value.constant * other if op == "Mul" else value.constant / other)
