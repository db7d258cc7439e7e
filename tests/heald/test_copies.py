"""Copies that legalisation adds: transposed matrices go through the array, others stay copies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.model_run import ModelRun, run_model
from heald.testing.models import Builder
from hw.config import load
from sw.compile.legal import legal
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.network import MatrixProduct, Network
from tests.heald.conftest import Quick

TEST = load("test", {"rows": 8, "cols": 8})


def softmax_of(shape: tuple[int, ...], perm: list[int], element: str = "int8") -> Network:
    """Softmax along an axis that does not lie in rows."""
    b = Builder(5)
    x = b.real(b.input(shape, element), element, 0.05)
    return import_model(
        b.model(b.quantised(b.op("Softmax", b.op("Transpose", x, perm=perm), axis=-1), element, 1 / 128))
    )


def test_results_of_softmax_go_back_in_columns_of_any_number() -> None:
    """Groups of columns lie inside of a row, and follow each other like rows."""
    b = Builder(5)
    x = b.real(b.input((1, 16, 4, 130)), "int8", 0.05)
    network = import_model(b.model(b.quantised(b.op("Softmax", x, axis=1), "int8", 1 / 128)))
    _, _, back = legal(network, TEST).operators
    assert isinstance(back, MatrixProduct)
    assert executed(network).correct


def executed(network: Network) -> ModelRun:
    inputs = reference.random_inputs(network, np.random.default_rng(1))
    return run_model(compile_model(network, TEST), inputs, MemorySettings.of(TEST), lambda: Quick(TEST))


@pytest.mark.parametrize(
    ("shape", "perm", "element", "steps"),
    [
        ((2, 16, 90), [0, 2, 1], "int8", 16),
        ((1, 96, 40), [0, 2, 1], "uint8", 16),
        ((3, 20, 35), [2, 0, 1], "int8", 10),
        ((16, 16, 8), [2, 1, 0], "int8", 16),
    ],
)
def test_the_array_transposes_matrices(
    shape: tuple[int, ...], perm: list[int], element: str, steps: int
) -> None:
    network = softmax_of(shape, perm, element)
    copy, _ = legal(network, TEST).operators
    assert isinstance(copy, MatrixProduct)
    assert copy.b.shape[-2:] == (steps, steps)
    run = executed(network)
    assert run.correct
    # What the array multiplies for it is no work of the model.
    assert [(o.op, o.macs) for o in run.operators] == [("Copy", 0), ("Softmax", 0)]


@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((1, 16, 20), [0, 2, 1]),  # few elements
        ((1, 7, 300), [0, 2, 1]),  # few columns
        ((1, 67, 40), [0, 2, 1]),  # no number of steps divides the columns
    ],
)
def test_others_stay_copies(shape: tuple[int, ...], perm: list[int]) -> None:
    network = softmax_of(shape, perm)
    copy, _ = legal(network, TEST).operators
    assert not isinstance(copy, MatrixProduct)
    assert executed(network).correct


def test_small_arrays_copy() -> None:
    network = softmax_of((2, 16, 90), [0, 2, 1])
    assert not any(isinstance(o, MatrixProduct) for o in legal(network, load("test")).operators)


def test_a_tensor_of_the_model_may_have_the_name_of_the_identity() -> None:
    b = Builder(5)
    x = b.real(b.input((2, 16, 90)), "int8", 0.05)
    network = import_model(b.model(b.quantised(b.op("Softmax", x, axis=1), "int8", 1 / 128)))
    tensors = {**network.tensors, "identity 16": network.tensors[network.outputs[0]]}
    made = legal(dataclasses.replace(network, tensors=tensors), TEST)
    (product, *_) = made.operators
    assert isinstance(product, MatrixProduct)
    assert product.b.tensor == "identity 16'"
    assert made.tensors["identity 16"] == tensors["identity 16"]
