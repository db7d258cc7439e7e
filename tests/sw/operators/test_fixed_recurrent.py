"""LSTM, GRU and RNN in fixed point, in a loop: onnxruntime's results within the stated error."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import heald as hd
from cosim.session.onnxruntime_comparison import compare_model
from heald.testing.models import Builder
from hw.errors import InputError
from sw.compile.legal import legal
from sw.compile.repeat import Repeated, repeats, stacked
from sw.frontend.model import with_fixed_point
from sw.frontend.network import import_model
from sw.graph.host import HostOperator
from sw.graph.reference import run
from tests.machines import TEST
from tests.sw.quantised_models import session

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
BATCH, INPUTS, HIDDEN = 2, 6, 8


def layer(op: str, steps: int, weight: float = 0.35, given: str = "B", **attributes: Any) -> onnx.ModelProto:
    """A layer with quantised inputs; `given` has the letters of its optional inputs, states quantised too."""
    b, size, optional = Builder(7), GATES[op] * HIDDEN, "B.hc" if op == "LSTM" else "B.h"
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    x = b.real(b.input((steps, BATCH, INPUTS)), "int8", 1 / 40)

    def optional_input(letter: str) -> str:
        if letter not in given:
            return ""
        if letter == "B":
            return b.constant(b.rng.uniform(-weight, weight, (count, 2 * size)), np.float32)
        return b.real(b.input((count, BATCH, HIDDEN)), "int8", 1 / 50)

    w, r = (
        b.constant(b.rng.uniform(-weight, weight, (count, size, n)), np.float32) for n in (INPUTS, HIDDEN)
    )
    others = [optional_input(letter) for letter in optional]
    results = b.ops(op, x, w, r, *others, count=len(optional) - 1, hidden_size=HIDDEN, **attributes)
    if steps == 1:
        # As published models have it that are given one step at a time.
        b.nodes[-1].output[0] = ""
    return with_fixed_point(b.model(*results[steps == 1 :], opset=21))


CASES: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {}),
    ("LSTM", {"direction": "bidirectional", "given": "Bhc"}),
    ("LSTM", {"input_forget": 1, "direction": "reverse", "given": "c"}),
    ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Tanh"]}),
    ("LSTM", {"steps": 1, "given": "Bhc"}),
    ("GRU", {"given": "Bh"}),
    ("GRU", {"linear_before_reset": 1}),
    ("RNN", {}),
    ("RNN", {"activations": ["Relu"], "weight": 0.1, "given": "h"}),
]


@pytest.mark.parametrize(("op", "how"), CASES)
def test_a_layer_is_onnxruntimes_within_the_stated_error(op: str, how: dict[str, Any]) -> None:
    model = layer(op, **{"steps": 5, **how})
    network = import_model(model)
    rng = np.random.default_rng(3)
    for low in (-128, 60):
        inputs = {
            name: rng.integers(low, 128, network.tensors[name].shape).astype(np.int8)
            for name in network.inputs
        }
        wanted = session(model).run(None, inputs)
        found = run(network, inputs)
        for name, exact in zip(network.outputs, wanted, strict=True):
            stated = network.accuracy[name]
            assert 0 < stated.error <= 2.0**-10 * (stated.high - stated.low)
            assert np.abs(found[name] - exact).max() <= stated.error + 1e-6
            assert stated.low <= exact.min() <= exact.max() <= stated.high
        compared = compare_model(model, import_model(model, fuse=False), inputs, {})
        assert compared.ok, compared.summary


@pytest.mark.parametrize("op", GATES)
def test_its_steps_are_a_loop(op: str) -> None:
    made = stacked(legal(import_model(layer(op, 9)), TEST))
    loops = [o for o in repeats(made.operators, made.tensors) if isinstance(o, Repeated)]
    # The first steps start from nothing, and with another format of the state.
    assert loops[0].count >= 6
    assert len(loops[0].body) >= 6


@pytest.mark.parametrize("op", ["RNN", *(pytest.param(op, marks=pytest.mark.slow) for op in ("LSTM", "GRU"))])
def test_the_machine_loops_over_the_steps(op: str) -> None:
    made = hd.compile(layer(op, 7), TEST, fixed_point=True)
    loop = next(o for p in made.compiled.programs for o in p.operators if o.loops[:1] >= (("step", 5),))
    assert loop.macs >= 5 * BATCH * GATES[op] * HIDDEN**2
    run = made.run()
    assert run.correct
    assert run.divergence is None
    assert run.compare_reference().ok


def test_layers_whose_errors_add_up_to_too_much_are_the_hosts() -> None:
    model = layer("LSTM", 60, weight=3)
    with pytest.raises(
        InputError, match=r"of a state may grow by [\d.]+ in each of 60 steps, together by more"
    ):
        import_model(model)
    hosted = import_model(model, allow_host=True).operators
    assert all(isinstance(o, HostOperator) for o in hosted)
    assert "LSTM" in {o.op for o in hosted}


def test_what_is_needed_is_said() -> None:
    model = layer("GRU", 3)
    del model.metadata_props[:]
    with pytest.raises(InputError, match=r"GRU\): its gates are real numbers, .*; use --fixed-point"):
        import_model(model)
    b = Builder(8)
    x, state = b.real(b.input((3, 1, 4)), "int8", 0.02), b.input((1, 1, 4), "float32")
    weights = [b.constant(b.rng.normal(size=(1, 4, 4)), np.float32) for _ in "wr"]
    results = b.op("RNN", x, *weights, "", "", state, hidden_size=4)
    with pytest.raises(InputError, match=r"is not known \('x1'\); put QuantizeLinear, .* after input 'x1'"):
        import_model(with_fixed_point(b.model(results)))
