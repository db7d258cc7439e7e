"""Models from onnxruntime's quantiser, operator by operator against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heald.testing.models import Builder
from sw.frontend.network import import_model
from sw.graph.host import HostOperator
from sw.graph.reference import random_inputs, run
from sw.graph.text import text
from tests.sw.quantised_models import bottleneck, encoder, operator_differences, quantise, runtime

KINDS = [
    (True, False, "uint8", False),
    (True, True, "int8", False),
    (False, False, "int8", True),
    (False, True, "uint8", False),
]


@pytest.fixture(params=KINDS, ids=lambda k: f"{'QDQ' if k[0] else 'QOperator'}-{k[1]}-{k[2]}-{k[3]}")
def kind(request: Any, tmp_path: Path) -> dict[str, Any]:
    qdq, per_channel, element, symmetric = request.param
    return {
        "folder": tmp_path,
        "qdq": qdq,
        "per_channel": per_channel,
        "element": element,
        "symmetric": symmetric,
    }


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("make", [encoder, bottleneck])
def test_operators_of_quantised_models(make: Any, kind: dict[str, Any], optimised: bool) -> None:
    model = quantise(make(), **kind)
    # The quantiser leaves the last normalisation in float32 in this format.
    network = import_model(model, allow_host=make is encoder and not kind["qdq"])
    inputs = random_inputs(network, np.random.default_rng(1))
    found = operator_differences(model, network, inputs, optimised)
    assert len(found) > 6
    for name, (different, elements, most) in found.items():
        # Softmax, normalisation and means are within one unit, everything else differs next to ties only.
        # onnxruntime's softmax of 8-bit numbers, which it takes when it rewrites, is less exact than that.
        assert most <= 1, name
        assert different <= max(1, elements // 100) or "softmax" in name, name
    ours, theirs = run(network, inputs), runtime(model, inputs)
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        assert array.dtype == np.float32
        assert array.shape == theirs[name].shape


def test_an_encoder_layer_has_few_operators(tmp_path: Path) -> None:
    settings = {"qdq": True, "per_channel": True, "element": "int8", "symmetric": False}
    model = quantise(encoder(), tmp_path, **settings)  # type: ignore[arg-type]
    network = import_model(model)
    edge = [o.op for o in network.operators if isinstance(o, HostOperator)]
    assert edge == ["QuantizeLinear", "DequantizeLinear"]
    assert all(o.edge for o in network.operators if isinstance(o, HostOperator))
    rest = [o.op for o in network.operators if not isinstance(o, HostOperator)]
    # Six linear layers and two products of attention; heads are views, whatever is between is fused.
    assert sorted(rest) == sorted(["MatMul"] * 8 + ["Softmax"] + ["LayerNormalization"] * 2)
    assert network.inputs == ("x",)
    assert network.outputs == tuple(o.name for o in model.graph.output)
    listing = text(network)
    assert listing.count("\n") == 2 + len(network.operators)
    assert "on the host (edge)" in listing


def test_the_host_works_before_and_behind_the_machine() -> None:
    b = Builder()
    first = b.real(b.quantised(b.input((4, 4), "float32"), "int8", 0.02), "int8", 0.02)
    small = b.real(b.quantised(b.op("Abs", first), "int8", 0.02), "int8", 0.02)
    # The second input is quantised where the model needs it, behind the first operator.
    second = b.real(b.quantised(b.input((4, 4), "float32"), "int8", 0.02), "int8", 0.02)
    total = b.quantised(b.op("Add", small, second), "int8", 0.03)
    model = b.model(small, b.real(total, "int8", 0.03))
    network = import_model(model)
    host = [isinstance(o, HostOperator) for o in network.operators]
    assert host == [True, True, False, False, True, True]
    inputs = random_inputs(network, np.random.default_rng(0))
    theirs = runtime(model, inputs)
    for name, array in run(network, inputs).items():
        assert np.array_equal(array, theirs[name])


def test_the_file_and_the_model_give_the_same_network(tmp_path: Path) -> None:
    settings = {"qdq": True, "per_channel": False, "element": "int8", "symmetric": True}
    model = quantise(bottleneck(), tmp_path, **settings)  # type: ignore[arg-type]
    assert text(import_model(tmp_path / "quantised.onnx")) == text(import_model(model))
