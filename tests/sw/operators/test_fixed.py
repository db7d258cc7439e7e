"""Real numbers in fixed point against float64, within the stated error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

import heald as hd
from cosim.session.onnxruntime_comparison import compare_model
from heald.cli import call
from heald.sources import from_files, onnx_source
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.model import with_fixed_point
from sw.frontend.network import import_model
from sw.graph.network import Network
from sw.graph.reference import run
from sw.graph.text import text
from tests.budget import cases
from tests.fuzz.fixed_point import judge
from tests.machines import TEST
from tests.sw.quantised_models import encoder, quantise

Array = np.ndarray
_erf = np.vectorize(math.erf, otypes=[np.float64])
_rng = np.random.default_rng(5)
WEIGHTS, BIAS = (_rng.normal(size=s).astype(np.float32) * 0.3 for s in ((16, 8), (8,)))
KERNEL = _rng.normal(size=(4, 2, 3, 3)).astype(np.float32)
MASK = np.triu(np.ones((5, 8), bool), 1)
#: Scale and zero point of inputs.
SCALE, ZERO = float(np.float32(0.05)), 3


def layer(b: Builder, x: str) -> str:
    """A product with float32 weights, and its bias."""
    return b.op("Add", b.op("MatMul", x, b.constant(WEIGHTS)), b.constant(BIAS))


def exact_layer(x: Array) -> Array:
    return np.asarray(x @ WEIGHTS.astype(np.float64) + BIAS.astype(np.float64))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def normalised(x: Array, mean: bool = True) -> Array:
    x = x - x.mean(-1, keepdims=True) * mean
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + float(np.float32(1e-5))))


def convolved(x: Array) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return np.einsum("nchwrs,ocrs->nohw", windows, KERNEL.astype(np.float64))


@dataclass(frozen=True)
class Case:
    """A model of dequantised inputs, and what it is in float64."""

    make: Callable[..., str]
    exact: Callable[..., Array]
    shapes: tuple[tuple[int, ...], ...] = ((5, 16),)


def function(op: str, exact: Callable[[Array], Array], **attributes: float) -> Case:
    return Case(
        lambda b, x: b.op(op, layer(b, x), **attributes),
        lambda x: exact(exact_layer(x)),
    )


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + _erf(x * math.sqrt(0.5))))


def function_of_sum(op: str, exact: Callable[[Array], Array]) -> Case:
    """A normalisation of a sum: that of a product may have elements next to each other."""

    def make(b: Builder, x: str) -> str:
        return b.op(op, b.op("Add", x, b.constant(0.1, np.float32)), b.constant(np.ones(16), np.float32))

    return Case(make, lambda x: exact(x + float(np.float32(0.1))))


def written_gelu(b: Builder, x: str) -> str:
    y = layer(b, x)
    one = b.op("Add", b.op("Erf", b.op("Mul", y, b.constant(math.sqrt(0.5), np.float32))), _one(b))
    return b.op("Mul", b.op("Mul", y, one), b.constant(0.5, np.float32))


def _one(b: Builder) -> str:
    return b.constant(1, np.float32)


TWO = ((5, 16), (5, 16))
CASES: dict[str, Case] = {
    "MatMul": Case(layer, exact_layer),
    "Sigmoid": function("Sigmoid", sigmoid),
    "Tanh": function("Tanh", np.tanh),
    "Erf": function("Erf", _erf),
    "Relu": function("Relu", lambda x: np.maximum(x, 0)),
    "Gelu": function("Gelu", gelu),
    "HardSwish": function("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "LeakyRelu": function("LeakyRelu", lambda x: np.where(x < 0, x * float(np.float32(0.3)), x), alpha=0.3),
    "Softplus": function("Softplus", lambda x: np.logaddexp(0, x)),
    "written Gelu": Case(written_gelu, lambda x: gelu(exact_layer(x))),
    "Tanh of bytes": Case(
        lambda b, x: b.op("Tanh", b.op("Mul", x, b.constant(2, np.float32))), lambda x: np.tanh(2 * x)
    ),
    "Softmax": Case(lambda b, x: b.op("Softmax", layer(b, x)), lambda x: softmax(exact_layer(x))),
    "masked by Add": Case(
        lambda b, x: b.op("Softmax", b.op("Add", layer(b, x), b.constant(MASK * -1e9, np.float32))),
        lambda x: softmax(exact_layer(x) - MASK * 1e9),
    ),
    "masked by Where": Case(
        lambda b, x: b.op(
            "Softmax",
            b.op("Where", b.constant(MASK), b.constant(np.finfo(np.float32).min), layer(b, x)),
        ),
        lambda x: softmax(np.where(MASK, -1e30, exact_layer(x))),
    ),
    "Softmax of bytes": Case(
        lambda b, x: b.op("MatMul", b.op("Softmax", x), b.constant(WEIGHTS)),
        lambda x: softmax(x) @ WEIGHTS.astype(np.float64),
    ),
    "LayerNormalization": function_of_sum("LayerNormalization", normalised),
    "RMSNormalization": function_of_sum("RMSNormalization", lambda x: normalised(x, False)),
    "two operands": Case(
        lambda b, x, y: b.op("MatMul", layer(b, x), b.op("Transpose", layer(b, y), perm=[1, 0])),
        lambda x, y: exact_layer(x) @ exact_layer(y).T,
        TWO,
    ),
    "gates": Case(
        lambda b, x, y: b.op("Mul", b.op("Sigmoid", layer(b, x)), b.op("Tanh", layer(b, y))),
        lambda x, y: sigmoid(exact_layer(x)) * np.tanh(exact_layer(y)),
        TWO,
    ),
    "Div": Case(
        lambda b, x, y: b.op("Div", layer(b, x), b.op("Add", b.op("Sigmoid", layer(b, y)), _one(b))),
        lambda x, y: exact_layer(x) / (sigmoid(exact_layer(y)) + 1),
        TWO,
    ),
    "Sqrt": Case(
        lambda b, x: b.op("Sqrt", b.op("Add", b.op("Sigmoid", layer(b, x)), _one(b))),
        lambda x: np.sqrt(sigmoid(exact_layer(x)) + 1),
    ),
    "ReduceMean": Case(
        lambda b, x: b.op("ReduceMean", layer(b, x), b.constant([0], np.int64), keepdims=0),
        lambda x: exact_layer(x).mean(0),
    ),
    "ReduceMax": Case(
        lambda b, x: b.op("ReduceMax", layer(b, x), b.constant([1], np.int64)),
        lambda x: exact_layer(x).max(1, keepdims=True),
    ),
    "Concat": Case(
        lambda b, x, y: b.op("Concat", b.op("Sigmoid", layer(b, x)), layer(b, y), axis=1),
        lambda x, y: np.concatenate([sigmoid(exact_layer(x)), exact_layer(y)], 1),
        TWO,
    ),
    "Conv": Case(
        lambda b, x: b.op(
            "Tanh",
            b.op("Conv", b.op("Mul", x, b.constant(0.1, np.float32)), b.constant(KERNEL), pads=[1] * 4),
        ),
        lambda x: np.tanh(convolved(x * float(np.float32(0.1)))),
        ((1, 2, 5, 5),),
    ),
}


def built(case: Case) -> tuple[onnx.ModelProto, Network]:
    b = Builder(1)
    grid = b.constant(SCALE, np.float32), b.constant(ZERO, np.int8)
    reals = [b.op("DequantizeLinear", b.input(shape), *grid) for shape in case.shapes]
    model = with_fixed_point(b.model(case.make(b, *reals), opset=23))
    return model, import_model(model)


def drawn(shapes: Sequence[tuple[int, ...]], seed: int) -> dict[str, Array]:
    """Elements of every kind, the ends of the type, and equal ones."""
    rng = np.random.default_rng(seed)
    ways: list[Callable[[tuple[int, ...]], Array]] = [
        lambda s: rng.integers(-128, 128, s),
        lambda s: rng.choice([-128, 127], s),
        lambda s: np.full(s, rng.integers(-128, 128)),
        lambda s: np.where(rng.random(s) < 0.1, 127, ZERO),
    ]
    return {f"x{i}": ways[seed % 4](s).astype(np.int8) for i, s in enumerate(shapes)}


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_near_to_exact_ones_as_is_stated(name: str) -> None:
    case = CASES[name]
    _, network = built(case)
    (output,) = network.outputs
    accuracy = network.accuracy[output]
    assert accuracy.error <= 2.0**-10 * (accuracy.high - accuracy.low)
    worst = 0.0
    for seed in range(8):
        inputs = drawn(case.shapes, seed)
        found = run(network, inputs)[output].astype(np.float64)
        exact = case.exact(*((a.astype(np.float64) - ZERO) * SCALE for a in inputs.values()))
        assert accuracy.low - accuracy.error <= exact.min() <= exact.max() <= accuracy.high + accuracy.error
        # The host makes float32 of it.
        apart = np.abs(found - exact) - 2.0**-24 * np.abs(exact)
        worst = max(worst, float(apart.max()))
    assert worst <= accuracy.error


def block() -> onnx.ModelProto:
    """A transformer block whose products are quantised, with float32 between them."""
    b = Builder(2)
    grid = b.constant(SCALE, np.float32), b.constant(ZERO, np.int8)

    def through(x: str) -> str:
        return b.op("DequantizeLinear", b.op("QuantizeLinear", x, *grid), *grid)

    def product(x: str, *shape: int) -> str:
        weights = b.real(b.constant(b.rng.integers(-127, 128, shape), np.int8), "int8", 0.004)
        return b.op("Add", b.op("MatMul", x, weights), b.constant(b.rng.normal(size=shape[1]), np.float32))

    def norm(x: str) -> str:
        return b.op(
            "LayerNormalization", x, *(b.constant(b.rng.uniform(0.5, 1, 8), np.float32) for _ in "ab")
        )

    x = b.op("DequantizeLinear", b.input((6, 8)), *grid)
    q, k, v = (through(product(x, 8, 8)) for _ in range(3))
    scores = b.op("Mul", b.op("MatMul", q, b.op("Transpose", k, perm=[1, 0])), b.constant(0.3, np.float32))
    attention = b.op("MatMul", through(b.op("Softmax", scores)), v)
    hidden = through(norm(b.op("Add", product(through(attention), 8, 8), x)))
    out = product(through(b.op("Gelu", product(hidden, 8, 12))), 12, 8)
    return with_fixed_point(b.model(b.op("QuantizeLinear", norm(b.op("Add", out, hidden)), *grid)))


def test_a_transformer_block_is_onnxruntimes() -> None:
    model = block()
    network = import_model(model, fuse=False)
    for seed in range(4):
        inputs = drawn([(6, 8)], seed)
        compared = compare_model(model, network, inputs, {})
        assert compared.ok, compared.summary


def gate() -> onnx.ModelProto:
    """A product times its sigmoid."""
    b = Builder(3)
    x = b.real(b.input((4, 16)), "int8", 0.05)
    weights = b.real(b.constant(b.rng.integers(-127, 128, (16, 8)), np.int8), "int8", 0.01)
    hidden = b.op("Add", b.op("MatMul", x, weights), b.constant(BIAS))
    return b.model(b.quantised(b.op("Mul", hidden, b.op("Sigmoid", b.op("Neg", hidden))), "uint8", 1 / 64))


@pytest.mark.parametrize("model", [gate, pytest.param(block, marks=pytest.mark.slow)])
def test_it_runs_on_the_rtl(model: Callable[[], onnx.ModelProto]) -> None:
    made = hd.compile(model(), TEST, fixed_point=True).run()
    assert made.correct
    assert made.divergence is None
    assert made.compare_reference().ok


def test_what_has_an_exact_form_keeps_it(tmp_path: Path) -> None:
    settings = {"qdq": True, "per_channel": True, "element": "uint8", "symmetric": False}
    model = quantise(encoder(), tmp_path, **settings)  # type: ignore[arg-type]
    network = import_model(with_fixed_point(model))
    assert network.accuracy == {}
    assert text(network) == text(import_model(model))


def test_errors_that_are_too_great_are_refused_with_numbers() -> None:
    b = Builder(4)
    x = b.real(b.input((4, 16)), "int8", 0.05)
    first = b.op("LayerNormalization", layer(b, x), b.constant(np.ones(8), np.float32))
    second = b.op("LayerNormalization", first, b.constant(np.ones(8), np.float32))
    model = with_fixed_point(b.model(b.quantised(second, "int8", 0.02)))
    with pytest.raises(InputError, match=r"fixed point before it may be off by [\d.]+, [\d.e+]+ of its step"):
        import_model(model)
    hosted = import_model(model, allow_host=True)
    assert any(o.op == "QuantizeLinear" and getattr(o, "reason", "") for o in hosted.operators)


def test_functions_of_exact_sums_are_held_to_the_limit() -> None:
    b = Builder(7)
    x = b.real(b.input((4, 8)), "int8", 0.05)
    total = b.op("Add", b.op("ReduceSum", x, b.constant([1], np.int64)), x)
    model = with_fixed_point(b.model(b.quantised(b.op("Exp", total), "int8", 4096.0)))
    with pytest.raises(InputError, match="fixed point before it may be off by"):
        import_model(model)


def test_without_the_option_nothing_is_in_fixed_point() -> None:
    b = Builder(5)
    x = b.real(b.input((4, 16)), "int8", 0.05)
    with pytest.raises(InputError, match="must come from DequantizeLinear"):
        import_model(b.model(layer(b, x)))


def test_explain_tells_ranges_bits_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = Builder(6)
    x = b.real(b.input((4, 16)), "int8", 0.05)
    onnx.save(b.model(b.quantised(b.op("Gelu", layer(b, x)), "int8", 0.25)), tmp_path / "model.onnx")
    assert call(["explain", str(tmp_path / "model.onnx"), "--fixed-point"]) == 0
    assert "fractional bits" in capsys.readouterr().out
    assert call(["explain", str(tmp_path / "model.onnx"), "--fixed-point", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["fixed_point"]
    assert told["t4_0"]["step"] == 0.25
    assert told["t4_0"]["error"] < 2.0**-8
    assert all(t["bits"] or t["step"] for t in told.values())


def test_the_files_of_a_compiled_directory_keep_the_option() -> None:
    b = Builder(3)
    x = b.real(b.input((4, 16)), "int8", 0.05)
    model = b.model(b.quantised(b.op("Mul", layer(b, x), layer(b, x)), "int8", 1.0))
    source = onnx_source(model, fixed_point=True)
    again = from_files(source.files(), allow_host=False, hosted={})
    assert again.network().accuracy == source.network().accuracy != {}


@pytest.mark.drawn
def test_random_islands_are_as_exact_as_they_state() -> None:
    found = [judge(seed) for seed in range(cases(60, 1000))]
    assert [text for verdict, text in found if verdict == "wrong"] == []
    assert sum(verdict == "run" for verdict, _ in found) > len(found) // 2
