"""Enlarged images as products of the array, on a machine whose CGRA has lanes."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.session.bounds import macs
from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.model_run import run_model
from heald.testing.models import Builder
from hw.config import load
from sw.compile.legal import legal
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.network import Elementwise, MatrixProduct, Network
from tests.heald.conftest import Quick
from tests.heald.test_lanes import SETTINGS


def enlarged(
    shape: tuple[int, ...], factors: list[float], element: str = "int8", concat: bool = False
) -> Network:
    """A resized image on another grid, if wanted as the first half of a concatenation."""
    b = Builder(sum(shape))
    x = b.real(b.input(shape, element), element, 0.05)
    larger = b.op("Resize", x, "", b.constant([1, 1, *factors], np.float32), mode="nearest")
    if concat:
        size = (*shape[:2], *(int(n * f) for n, f in zip(shape[2:], factors, strict=True)))
        larger = b.op("Concat", larger, b.real(b.input(size), "int8", 0.04), axis=1)
    return import_model(b.model(b.quantised(larger, element, 0.06)))


def correct(network: Network, fabric: str = "vector3x4") -> bool:
    config = load("test", SETTINGS | {"cgra": fabric})
    inputs = reference.random_inputs(network, np.random.default_rng(3))
    return run_model(
        compile_model(network, config), inputs, MemorySettings.of(config), lambda: Quick(config)
    ).correct


def products(network: Network, fabric: str = "vector3x4") -> int:
    found = legal(network, load("test", SETTINGS | {"cgra": fabric})).operators
    assert all(isinstance(o, MatrixProduct | Elementwise) and macs(o) == 0 for o in found)
    return sum(isinstance(o, MatrixProduct) for o in found)


@pytest.mark.parametrize(
    ("shape", "factors", "expected"),
    [
        ((1, 12, 5, 5), [2, 2], 2),
        ((2, 6, 5, 7), [2, 2], 2),
        ((1, 3, 8, 8), [4, 4], 4),
        ((1, 40, 1, 8), [1, 4], 1),
        ((1, 20, 7, 5), [1, 2], 1),
        ((1, 1, 8, 8), [3, 8], 3),
        # Too few pixels, too wide, too many repetitions of rows, columns that are not repeated.
        ((1, 1, 5, 5), [2, 2], 0),
        ((1, 12, 5, 9), [2, 2], 0),
        ((1, 12, 5, 5), [5, 2], 0),
        ((1, 12, 8, 8), [2, 1], 0),
    ],
)
def test_the_array_enlarges_images(shape: tuple[int, ...], factors: list[float], expected: int) -> None:
    network = enlarged(shape, factors)
    assert products(network) == expected
    assert correct(network)


def test_bytes_without_a_sign_and_parts_of_a_tensor() -> None:
    assert correct(enlarged((1, 12, 5, 5), [2, 2], "uint8"))
    network = enlarged((1, 12, 5, 6), [2, 2], concat=True)
    assert products(network) == 2
    assert correct(network)


def test_without_lanes_the_cgra_repeats_elements() -> None:
    assert products(enlarged((1, 12, 5, 5), [2, 2]), "mesh4x4") == 0
