"""Integer softmax equals onnxruntime's, and is nearly always the correctly rounded result."""

from __future__ import annotations

import numpy as np
import pytest

from hw.errors import InputError
from sw.graph.network import View, dense
from sw.graph.requantise import LIMITS
from sw.operators.softmax import GROUP, ONE, Softmax, softmax
from tests.sw.graph.onnx_nodes import run

#: Elements of which every case has about as many.
ELEMENTS = 40_000
#: Types of input and result, their scales, and how far apart inputs are.
TYPES_AND_SCALES = pytest.mark.parametrize(
    ("element", "result", "x_scale", "y_scale", "spread"),
    [
        ("int8", "int8", 0.1, 1 / 256, 40),
        ("uint8", "uint8", 0.02, 1 / 256, 90),
        ("uint8", "int8", 0.05, 0.0003, 30),
        ("int8", "uint8", 0.004, 0.03, 60),
        ("int8", "int8", 1.5, 1 / 255, 60),
    ],
)


def operator(
    shape: tuple[int, ...], element: str, x_scale: float, y_scale: float, y_zero: int, result: str
) -> Softmax:
    """A softmax of a tensor as it is."""
    x, y = (View(name, shape, dense(shape)) for name in "xy")
    return softmax(
        "s",
        "Softmax",
        (),
        y,
        x,
        element=element,
        x_scale=x_scale,
        y_scale=y_scale,
        y_zero=y_zero,
        result=result,
    )


def exact(x: np.ndarray, x_scale: float, y_scale: float, y_zero: int, result: str) -> np.ndarray:
    """The result in float64, rounded once."""
    powers = np.exp((x - x.max(axis=-1, keepdims=True).astype(np.float64)) * float(np.float32(x_scale)))
    rounded = np.rint(powers / powers.sum(axis=-1, keepdims=True) / float(np.float32(y_scale)))
    return np.clip(rounded + y_zero, *LIMITS[result]).astype(np.int64)


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 10, 64, 100, 197, 1000, 4096])
@TYPES_AND_SCALES
def test_results_are_those_of_onnxruntime(
    columns: int, element: str, result: str, x_scale: float, y_scale: float, spread: float
) -> None:
    rng = np.random.default_rng(columns)
    low, high = LIMITS[element]
    shape = (2, max(1, ELEMENTS // columns // 2), columns)
    x = np.clip(np.rint(rng.normal((low + high) / 2, spread, shape)), low, high).astype(element)
    zero = LIMITS[result][0]
    found = operator(shape, element, np.float32(x_scale), np.float32(y_scale), zero, result).reference([x])
    assert found.dtype == result
    ort = run("Softmax", x, x_scale, 3, y_scale, zero, result, axis=-1)
    assert np.abs(found.astype(int) - ort).max() <= 1
    assert np.mean(found != ort) < 1e-3
    assert np.mean(found != exact(x, x_scale, y_scale, zero, result)) < 1e-3


def test_the_sum_of_a_row_cannot_overflow() -> None:
    for columns in (1, 8, 9, 128, 129, 4096, 4097, 1 << 16):
        shape = (1, columns)
        made = operator(shape, "int8", 1e-6, 1e-5, 0, "uint8")
        groups = -(-columns // GROUP)
        assert groups * ((GROUP * ONE) >> made.drop) + made.half < 1 << 32
        found = made.reference([np.full(shape, 5, np.int8)])
        assert np.array_equal(found, np.full(shape, min(255, round(1e5 / columns))))


def test_small_exponentials_are_not_lost() -> None:
    # 4095 elements whose exponential is half a unit of a sum of 32 bits would otherwise be off together.
    x = np.full((1, 4096), -128, np.int8)
    x[0, 7] = 127
    scale = float(np.log(2.0**21) / 255)
    found = operator(x.shape, "int8", scale, 1 / 256, 0, "uint8").reference([x])
    assert np.array_equal(found, exact(x, scale, 1 / 256, 0, "uint8"))


@pytest.mark.parametrize(
    ("columns", "x_scale", "y_scale", "message"),
    [
        (1 << 17, 0.1, 0.1, "s: softmax takes rows of 1 to 65536 elements, not 131072"),
        (8, 0.1, 64.0, r"s: the output scale of softmax must be from 2\^-28 to 32, not 64"),
    ],
)
def test_what_cannot_be_computed_is_one_message(
    columns: int, x_scale: float, y_scale: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        operator((1, columns), "int8", x_scale, y_scale, 0, "int8")
