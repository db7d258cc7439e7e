"""Lower bounds of operators: below what the cycle model predicts, and as high as the blocks of the array."""

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


def convolution(image: tuple[int, ...], weights: tuple[int, ...], group: int = 1) -> Any:
    """A convolution without pads."""
    rows, columns = (image[2 + i] - weights[2 + i] + 1 for i in (0, 1))
    node = helper.make_node("ConvInteger", ["a", "b"], ["y"], "only", group=group)
    return operator(node, image, weights, (image[0], weights[0], rows, columns))


@pytest.mark.parametrize(
    ("a", "b", "blocks"),
    [
        ((1, 64), (64, 48), 12),
        ((9, 40), (40, 3), 3),
        ((8, 40), (40, 8), 4),
        ((2, 3, 40), (40, 8), 2 * 2),  # rows of a batch share B
        ((2, 3, 40), (2, 40, 8), 2 * 2),  # and these do not
        ((2, 1, 40), (40, 4), 1),
        ((2, 1, 40), (2, 40, 4), 2),
    ],
)
def test_a_block_takes_its_depth_however_full_it_is(
    a: tuple[int, ...], b: tuple[int, ...], blocks: int
) -> None:
    found = product(a, b)
    assert found.bounds["gemm"] == blocks * a[-1]
    assert found.bound_cycles <= found.span


@pytest.mark.parametrize(
    ("image", "weights", "group", "least"),
    [
        ((1, 8, 5, 3), (6, 8, 1, 1), 1, 4 * 2 * 8),
        ((1, 8, 5, 3), (8, 2, 1, 1), 4, 4 * (4 * 1 * 2)),
        ((1, 3, 7, 7), (5, 3, 3, 3), 1, math.ceil(5 * 25 * 27 / 16)),
        ((1, 4, 7, 7), (4, 1, 3, 3), 4, math.ceil(4 * 25 * 9 / 16)),
    ],
)
def test_kernels_of_one_pixel_are_products(
    image: tuple[int, ...], weights: tuple[int, ...], group: int, least: int
) -> None:
    found = convolution(image, weights, group)
    assert found.bounds["gemm"] == least
    assert found.bound_cycles <= found.span


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
