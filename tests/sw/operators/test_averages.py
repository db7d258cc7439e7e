"""Averages are the exact quotients, rounded half to even, and equal onnxruntime's except for ties."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph.network import ImageConvolution, MatrixProduct, Network
from sw.graph.reference import run as reference
from sw.graph.requantise import LIMITS
from sw.patches import Axis
from tests.sw.graph.onnx_nodes import executed, model
from tests.sw.operators.test_pool import attributes

SCALES = [(0.1, 0.1), (0.07, 0.031), (0.02, 0.05)]


def drawn(seed: int, shape: tuple[int, ...], element: str) -> np.ndarray:
    """Random numbers of a type."""
    low, high = LIMITS[element]
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(element)


def both(
    op: str,
    x: np.ndarray,
    scales: tuple[float, float],
    zeros: tuple[int, int],
    constants: dict[str, np.ndarray] | None = None,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """The average of a model of one operator, and onnxruntime's."""
    made = model(op, x, scales[0], zeros[0], scales[1], zeros[1], str(x.dtype), constants, **options)
    (found,) = reference(import_model(made), {"x": x}).values()
    return found, executed(made, x)


def exact(
    x: np.ndarray,
    rows: Axis,
    cols: Axis,
    scales: tuple[float, float],
    zeros: tuple[int, int],
    include_pad: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The averages, rounded to 18 fractional bits, then half to even, and which are far from a half."""
    ratio = Fraction(float(np.float32(scales[0]))) / Fraction(float(np.float32(scales[1])))
    found = np.empty((*x.shape[:2], rows.outputs, cols.outputs), np.int64)
    far = np.empty(found.shape, np.bool_)
    for n, c, r, s in np.ndindex(found.shape):
        places = [
            (
                r * rows.stride + i * rows.dilation - rows.before,
                s * cols.stride + j * cols.dilation - cols.before,
            )
            for i in range(rows.kernel)
            for j in range(cols.kernel)
        ]
        inside = [(a, b) for a, b in places if 0 <= a < rows.size and 0 <= b < cols.size]
        total = sum(int(x[n, c, a, b]) - zeros[0] for a, b in inside)
        quotient = total * ratio / (len(places) if include_pad else len(inside))
        far[n, c, r, s] = abs(quotient % 1 - Fraction(1, 2)) > Fraction(1, 10**4)
        found[n, c, r, s] = round(Fraction(math.floor(quotient * 2**18 + Fraction(1, 2)), 2**18)) + zeros[1]
    return np.clip(found, *LIMITS[str(x.dtype)]), far


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("include_pad", [False, True])
@pytest.mark.parametrize("element", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("rows", "cols"),
    [
        (Axis(14, 3, 2, 1, 1), Axis(13, 3, 2, 1, 1)),
        (Axis(8, 2, 2), Axis(7, 2, 2)),
        (Axis(7, 5, 1, 2, 2), Axis(9, 3, 1, 0, 2)),
        (Axis(9, 3, 1, 2, 2, 2), Axis(9, 2, 1, 1, 1, 2)),
    ],
)
def test_averages_are_exact_and_those_of_onnxruntime_but_for_ties(
    rows: Axis, cols: Axis, element: str, include_pad: bool, scales: tuple[float, float]
) -> None:
    x = drawn(1, (1, 6, rows.size, cols.size), element)
    zeros = LIMITS[element][0] + 120, LIMITS[element][0] + 131
    counted = {"count_include_pad": int(include_pad)}
    found, ort = both("AveragePool", x, scales, zeros, **attributes(rows, cols), **counted)
    wanted, far = exact(x, rows, cols, scales, zeros, include_pad)
    assert np.array_equal(found, wanted)
    assert np.abs(found.astype(int) - ort).max() <= 1
    # onnxruntime adds float32 products: it differs only where the exact quotient is (nearly) halfway.
    assert np.array_equal(found[far], ort[far])


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("shape", [(2, 9, 7, 7), (1, 5, 6, 5), (1, 3, 1, 1), (1, 2, 40, 33), (2, 3, 9)])
def test_global_averages_are_those_of_onnxruntime(
    shape: tuple[int, ...], scales: tuple[float, float]
) -> None:
    x = drawn(2, shape, "int8")
    found, ort = both("GlobalAveragePool", x, scales, (-5, 3))
    assert np.array_equal(found, ort)
    windows, _ = both("AveragePool", x, scales, (-5, 3), kernel_shape=shape[2:])
    assert np.array_equal(windows, ort)


@pytest.mark.parametrize(("axes", "keep"), [([2], 1), ([-1], 0), ([1, 3], 0), ([0, 1, 2, 3], 1), ([0, 2], 0)])
def test_means_over_any_axes(axes: list[int], keep: int) -> None:
    x = drawn(3, (3, 4, 50, 24), "uint8")
    given = {"axes": np.array(axes)}
    found, ort = both("ReduceMean", x, (0.05, 0.0037), (128, 100), given, keepdims=keep)
    assert found.shape == ort.shape
    assert np.array_equal(found, ort)


@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_numbers_between_dequantisation_and_average_scale_it(op: str) -> None:
    # HardSwish of a model in QOperator form ends with a division by 6 that is not quantised.
    x = drawn(5, (1, 5, 9, 8), "uint8")
    number = numpy_helper.from_array(np.float32(6), "number")
    for value, kept in ((number, True), (numpy_helper.from_array(np.float32(-6), "number"), False)):
        made = model("GlobalAveragePool", x, 0.031, 7, 0.011 if op == "Div" else 0.4, 3, "uint8")
        made.graph.initializer.append(value)
        made.graph.node.insert(1, helper.make_node(op, ["a", "number"], ["scaled"]))
        made.graph.node[2].input[0] = "scaled"
        if kept:
            assert np.array_equal(*reference(import_model(made), {"x": x}).values(), executed(made, x))
        else:
            with pytest.raises(InputError, match=r"its input .* must come from DequantizeLinear"):
                import_model(made)


@pytest.mark.parametrize("include_pad", [False, True])
def test_padding_that_rounds_the_size_up_never_counts(include_pad: bool) -> None:
    x = drawn(4, (1, 8, 14, 14), "int8")
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1}
    options = {**window, "count_include_pad": int(include_pad)}
    found, ort = both("AveragePool", x, (0.07, 0.031), (-5, 3), **options)
    assert ort.shape == found.shape
    assert np.abs(found.astype(int) - ort).max() <= 1
    assert np.mean(found != ort) < 0.01


def test_averages_are_products_and_what_follows_is_their_epilogue() -> None:
    def network(op: str, **options: Any) -> Network:
        return import_model(model(op, drawn(0, (1, 4, 8, 8), "int8"), 0.1, 0, 0.1, 0, "int8", **options))

    for made in (network("GlobalAveragePool"), network("AveragePool", kernel_shape=[2, 2])):
        (operator,) = made.operators
        assert isinstance(operator, MatrixProduct | ImageConvolution)
        assert operator.epilogue is not None


def test_what_cannot_be_computed_is_one_message() -> None:
    x = np.zeros((1, 1, 4, 4), np.int8)
    with pytest.raises(InputError, match="the input scale must be at most 262144 times the output scale"):
        both("AveragePool", x, (1e6, 1.0), (0, 0), kernel_shape=[2, 2])
    with pytest.raises(InputError, match="a window must have at most 4194304 pixels, not 4194305"):
        both("ReduceMean", np.zeros((1, (1 << 22) + 1), np.int8), (1.0, 1.0), (0, 0))
