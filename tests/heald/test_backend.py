"""The ONNX backend: official cases on the RTL, and what it refuses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import helper

from bench.onnx_backend import failures, select
from heald.backend import Backend, UnsupportedError, compiled
from hw.config import load
from hw.errors import InputError
from sw.frontend.bindings import bindings
from tests.heald.network_models import hosted, integers, perceptron

TEST = load("test")


CASES = ("test_qlinearmatmul_3D_uint8_float32", "test_bitwise_and_ui8", "test_min_int8")


@pytest.mark.parametrize("match", CASES)
def test_official_cases_pass(match: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ready, refused = select(TEST, match)
        assert ready
        assert refused == {}
        assert failures(ready, TEST, "cpp") == {}


def test_a_model_runs_on_inputs_in_order_or_by_name() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-1000, 1000, (3, 5)).astype(np.int32) for _ in range(2))
    ready = Backend.prepare(integers("Max"))
    (y,) = ready.run([a, b])
    assert np.array_equal(y, np.maximum(a, b))
    (y,) = ready.run({"b": b, "a": a})
    assert np.array_equal(y, np.maximum(a, b))
    with pytest.raises(InputError, match=r"takes 2 inputs \(a, b\), not 1"):
        ready.run([a])


def test_a_node_runs_alone() -> None:
    a, b = np.array([[1, -2], [3, 4]], np.int8), np.array([[5, 6], [-7, 8]], np.int8)
    (y,) = Backend.run_node(helper.make_node("MatMulInteger", ["a", "b"], ["y"]), [a, b])
    assert y.dtype == np.int32
    assert np.array_equal(y, a.astype(np.int32) @ b)


def test_what_it_takes_is_told_before() -> None:
    assert Backend.supports_device("CPU")
    assert not Backend.supports_device("CUDA")
    assert Backend.is_compatible(perceptron())
    assert not Backend.is_compatible(hosted())
    assert not Backend.is_compatible(integers("Add", shape=("n", 5)))
    with pytest.raises(UnsupportedError, match="sine"):
        Backend.run_model(hosted(), [np.ones((3, 8), np.int32), np.ones((3, 8), np.int8)])
    with pytest.raises(InputError, match="device must be CPU"):
        Backend.prepare(perceptron(), "CUDA:0")


def test_parameters_that_are_inputs_become_constants() -> None:
    inputs = {"a": np.ones((3, 5), np.int32), "b": np.ones(5, np.int32)}
    kept = [sorted(left) for _, left in bindings(integers("Add"), inputs)]
    assert kept == [["a", "b"], ["a"]]
    model = compiled(integers("Add"), {name: np.ones((3, 5), np.int32) for name in "ab"}, TEST)
    assert (sorted(model.inputs), model.bound) == (["a", "b"], {})


def test_the_machine_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALD_HW", "nothing")
    with pytest.raises(InputError, match="must be a preset"):
        Backend.prepare(perceptron())
