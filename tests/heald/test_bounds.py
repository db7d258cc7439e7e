"""Lower bounds of operators: what they count, and no prediction is below them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import heald as hd
from hw.config import load
from tests.heald.network_models import model, value

TEST = load("test")  # 4 x 4


def operator(node: Any, a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...]) -> Any:
    """What is predicted of one node whose second input holds constants."""
    weights = np.random.default_rng(5).integers(-128, 128, b).astype(np.int8)
    graph = model(
        [node], [value("a", TensorProto.INT8, a)], [value("y", TensorProto.INT32, y)], {"b": weights}
    )
    (found,) = hd.compile(graph, hd.Machine(TEST)).predict().operators
    return found


def product(a: tuple[int, ...], b: tuple[int, ...]) -> Any:
    """A product of matrices, or of batches of them."""
    y = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    return operator(helper.make_node("MatMulInteger", ["a", "b"], ["y"], "only"), a, b, y)


def convolution(image: tuple[int, ...], weights: tuple[int, ...], group: int = 1, pad: int = 0) -> Any:
    """A convolution with stride 1."""
    rows, columns = (image[2 + i] + 2 * pad - weights[2 + i] + 1 for i in (0, 1))
    node = helper.make_node("ConvInteger", ["a", "b"], ["y"], "only", group=group, pads=[pad] * 4)
    return operator(node, image, weights, (image[0], weights[0], rows, columns))


@pytest.mark.parametrize(
    ("a", "b", "least"),
    [
        ((1, 64), (64, 48), 48 * 64 // 4),  # an element of B takes a column for a cycle
        ((9, 40), (40, 3), 90),  # nine rows meet an element of B in three cycles
        ((8, 40), (40, 8), 2 * 2 * 40),
        ((2, 3, 40), (40, 8), 2 * 2 * 40),  # rows of a batch share B
        ((2, 3, 40), (2, 40, 8), 2 * 2 * 40),
        ((2, 1, 40), (40, 4), 40),
        ((2, 1, 40), (2, 40, 4), 2 * 40),
        ((2, 2, 40), (2, 40, 2), 2 * 20),  # both fit into the diagonal of a block
    ],
)
def test_an_element_takes_a_row_or_column_until_it_has_met_its_partners(
    a: tuple[int, ...], b: tuple[int, ...], least: int
) -> None:
    found = product(a, b)
    assert found.bounds["gemm"] == least
    assert found.bound_cycles <= found.span


@pytest.mark.parametrize(
    ("image", "weights", "group", "least"),
    [
        # 15 pixels meet six weights each, more than a row's four.
        ((1, 8, 5, 3), (6, 8, 1, 1), 1, 15 * 8 * 2 // 4),
        ((1, 8, 5, 3), (8, 2, 1, 1), 4, 15 * 8 // 4),
        # A weight meets 25 pixels, four at a time.
        ((1, 3, 7, 7), (5, 3, 3, 3), 1, math.ceil(5 * 27 * 7 / 4)),
        ((1, 4, 7, 7), (4, 1, 3, 3), 4, math.ceil(4 * 9 * 7 / 4)),
    ],
)
def test_pixels_meet_weights(
    image: tuple[int, ...], weights: tuple[int, ...], group: int, least: int
) -> None:
    found = convolution(image, weights, group)
    assert found.bounds["gemm"] == least
    assert found.bound_cycles <= found.span


def test_products_with_padding_are_not_counted() -> None:
    assert convolution((1, 8, 1, 1), (4, 8, 1, 1), pad=2).bounds["gemm"] == 8


def test_random_products_take_longer_than_their_bounds() -> None:
    rng = np.random.default_rng(11)
    for _ in range(12):
        m, k, n = (int(x) for x in np.exp(rng.uniform(0, 4.3, 3)))
        found = product((m, k), (k, n))
        assert found.macs / TEST.macs_per_cycle <= found.bounds["gemm"] <= found.span, (m, k, n)


@pytest.mark.parametrize("shape", [(3, 5), (40, 50), (1, 700)])
def test_launches_take_longer_than_their_bounds(shape: tuple[int, int]) -> None:
    inputs = [value(name, TensorProto.INT32, shape) for name in "ab"]
    graph = model(
        [helper.make_node("Add", ["a", "b"], ["y"], "only")],
        inputs,
        [value("y", TensorProto.INT32, shape)],
        {},
    )
    predicted = hd.compile(graph, hd.Machine(TEST)).predict()
    (found,) = predicted.operators
    (kernel,) = found.kernels
    iterations = -(-math.prod(shape) // kernel.configured.kernel.per_iteration)
    assert iterations * kernel.ii < found.bounds["cgra"] <= found.span
