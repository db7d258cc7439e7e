"""Sums of dequantised values times constants: what real numbers are where no function lies between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sw.frontend.values import Constant, Dequantised, Real, Reals


@dataclass(frozen=True, eq=False)
class Factor:
    """A product of float32 numbers in the order of the model, some of them divisors; arrays broadcast."""

    steps: tuple[tuple[str, np.ndarray], ...]

    def then(self, op: str, array: np.ndarray) -> Factor:
        """The factor times (`Mul`) or divided by (`Div`) an array."""
        return Factor((*self.steps, (op, array)))

    def single(self) -> np.ndarray:
        """In float32, rounded after every step."""
        value = np.asarray(self.steps[0][1], np.float32)
        for op, array in self.steps[1:]:
            other = np.asarray(array, np.float32)
            value = (value * other if op == "Mul" else value / other).astype(np.float32)
        return value

    def double(self) -> np.ndarray:
        """In float64."""
        value = np.asarray(self.steps[0][1], np.float64)
        for op, array in self.steps[1:]:
            other = np.asarray(array, np.float64)
            value = value * other if op == "Mul" else value / other
        return value

    def exact(self) -> Fraction | None:
        """As a fraction; None where it is not one number."""
        value = Fraction(1)
        for number, (op, array) in enumerate(self.steps):
            if array.size != 1 or not math.isfinite(array.item()):
                return None
            other = Fraction(float(array.item()))
            if number and op == "Div":
                if not other:
                    return None
                value /= other
            else:
                value *= other
        return value


@dataclass(frozen=True, eq=False)
class Summand:
    """A dequantised value without its scale (q - zero), times a factor; `leaf.scale` is its first step."""

    leaf: Dequantised
    factor: Factor


@dataclass(frozen=True, eq=False)
class Affine:
    """The sum of parts and of a constant in float64; `fixed` is the constant as a fraction, if it is one."""

    parts: tuple[Summand, ...]
    constant: np.ndarray

    @property
    def fixed(self) -> Fraction | None:
        """The constant, if it is one number."""
        return Fraction(float(self.constant.item())) if self.constant.size == 1 else None


_MINUS = np.asarray(-1, np.float32)


def affine(value: Reals) -> Affine | None:
    """A real value as a sum; None where it is none."""
    match value:
        case Constant(array):
            return Affine((), array.astype(np.float64))
        case Dequantised():
            return Affine((Summand(value, Factor((("Mul", value.scale),))),), np.zeros(()))
        case Real(op="Add" | "Sum" | "Sub" as op, inputs=inputs):
            terms = [affine(x) for x in inputs]
            if any(t is None for t in terms):
                return None
            found = [t for t in terms if t is not None]
            if op == "Sub":
                found[1] = _times(found[1], "Mul", _MINUS)
            total = found[0]
            for other in found[1:]:
                total = Affine((*total.parts, *other.parts), total.constant + other.constant)
            return total
        case Real(op="Neg", inputs=(inner,)):
            sum_ = affine(inner)
            return None if sum_ is None else _times(sum_, "Mul", _MINUS)
        case Real(op="Mul" | "Div" as op, inputs=(x, y)):
            if op == "Mul" and isinstance(x, Constant):
                x, y = y, x
            left = affine(x)
            if not isinstance(y, Constant) or left is None or (op == "Div" and not np.all(y.array)):
                return None
            return _times(left, op, y.array)
    return None


def _times(value: Affine, op: str, array: np.ndarray) -> Affine:
    parts = tuple(Summand(p.leaf, p.factor.then(op, array)) for p in value.parts)
    other = array.astype(np.float64)
    return Affine(parts, value.constant * other if op == "Mul" else value.constant / other)
