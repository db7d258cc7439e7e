"""Elementwise operators on real numbers, deferred until QuantizeLinear asks for integers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from sw.frontend.floats import FUNCTIONS, apply_function
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.sums import SAME_SCALE, WORD
from sw.frontend.values import Constant, Dequantised, Real, Reals, Stored, Structured, Value
from sw.graph.expression import Apply, Argument
from sw.graph.host import SUMS
from sw.operators.dynamic import at_edge
from sw.operators.elementwise.integers import FLOAT_BITS, of_bits, where
from sw.operators.floats import on_machine
from sw.operators.registry import REAL_HANDLERS, imports
from sw.operators.shapes import spread

#: float32 represents all integers up to here.
_FLOAT32 = 1 << 24


def real(node: OnnxNode, value: Value, what: str) -> Reals:
    """A value as real numbers; raises `InputError` if it must be quantised first."""
    if isinstance(value, Constant):
        return value
    if isinstance(value, Structured):
        if value.fixed is not None:
            return value.fixed()
        raise node.error(f"the result of {value.node.place} must go through QuantizeLinear first")
    if isinstance(value, Stored):
        if value.element.startswith("float"):
            raise node.error(f"{what} is not quantised: a QuantizeLinear is needed before")
        raise node.error(f"{what} is {value.element}, real numbers are needed")
    return value


def held(importer: Importer, value: Value) -> np.ndarray | None:
    """The real numbers of a constant, dequantised or not; None for computed values."""
    if isinstance(value, Constant):
        return value.array
    if isinstance(value, Dequantised):
        array = importer.array(value.view)
        if array is not None:
            found: np.ndarray = (array.astype(np.int64) - value.zero).astype(np.float32) * value.scale
            return found.astype(np.float32)
    return None


def combined(importer: Importer, node: OnnxNode, op: str, values: Sequence[Value]) -> Value:
    """An operator on real operands that broadcast; a bias in the unit of sums is added to them at once."""
    if op == "Add" and len(values) == 2:
        for total, bias in (values, values[::-1]):
            found = _biased(importer, node, total, bias)
            if found is not None:
                return found
    attributes = node.attributes if op == node.op else {}
    arrays = [held(importer, value) for value in values]
    if all(a is not None for a in arrays):
        return Constant(apply_function(op, [a for a in arrays if a is not None], attributes))
    for way in (on_machine, at_edge):
        if (stored := way(importer, node, op, values)) is not None:
            return stored
    given = [real(node, value, repr(name)) for value, name in zip(values, node.inputs, strict=False)]
    given = [_number(v, a) for v, a in zip(given, arrays, strict=True)]
    shape = np.broadcast_shapes(*(v.shape for v in given))
    inputs = tuple(
        Constant(v.array.reshape(())) if isinstance(v, Constant) and v.array.size == 1 else spread(v, shape)
        for v in given
    )
    return Real(op, inputs, shape, node, attributes)


def _number(value: Reals, array: np.ndarray | None) -> Reals:
    """A dequantised constant with one value, as that number, if float32 holds it exactly."""
    exact = not isinstance(value, Dequantised) or value.reach <= _FLOAT32
    return Constant(array) if array is not None and array.size == 1 and exact else value


def _biased(importer: Importer, node: OnnxNode, total: Value, bias: Value) -> Dequantised | None:
    """Sums of products plus a 32-bit constant in their unit; None if the result could exceed 32 bits."""
    if not (isinstance(total, Dequantised) and isinstance(bias, Dequantised)):
        return None
    array = importer.array(bias.view)
    if total.element != "int32" or bias.element != "int32" or array is None or np.any(bias.zero):
        return None
    if importer.array(total.view) is not None or np.broadcast_shapes(total.shape, bias.shape) != total.shape:
        return None
    # Fixed point states its errors, so scales must match exactly.
    same = 0.0 if importer.limbs else SAME_SCALE
    apart = np.abs(bias.scale.astype(np.float64) - total.scale) > same * np.abs(total.scale)
    if np.any(apart):
        return None
    most = int(np.abs(array.astype(np.int64)).max())
    if total.reach + most > WORD:
        if node.attributes.get(SUMS):
            raise node.error(
                f"sums of products reach {total.reach} and the bias {most}, together more than {WORD}, where "
                f"sums of 32 bits wrap; a smaller bias, or DequantizeLinear and QuantizeLinear around the "
                f"operator, are needed"
            )
        return None
    value, operands = Apply("add", (Argument(0), Argument(1))), (total.view, bias.view)
    biased = importer.elementwise(node, value, operands, total.shape, "int32", f"{node.outputs[0]}.biased")
    return Dequantised(biased.view, "int32", total.scale, total.zero, total.reach + most)


@imports("Where")
def _where(importer: Importer, node: OnnxNode) -> Value:
    values = [importer.value(node, i) for i in range(3)]
    if any(isinstance(value, Stored) for value in values[1:]):
        return where(importer, node)
    if not isinstance(values[0], Constant):
        raise node.error("the condition must be a constant where a choice between real numbers is quantised")
    return combined(importer, node, node.op, values)


@imports(*FUNCTIONS, "Clip", into=REAL_HANDLERS)
def _elementwise(importer: Importer, node: OnnxNode) -> Value:
    values = [importer.value(node, i) for i, name in enumerate(node.inputs) if name]
    if node.op in FLOAT_BITS and isinstance(values[0], Stored):
        return of_bits(importer, node)
    if node.op == "Clip":
        return _limited(importer, node)
    return combined(importer, node, node.op, values)


def _limited(importer: Importer, node: OnnxNode) -> Value:
    """Clip as a maximum and a minimum; the last of these has the name of the result."""
    limits: list[tuple[str, str, Value]] = []
    for index, op, name in ((1, "Max", "min"), (2, "Min", "max")):
        if node.optional(index):
            limits.append((op, node.inputs[index], importer.value(node, index)))
        elif name in node.attributes:
            limits.append((op, name, Constant(np.asarray(node.attributes[name], np.float32))))
    found = importer.value(node, 0)
    if not limits and isinstance(found, Stored):
        raise node.error("without limits it turns infinities into finite numbers")
    for number, (op, name, limit) in enumerate(limits, 1):
        part = node if number == len(limits) else _first_part(node)
        found = combined(
            importer, dataclasses.replace(part, inputs=(node.inputs[0], name)), op, [found, limit]
        )
    return found


def _first_part(node: OnnxNode) -> OnnxNode:
    """A node whose result is not yet that of the model, and must not have its name."""
    return dataclasses.replace(node, outputs=(f"{node.outputs[0]}.part", *node.outputs[1:]))


@imports("BatchNormalization", into=REAL_HANDLERS)
def _batch_normalization(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    parameters = [held(importer, importer.value(node, i)) for i in range(1, 5)]
    if any(p is None for p in parameters) or node.attributes.get("training_mode", 0):
        raise node.error("scale, bias, mean and variance must be constants")
    gamma, beta, mean, variance = (
        np.asarray(p, np.float64).reshape(-1, *(1,) * (len(value.shape) - 2)) for p in parameters
    )
    factor = gamma / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    scaled = combined(importer, _first_part(node), "Mul", [value, Constant(factor.astype(np.float32))])
    offset = Constant((beta - mean * factor).astype(np.float32))
    return combined(importer, node, "Add", [scaled, offset])
