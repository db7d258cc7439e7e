"""Integer layer and RMS normalisation equal onnxruntime's, up to one unit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hw.errors import InputError
from sw.graph.network import View, dense
from sw.graph.requantise import LIMITS
from sw.operators.normalisation.operator import Normalisation, normalisation
from tests.sw.graph.onnx_nodes import run

ELEMENTS = 40_000


def operator(
    shape: tuple[int, ...],
    element: str,
    x_scale: float,
    gamma: np.ndarray,
    beta: np.ndarray,
    epsilon: float,
    y_scale: float,
    y_zero: int,
    result: str,
) -> Normalisation:
    """A layer normalisation of a tensor as it is."""
    x, y = (View(name, shape, dense(shape)) for name in "xy")
    return normalisation(
        "n",
        "LayerNormalization",
        (),
        y,
        x,
        element=element,
        x_scale=x_scale,
        gamma=gamma,
        beta=beta,
        epsilon=epsilon,
        y_scale=y_scale,
        y_zero=y_zero,
        result=result,
    )


def rows_of(
    rng: np.random.Generator, shape: tuple[int, ...], element: str, mean: float, spread: float
) -> np.ndarray:
    """Rows of normally distributed elements; the first one is constant."""
    x = np.clip(np.rint(rng.normal(mean, spread, shape)), *LIMITS[element]).astype(element)
    x[0, 0] = 7
    return x


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 64, 100, 768, 4096, 20000])
@pytest.mark.parametrize(
    ("element", "result", "x_scale", "epsilon", "mean", "spread"),
    [
        ("int8", "int8", 0.05, 1e-5, 0, 40),
        ("uint8", "uint8", 0.001, 1e-12, 128, 3),
        ("uint8", "int8", 0.0001, 1e-3, 230, 1),
        ("int8", "uint8", 0.1, 1e-5, -100, 0.4),
        ("int8", "int8", 3e-5, 1.0, 0, 60),
    ],
)
def test_results_are_those_of_onnxruntime(
    columns: int, element: str, result: str, x_scale: float, epsilon: float, mean: float, spread: float
) -> None:
    rng = np.random.default_rng(columns)
    shape = (2, max(1, ELEMENTS // columns // 2), columns)
    x = rows_of(rng, shape, element, mean, spread)
    gamma, beta = rng.normal(1, 0.5, columns).astype(np.float32), rng.normal(0, 1, columns).astype(np.float32)
    scales = np.float32(x_scale), np.float32(0.03)
    zero = LIMITS[result][0] + 121
    made = operator(shape, element, scales[0], gamma, beta, np.float32(epsilon), scales[1], zero, result)
    found = made.reference([x])
    assert found.dtype == result
    constants = {"gamma": gamma, "beta": beta}
    ort = run("LayerNormalization", x, x_scale, 9, 0.03, zero, result, constants, axis=-1, epsilon=epsilon)
    assert np.abs(found.astype(int) - ort).max() <= 1
    assert np.mean(found != ort) < 1e-2
    numbers = x.astype(np.float64) * float(scales[0])
    away = numbers - numbers.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(away**2, axis=-1, keepdims=True) + float(np.float32(epsilon)))
    rounded = np.rint((away / deviation * gamma + beta) / float(scales[1])) + zero
    assert np.mean(found != np.clip(rounded, *LIMITS[result])) < 1e-3


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 64, 768, 4096, 20000])
@pytest.mark.parametrize(
    ("element", "result", "x_scale", "x_zero", "epsilon", "mean", "spread"),
    [
        ("int8", "int8", 0.05, 0, 1e-5, 0, 40),
        ("uint8", "uint8", 0.001, 128, 1e-12, 128, 3),
        ("uint8", "int8", 0.02, 0, 1e-3, 230, 20),
        ("int8", "uint8", 0.1, -128, 1e-5, 90, 30),
        ("int8", "int8", 3e-5, 9, 1.0, 0, 60),
        ("uint8", "int8", 0.1, 255, 0.0, 0, 1),
    ],
)
def test_rms_normalisation_is_that_of_onnxruntime(
    columns: int,
    element: str,
    result: str,
    x_scale: float,
    x_zero: int,
    epsilon: float,
    mean: int,
    spread: int,
) -> None:
    rng = np.random.default_rng(columns)
    shape = (2, max(1, ELEMENTS // columns // 2), columns)
    x = rows_of(rng, shape, element, mean, spread)
    gamma = rng.normal(1, 0.5, columns).astype(np.float32)
    zero = LIMITS[result][0] + 121
    made = normalisation(
        *("n", "RMSNormalization", (), View("y", shape, dense(shape)), View("x", shape, dense(shape))),
        element=element,
        x_scale=np.float32(x_scale),
        x_zero=x_zero,
        gamma=gamma,
        epsilon=np.float32(epsilon),
        y_scale=np.float32(0.03),
        y_zero=zero,
        result=result,
    )
    found = made.reference([x])
    assert found.dtype == result
    given, more = {"gamma": gamma}, {"axis": -1, "epsilon": epsilon}
    ort = run("RMSNormalization", x, x_scale, x_zero, 0.03, zero, result, given, opset=23, **more)
    assert np.abs(found.astype(int) - ort).max() <= 1
    assert np.mean(found != ort) < 1e-2
    numbers = (x.astype(np.float64) - x_zero) * float(np.float32(x_scale))
    root = np.sqrt(np.mean(numbers**2, axis=-1, keepdims=True) + float(np.float32(epsilon)))
    rounded = np.rint(numbers / root * gamma / float(np.float32(0.03))) + zero
    assert np.mean(found != np.clip(rounded, *LIMITS[result])) < 1e-3


def test_a_row_of_zeros_gives_zero_without_epsilon_too() -> None:
    x, y = (View(name, (1, 5), dense((1, 5))) for name in "xy")
    scales = {"element": "int8", "x_scale": 0.1, "y_scale": 1.0, "y_zero": 3, "result": "int8"}
    made = normalisation("n", "RMSNormalization", (), y, x, x_zero=-7, epsilon=0.0, **scales)
    assert made.reference([np.full((1, 5), -7, np.int8)]).tolist() == [[3] * 5]


def test_a_constant_row_gives_beta_without_epsilon_too() -> None:
    beta = np.array([0.5, -1.5, 2.5, 0.0, 100.0])
    made = operator((3, 5), "int8", 0.1, np.full(5, 2.0), beta, 0.0, 1.0, 1, "int8")
    x = np.array([[-128] * 5, [0] * 5, [127] * 5], np.int8)
    # Halves go to the even neighbour before the zero point is added.
    assert made.reference([x]).tolist() == [[1, -1, 3, 1, 101]] * 3


def test_the_variance_is_exact() -> None:
    # One element differs by 1 from 20000 others: n^2 times the variance is n - 1.
    x = np.full((1, 20000), 200, np.uint8)
    x[0, 11] = 201
    made = operator(x.shape, "uint8", 1.0, np.ones(20000), np.zeros(20000), 0.0, 1.0, 0, "uint8")
    found = made.reference([x])
    assert found[0, 11] == round(math.sqrt(20000 - 1))
    assert np.count_nonzero(found) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"columns": 40000}, "n: layer normalisation takes rows of 1 to 32768 elements, not 40000"),
        ({"epsilon": -1.0}, "n: epsilon must be a number from 0 on, not -1"),
        ({"y_scale": 1e-9}, "n: gamma and beta are too large for the output scale"),
        ({"gamma": math.nan}, "n: gamma and beta must be finite numbers"),
    ],
)
def test_what_cannot_be_computed_is_one_message(changed: dict[str, float], message: str) -> None:
    given = {"columns": 16, "epsilon": 1e-5, "y_scale": 0.1, "gamma": 1.0, **changed}
    columns = int(given["columns"])
    with pytest.raises(InputError, match=message):
        operator(
            (1, columns),
            "int8",
            0.1,
            np.full(columns, given["gamma"]),
            np.zeros(columns),
            given["epsilon"],
            given["y_scale"],
            0,
            "int8",
        )
