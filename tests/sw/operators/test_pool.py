"""Pooling is what onnxruntime gives; averages are the exact quotients, rounded half to even."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hw.errors import InputError
from sw.graph.network import View, dense
from sw.graph.requantise import LIMITS
from sw.operators.pools.operator import Pool, average_pool, max_pool
from sw.patches import Axis
from tests.sw.graph.onnx_nodes import run

SCALES = [(0.1, 0.1), (0.07, 0.031), (0.02, 0.05)]


def views(shape: tuple[int, ...], rows: Axis, cols: Axis) -> tuple[View, View]:
    """Output and input as they are."""
    outputs = (*shape[:2], rows.outputs, cols.outputs)
    return View("y", outputs, dense(outputs)), View("x", shape, dense(shape))


def average(
    x: np.ndarray,
    rows: Axis,
    cols: Axis,
    scales: tuple[float, float],
    zeros: tuple[int, int],
    **options: object,
) -> Pool:
    """An average of images as they are; input and output have one type."""
    return average_pool(
        "p",
        "AveragePool",
        (),
        *views(x.shape, rows, cols),
        rows,
        cols,
        element=str(x.dtype),
        x_scale=np.float32(scales[0]),
        x_zero=zeros[0],
        y_scale=np.float32(scales[1]),
        y_zero=zeros[1],
        result=str(x.dtype),
        **options,  # type: ignore[arg-type]
    )


def images(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> np.ndarray:
    """Random images."""
    low, high = LIMITS[element]
    return rng.integers(low, high + 1, shape).astype(element)


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
    x = images(np.random.default_rng(1), (1, 6, rows.size, cols.size), element)
    zeros = LIMITS[element][0] + 120, LIMITS[element][0] + 131
    made = average(x, rows, cols, scales, zeros, include_pad=include_pad)
    found = made.reference([x]).astype(int)
    wanted, far = exact(x, rows, cols, scales, zeros, include_pad)
    assert np.array_equal(found, wanted)
    ort = run(
        "AveragePool",
        x,
        scales[0],
        zeros[0],
        scales[1],
        zeros[1],
        element,
        kernel_shape=[rows.kernel, cols.kernel],
        strides=[rows.stride, cols.stride],
        pads=[rows.before, cols.before, rows.after, cols.after],
        dilations=[rows.dilation, cols.dilation],
        count_include_pad=int(include_pad),
    )
    assert np.abs(found - ort).max() <= 1
    # onnxruntime adds float32 products: it differs only where the exact quotient is (nearly) halfway.
    assert np.array_equal(found[far], ort[far])


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("shape", [(2, 9, 7, 7), (1, 5, 6, 5), (1, 3, 1, 1), (1, 2, 40, 33)])
def test_global_averages_are_those_of_onnxruntime(
    shape: tuple[int, ...], scales: tuple[float, float]
) -> None:
    x = images(np.random.default_rng(2), shape, "int8")
    found = average(x, Axis(shape[2], shape[2]), Axis(shape[3], shape[3]), scales, (-5, 3)).reference([x])
    ort = run("GlobalAveragePool", x, scales[0], -5, scales[1], 3, "int8")
    assert np.array_equal(found, ort)


def test_a_mean_over_a_middle_axis() -> None:
    x = images(np.random.default_rng(3), (1, 4, 50, 24), "uint8")
    found = average(x, Axis(50, 50), Axis(24, 1), (0.05, 0.0037), (128, 100)).reference([x])
    axes = {"axes": np.array([2])}
    assert np.array_equal(found, run("ReduceMean", x, 0.05, 128, 0.0037, 100, "uint8", axes, keepdims=1))


@pytest.mark.parametrize("include_pad", [False, True])
def test_padding_that_rounds_the_size_up_never_counts(include_pad: bool) -> None:
    x = images(np.random.default_rng(4), (1, 8, 14, 14), "int8")
    axis = Axis(14, 3, 2, 1, 2)
    made = average(x, axis, axis, (0.07, 0.031), (-5, 3), include_pad=include_pad, uncounted=(1, 1))
    ort = run(
        "AveragePool",
        x,
        0.07,
        -5,
        0.031,
        3,
        "int8",
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1] * 4,
        ceil_mode=1,
        count_include_pad=int(include_pad),
    )
    assert ort.shape == made.output.shape
    assert np.abs(made.reference([x]).astype(int) - ort).max() <= 1
    assert np.mean(made.reference([x]) != ort) < 0.01


@pytest.mark.parametrize("element", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("rows", "cols"),
    [
        (Axis(14, 3, 2, 1, 1), Axis(13, 2, 2, 1, 0)),
        (Axis(9, 3, 1, 1, 1, 2), Axis(9, 3, 1, 1, 1, 2)),
        (Axis(8, 8), Axis(5, 5)),
    ],
)
def test_maxima_are_those_of_onnxruntime(rows: Axis, cols: Axis, element: str) -> None:
    x = images(np.random.default_rng(5), (2, 6, rows.size, cols.size), element)
    made = max_pool("p", "MaxPool", (), *views(x.shape, rows, cols), rows, cols, element=element)
    ort = run(
        "MaxPool",
        x,
        0.1,
        3,
        0.1,
        3,
        element,
        kernel_shape=[rows.kernel, cols.kernel],
        strides=[rows.stride, cols.stride],
        pads=[rows.before, cols.before, rows.after, cols.after],
        dilations=[rows.dilation, cols.dilation],
    )
    assert np.array_equal(made.reference([x]), ort)


def test_what_cannot_be_computed_is_one_message() -> None:
    x = np.zeros((1, 1, 4, 4), np.int8)
    with pytest.raises(InputError, match="p: the output scale must be a positive number, not 0"):
        average(x, Axis(4, 2), Axis(4, 2), (0.1, 0.0), (0, 0))
    with pytest.raises(InputError, match="p: the input scale must be at most 262144 times the output scale"):
        average(x, Axis(4, 2), Axis(4, 2), (1e6, 1.0), (0, 0))
    with pytest.raises(InputError, match=r"p: images of 5 x 4 must give \(1, 1, 4, 3\)"):
        average(x, Axis(5, 2), Axis(4, 2), (0.1, 0.1), (0, 0))
