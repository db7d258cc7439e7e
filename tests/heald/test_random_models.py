"""Random quantised models against onnxruntime, and on the RTL; `tests.fuzz.random_models` draws many."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.job import Simulator
from cosim.session.network import draw_inputs
from heald.testing.models import Builder, draw
from heald.testing.operators import KINDS
from heald.testing.views import IMAGES, VIEWS
from hw.config import load
from sw.frontend.network import import_model
from sw.graph.host import HostOperator
from tests.heald.exact_models import Exact, unexplained
from tests.heald.judged_models import judged
from tests.sw.quantised_models import operator_results

TEST = load("test")
ALL = {**KINDS, **VIEWS, **IMAGES}


@functools.cache
def _machine() -> Simulator:
    return simulator(TEST, "cpp")


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 8))])
def test_a_random_model_is_the_reference_on_the_rtl(seed: int) -> None:
    model, kinds = draw(f"test/{seed}", ALL, most=4)
    found = judged(model, kinds, TEST, seed, _machine)
    assert not found.failures
    assert not found.refused
    assert found.programs > 0 or not found.operators


def test_random_models_are_onnxruntimes_operator_by_operator() -> None:
    elements, used = 0, set()
    for number in range(60):
        model, kinds = draw(f"operators/{number}", ALL)
        found = judged(model, kinds, TEST, number, None)
        assert not found.failures, number
        assert found.documented, found.refused
        elements += found.elements
        used |= set(kinds)
    assert elements > 100_000
    assert used == set(ALL)


def test_a_result_that_is_not_the_exact_one_is_found() -> None:
    model, _ = draw("wrong", {"residual": ALL["residual"]}, least=1, most=1)
    network = import_model(model)
    inputs = draw_inputs(network, 0)
    theirs, results = operator_results(model, network, inputs, False)
    operators = zip(network.operators, results, strict=True)
    operator, result = next((o, r) for o, r in operators if r is not None and not isinstance(o, HostOperator))
    tensor = operator.output.tensor
    exact = Exact(model, {**theirs, **inputs}, operator.nodes).unrounded(tensor).reshape(result.shape)
    assert unexplained(exact, result) == 0
    inside = np.abs(result.astype(int) - np.iinfo(result.dtype).min) > 1
    assert unexplained(exact, np.where(inside, result - 1, result)) == inside.sum()


def test_what_is_refused_is_documented() -> None:
    b = Builder()
    x = b.real(b.input((4, 4)), "int8")
    w = b.real(b.constant(b.rng.integers(-9, 9, (4, 4)), np.int8), "int8")
    found = judged(b.model(b.quantised(b.op("Gelu", b.op("MatMul", x, w)), "int8")), [], TEST, 0, None)
    assert re.search("node n3 .*QuantizeLinear and DequantizeLinear are needed between", found.refused)
    assert found.documented


def test_views_that_no_load_brings_as_they_lie() -> None:
    b = Builder(3)
    x = b.input((2, 6, 5, 7), "uint8")
    flat, line = b.input((20, 33)), b.input((40,))
    backwards = [b.constant(v) for v in ([-1, -1], [-99, -99], [2, 3], [-1, -2])]
    steps = [b.constant(v) for v in ([1], [99], [1], [3])]
    columns = b.ops("Split", flat, b.constant([1, 32]), count=2, axis=1)
    turned = b.op("Transpose", flat, perm=[1, 0])
    real = b.real(turned, "int8", 0.02)
    weights = b.real(b.constant(b.rng.integers(-99, 99, (20, 9)), np.int8), "int8", 0.01)
    every = b.op("Slice", flat, *steps)
    third = b.real(b.op("Slice", every, *(b.constant(v) for v in ([0], [99], [0], [2]))), "int8", 0.02)
    scalar = b.op("Gather", line, b.constant(7))
    wide = b.real(b.op("Transpose", b.input((5, 2, 40)), perm=[1, 2, 0]), "int8", 0.02)
    values = [
        b.op("Add", real, b.op("Transpose", b.real(b.input((20, 33)), "int8", 0.03), perm=[1, 0])),
        b.op("Softmax", real, axis=-1),
        b.op("Softmax", b.real(x, "uint8", 0.02), axis=1),
        b.op("Softmax", b.real(b.op("Expand", columns[0], b.constant([20, 6])), "int8", 0.02), axis=1),
        b.op("MatMul", b.real(b.op("Expand", line, b.constant([2, 3, 40])), "int8", 0.02), wide),
        b.op("MatMul", b.real(b.op("Expand", scalar, b.constant([4, 40])), "int8", 0.02), wide),
        b.op("MatMul", real, weights),
        b.op("MatMul", third, b.real(b.constant(b.rng.integers(-99, 99, (11, 3)), np.int8), "int8", 0.01)),
        b.op("Mul", real, b.real(b.op("Gather", line, b.constant(3)), "int8", 0.9)),
        b.op("Add", third, b.real(b.op("Gather", line, b.constant([4])), "int8", 0.02)),
    ]
    outputs = [
        b.op("Transpose", x, perm=[0, 2, 3, 1]),
        b.op("Transpose", x, perm=[3, 1, 0, 2]),
        b.op("Slice", x, *backwards),
        every,
        b.op("Concat", turned, b.op("Slice", turned, *(b.constant(v) for v in ([7], [8], [1]))), axis=1),
        b.op("Concat", columns[0], flat, columns[0], axis=1),
        b.op("Gather", line, b.constant(5)),
        *(b.quantised(v, "int8", 0.05) for v in values),
    ]
    found = judged(b.model(*outputs), [], TEST, 1, _machine)
    assert not found.refused
    assert not found.failures
    assert found.operators >= len(outputs)
