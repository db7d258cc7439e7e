"""QuantizeLinear, DequantizeLinear and Cast: between integers and real numbers."""

from __future__ import annotations

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, on_grid
from sw.frontend.sums import WORD
from sw.frontend.values import Constant, Dequantised, Quantisation, Stored, Value, is_real
from sw.graph.expression import Argument
from sw.graph.network import ELEMENTS, WORDS, word
from sw.graph.requantise import LIMITS, apply, wrapped
from sw.operators.host import quantised_input
from sw.operators.registry import imports

#: Values of `output_dtype` and `precision` that mean float32: its number, or 0 by default.
_FLOAT32 = (0, 1)


def parameters(
    importer: Importer, node: OnnxNode, shape: tuple[int, ...], element: str | None = None
) -> tuple[np.ndarray, np.ndarray, str]:
    """Scale (float32), zero point (int64) and type of a QuantizeLinear or DequantizeLinear."""
    scale, zero = importer.fixed(node, 1, "the scale"), importer.fixed(node, 2, "the zero point")
    if scale is None:
        raise node.error("a scale is needed")
    if scale.dtype != np.float32:
        raise node.error(f"the scale must be float32, not {scale.dtype}")
    wrong = scale[~np.isfinite(scale) | (scale <= 0)]
    if wrong.size:
        raise node.error(f"scales must be positive, not {wrong.flat[0]} ({node.inputs[1]!r})")
    if int(node.attributes.get("block_size", 0) or 0):
        raise node.error("scales of blocks are not supported, only of tensors and axes")
    kind = int(node.attributes.get("output_dtype", 0) or 0)
    real = kind if element is not None else int(node.attributes.get("precision", 0) or 0)
    if real not in _FLOAT32:
        raise node.error("real numbers must be float32, another type is asked for")
    if element is None:
        from onnx import helper

        element = str(zero.dtype) if zero is not None else "uint8"
        if zero is None and kind:
            element = str(np.dtype(helper.tensor_dtype_to_np_dtype(kind)))
    elif zero is not None and str(zero.dtype) != element:
        raise node.error(f"the zero point must be {element} like the elements, not {zero.dtype}")
    number = np.zeros((), np.int64) if zero is None else zero.astype(np.int64)
    return (
        along_axis(node, scale, shape, "scale"),
        along_axis(node, number, shape, "zero point"),
        element,
    )


def along_axis(node: OnnxNode, values: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Parameters per position of an axis, repeated to a shape; a single number stays single."""
    if values.size == 1:
        return values.reshape(())
    axis = int(node.attributes.get("axis", 1))
    if not -len(shape) <= axis < len(shape) or values.shape != (shape[axis],):
        raise node.error(f"the {what} must be one number or one per element of axis {axis}")
    form = [1] * len(shape)
    form[axis] = -1
    return np.broadcast_to(values.reshape(form), shape)


@imports("DequantizeLinear")
def _dequantize(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    stored = importer.stored(node, 0, (*BYTES, "int32"))
    scale, zero, element = parameters(importer, node, value.shape, stored.element)
    if element == "int32" and np.any(zero):
        raise node.error("the zero point of int32 must be 0")
    held = importer.array(stored.view) if element == "int32" else None
    low, high = LIMITS[element] if held is None else (int(held.min()), int(held.max()))
    reach = int(max(abs(low - int(zero.max())), abs(high - int(zero.min()))))
    return Dequantised(stored.view, element, scale, zero, min(max(reach, 1), WORD))


@imports("QuantizeLinear")
def _quantize(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    scale, zero, element = parameters(importer, node, value.shape)
    if element not in BYTES:
        raise node.error(f"the result must be int8 or uint8, not {element}")
    grid = Quantisation(element, scale, zero, node)
    if isinstance(value, Stored) and value.element == "float32":
        return quantised_input(importer, node, value, grid)
    if not is_real(value):
        raise node.error("real numbers are needed")
    return Stored(on_grid(importer, node, value, grid, node.outputs[0]), grid.element)


@imports("Cast", "CastLike")
def _cast(importer: Importer, node: OnnxNode) -> Value:
    """Integers become real numbers unchanged; between integer types, values wrap."""
    from onnx import helper

    value = importer.value(node, 0)
    if node.op == "Cast":
        to = str(np.dtype(helper.tensor_dtype_to_np_dtype(int(node.attributes["to"]))))
    else:
        to = element_of(importer.value(node, 1))
    if not isinstance(value, Stored):
        if to == "float32" and is_real(value):
            return value
        raise node.error(f"a cast of real numbers to {to} is not supported, only QuantizeLinear")
    found = value.element
    if to == found:
        return value
    if found == "bool" and to == "float32":
        importer.check_movable(node, value.view)
        value = importer.elementwise(
            node, Argument(0), [value.view], value.shape, "uint8", f"{node.outputs[0]}.whole"
        )
        found = "uint8"
    if found in LIMITS and to == "float32":
        one, none = np.asarray(1, np.float32), np.asarray(0, np.int64)
        reach = min(abs(LIMITS[found][0]), WORD)
        return Dequantised(value.view, found, one, none, max(reach, LIMITS[found][1]))
    if to == "bool" and importer.movable(value.view):
        bits = apply("and", Argument(0), WORD) if found == "float32" else Argument(0)
        return importer.elementwise(node, apply("ne", bits, 0), [value.view], value.shape, to)
    if not {found, to} <= {*LIMITS, "uint32", "bool"}:
        raise node.error(f"a cast from {found} to {to} is not supported")
    importer.check_movable(node, value.view)
    return importer.elementwise(node, wrapped(Argument(0), to), [value.view], value.shape, to)


def element_of(value: Value) -> str:
    """The type of the elements that a value has in the model."""
    match value:
        case Stored(_, element):
            return element
        case Constant(array):
            return str(array.dtype)
    return "float32"


@imports("BitCast")
def _bit_cast(importer: Importer, node: OnnxNode) -> Value:
    """Reinterprets the bits as another type of the same width."""
    from onnx import helper

    value = importer.stored(node, 0, (*ELEMENTS, *WORDS))
    to = str(np.dtype(helper.tensor_dtype_to_np_dtype(int(node.attributes["to"]))))
    if np.dtype(to).itemsize != np.dtype(value.element).itemsize or to not in (*ELEMENTS, *WORDS):
        raise node.error(f"a cast of the bits of {value.element} to {to} is not supported")
    importer.check_movable(node, value.view)
    return importer.elementwise(node, wrapped(Argument(0), word(to)), [value.view], value.shape, to)
