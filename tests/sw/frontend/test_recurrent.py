"""LSTM, GRU and RNN written with smaller operators equal onnxruntime's, up to the rounding of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from hw.errors import InputError
from sw.frontend.node import OnnxNode
from sw.frontend.protos import node_of_proto
from sw.frontend.recurrent import written_out

STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 5, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENGTHS = np.array([4, 1, 3], np.int32)


def layer(op: str, given: str, **attributes: Any) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A layer with the optional inputs whose letters are `given` (B, s, h, c, P), and its constants."""
    rng = np.random.default_rng(len(given) + len(attributes))
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    gates, first = GATES[op] * HIDDEN, bool(attributes.get("layout", 0))
    state = (BATCH, count, HIDDEN) if first else (count, BATCH, HIDDEN)
    shapes = {"W": (count, gates, INPUTS), "R": (count, gates, HIDDEN), "B": (count, 2 * gates)}
    shapes |= {"h": state, "c": state, "P": (count, 3 * HIDDEN)}
    held = {n: rng.normal(0, 0.5, shapes[n]).astype(np.float32) for n in "WRBhcP" if n in "WR" + given}
    if "s" in given:
        held["s"] = LENGTHS
    optional = "BshcP" if op == "LSTM" else "Bsh"
    names = ["X", "W", "R", *(n if n in held else "" for n in optional)]
    outputs = ["Y", "Y_h", *(["Y_c"] if op == "LSTM" else [])]
    node = helper.make_node(op, names, outputs, op, hidden_size=HIDDEN, **attributes)
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, _shape(first))
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    constants = [numpy_helper.from_array(a, n) for n, a in held.items()]
    graph = helper.make_graph([node], op, [x], results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), held


def _shape(batch_first: bool) -> tuple[int, ...]:
    return (BATCH, STEPS, INPUTS) if batch_first else (STEPS, BATCH, INPUTS)


def smaller(model: onnx.ModelProto, held: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The model with its layer written out."""
    (proto,) = model.graph.node
    _, node = node_of_proto(proto, 0)
    constants = dict(held)
    nodes = written_out(node, _shape(bool(node.attributes.get("layout", 0))), HIDDEN, constants).nodes
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.initializer[:]
    made.graph.node.extend(helper.make_node(n.op, n.inputs, n.outputs, **n.attributes) for n in nodes)
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    return made


def results(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """What onnxruntime computes."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"X": x}))


CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((op, given, {"direction": d}) for op in GATES for given in ("", "Bh") for d in ("forward", "reverse")),
    *((op, "Bh", {"direction": "bidirectional", "clip": 0.4}) for op in GATES),
    *((op, "Bsh", {"direction": "bidirectional"}) for op in GATES),
    *((op, "s", {"direction": "reverse"}) for op in GATES),
    ("LSTM", "BhcP", {"direction": "bidirectional"}),
    ("LSTM", "P", {}),
    ("LSTM", "BshcP", {"clip": 0.3, "direction": "reverse"}),
    ("LSTM", "Bhc", {"input_forget": 1}),
    ("LSTM", "BhcP", {"input_forget": 1}),
    ("LSTM", "Bh", {"activations": ["HardSigmoid", "Relu", "Softsign"], "activation_alpha": [0.3]}),
    ("LSTM", "Bc", {"activations": ["Sigmoid", "LeakyRelu", "Elu"], "activation_alpha": [0.2, 0.7]}),
    *(("GRU", given, {"linear_before_reset": 1}) for given in ("", "B", "Bh", "h")),
    (
        "GRU",
        "Bh",
        {
            "activations": ["Affine", "ScaledTanh"],
            "activation_alpha": [0.3, 0.8],
            "activation_beta": [0.1, 0.6],
        },
    ),
    ("RNN", "Bh", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.1]}),
    ("RNN", "Bh", {"activations": ["Relu"]}),
    ("RNN", "Bh", {"activations": ["Softplus"]}),
]


@pytest.mark.parametrize(("op", "given", "attributes"), CASES)
def test_a_layer_written_out_is_onnxruntimes(op: str, given: str, attributes: dict[str, Any]) -> None:
    model, held = layer(op, given, **attributes)
    x = np.random.default_rng(1).normal(0, 1, (STEPS, BATCH, INPUTS)).astype(np.float32)
    for found, wanted in zip(results(smaller(model, held), x), results(model, x), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("op", GATES)
def test_batches_may_come_before_steps(op: str) -> None:
    # onnxruntime has no such layers: what it makes of the other order is turned.
    given = "Bhc" if op == "LSTM" else "Bh"
    model, held = layer(op, given, direction="bidirectional", layout=1)
    turned, constants = layer(op, given, direction="bidirectional")
    for name in constants:
        constants[name] = held[name].swapaxes(0, 1) if name in "hc" else held[name]
    del turned.graph.initializer[:]
    turned.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    x = np.random.default_rng(1).normal(0, 1, (BATCH, STEPS, INPUTS)).astype(np.float32)
    found, wanted = results(smaller(model, held), x), results(turned, x.swapaxes(0, 1))
    np.testing.assert_allclose(found[0], wanted[0].transpose(2, 0, 1, 3), rtol=0, atol=2e-6)
    for ours, theirs in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(ours, theirs.swapaxes(0, 1), rtol=0, atol=2e-6)


def test_what_cannot_be_written_out_is_said() -> None:
    node = OnnxNode("layer", "LSTM", ("X", "W", "R", "", "lengths"), ("Y",))
    with pytest.raises(InputError, match=r"layer \(LSTM\): sequence_lens must be a constant, not 'lengths'"):
        written_out(node, (4, 1, 5), 6, {})
    node = OnnxNode("layer", "LSTM", ("X", "W", "R"), ("Y",))
    with pytest.raises(InputError, match="a sequence must have at most 256 steps, not 257"):
        written_out(node, (257, 1, 5), 6, {})
    node = OnnxNode("layer", "RNN", ("X", "W", "R"), ("Y",), {"activations": ["Cosine"]})
    with pytest.raises(InputError, match="activation 'Cosine' is not one of ONNX"):
        written_out(node, (4, 1, 5), 6, {})
