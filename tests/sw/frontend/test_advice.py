"""Advice about refused nodes fits the model, and works."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

from heald.cli import call
from heald.sources import onnx_source
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.model import with_fixed_point
from sw.frontend.network import import_model
from sw.frontend.refusal import Refusal

QDQ = "quantize_static(..., quant_format=QuantFormat.QDQ)"


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Two drawn inputs."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]):
        rng = np.random.default_rng(0)
        self.left = [{n: rng.random(s).astype(np.float32) for n, s in shapes.items()} for _ in range(2)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next one."""
        return self.left.pop() if self.left else None


def statically(model: onnx.ModelProto, folder: Path, *types: str, **options: Any) -> onnx.ModelProto:
    """A float32 model as `quantize_static` writes it, with types of operators beside the usual ones."""
    onnx.save(model, folder / "float.onnx")
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in model.graph.input}
    if types:
        options["op_types_to_quantize"] = [*QDQRegistry, *QLinearOpsRegistry, *types]
    quantize_static(str(folder / "float.onnx"), str(folder / "made.onnx"), Samples(shapes), **options)
    return onnx.load(folder / "made.onnx")


def causes(model: onnx.ModelProto, **options: Any) -> list[Refusal]:
    """What is refused of a model by itself."""
    return [r for r in onnx_source(model, **options).refusals() if not r.follows]


def floats(b: Builder, last: str = "AveragePool") -> onnx.ModelProto:
    """A convolution, a sum with itself under another name, an operator behind it."""
    weights = b.constant(b.rng.normal(size=(3, 2, 3, 3)), np.float32)
    x = b.op("Conv", b.input((1, 2, 8, 8), "float32"), weights)
    y = b.op("Sum", x, b.op("Relu", x))
    attributes = {"kernel_shape": [2, 2]} if last == "AveragePool" else {}
    return b.model(b.op(last, b.op("Relu", y), **attributes))


def test_what_a_float_model_needs_is_its_quantisation(tmp_path: Path) -> None:
    model = floats(Builder())
    (refusal,) = causes(model)
    assert refusal.reason == "the images 'x0' must come from DequantizeLinear of int8 or uint8"
    assert refusal.advice == (f"the model is float32: quantise it first with {QDQ}",)


def test_types_that_the_tool_leaves_out_are_named_and_naming_them_helps(tmp_path: Path) -> None:
    model = floats(Builder())
    (refusal,) = causes(statically(model, tmp_path))
    assert "op_types_to_quantize=[*QDQRegistry, *QLinearOpsRegistry, 'Sum']" in refusal.advice[-1]
    assert not causes(statically(model, tmp_path, "Sum"))


def test_other_forms_are_told_to_become_qdq(tmp_path: Path) -> None:
    made = statically(floats(Builder(), "ReduceSum"), tmp_path, quant_format=QuantFormat.QOperator)
    assert {r.advice[-1] for r in causes(made)} == {f"quantise the float32 original with {QDQ}"}
    b = Builder()
    x = b.op("MatMul", b.input((4, 8), "float32"), b.constant(b.rng.normal(size=(8, 8)), np.float32))
    y = b.op("MatMul", b.op("Softmax", x), b.constant(b.rng.normal(size=(8, 8)), np.float32))
    onnx.save(b.model(y), tmp_path / "float.onnx")
    quantize_dynamic(str(tmp_path / "float.onnx"), str(tmp_path / "made.onnx"))
    (refusal,) = causes(onnx.load(tmp_path / "made.onnx"))
    assert (refusal.op, refusal.advice) == (
        "DynamicQuantizeLinear",
        (f"quantise the float32 original with {QDQ}",),
    )


def softmax(b: Builder) -> str:
    return b.op("Softmax", b.op("Add", *(b.real(b.input((2, 3)), "int8", 0.1) for _ in range(2))))


def hard_softmax(b: Builder) -> str:
    return b.op("Hardmax", softmax(b))


@pytest.mark.parametrize(("make", "helps"), [(softmax, True), (hard_softmax, False)])
def test_fixed_point_is_told_where_it_helps(make: Callable[[Builder], str], helps: bool) -> None:
    b = Builder()
    model = b.model(make(b))
    assert ("use --fixed-point" in causes(model)[0].advice) == helps
    assert bool(causes(model, fixed_point=True)) != helps


def test_a_state_that_fixed_point_needs_is_named() -> None:
    b = Builder()
    x = b.real(b.input((3, 1, 4)), "int8", 0.05)
    w, r = (b.constant(b.rng.normal(0, 0.3, (1, 20, n)), np.float32) for n in (4, 5))
    state = b.op("Unsqueeze", b.input((1, 5), "float32"), b.constant([0], np.int64))
    model = b.model(b.ops("LSTM", x, w, r, "", "", state, state, count=1, hidden_size=5)[0])
    text = "put QuantizeLinear, DequantizeLinear after input 'x1' (op_types_to_quantize with 'LSTM') or"
    advice = (f"{text} make it a constant",)
    assert causes(model, fixed_point=True)[0].advice == advice
    (refusal,) = (r for r in causes(model) if r.op == "LSTM")
    assert refusal.advice == (f"use --fixed-point and {advice[0]}",)


def branching() -> onnx.ModelProto:
    """An If whose input decides, and whose branch has a product of float32."""
    value = helper.make_tensor_value_info
    branch = helper.make_graph(
        [helper.make_node("MatMul", ["x", "x"], ["inner"], name="product")],
        "branch",
        [],
        [value("inner", 1, [3, 3])],
    )
    nodes = [
        helper.make_node("Equal", ["rate", "wanted"], ["same"], name="same"),
        helper.make_node("If", ["same"], ["y"], name="choice", then_branch=branch, else_branch=branch),
    ]
    wanted = onnx.numpy_helper.from_array(np.array(16000), "wanted")
    inputs = [value("x", 1, [3, 3]), value("rate", 7, [])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", 1, [3, 3])], [wanted])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_an_if_names_the_input_that_decides_and_how_to_give_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, given = tmp_path / "m.onnx", tmp_path / "in.npz"
    onnx.save(branching(), path)
    with pytest.raises(InputError) as error:
        import_model(path)
    assert str(error.value) == (
        "node choice (If): its condition must follow from constants and shapes; it depends on input 'rate' "
        "(int64, shape []): numpy.savez('in.npz', rate=..., x=...), then --inputs in.npz"
    )
    told = {r.op: (r.follows, r.remedy) for r in onnx_source(path).refusals()}
    assert told == {"Equal": (True, told["If"][1]), "If": (False, told["If"][1])}
    assert "--allow-host" not in told["If"][1]
    np.savez(given, rate=np.array(16000))
    assert call(["explain", str(path), "--inputs", str(given)]) == 1
    out = capsys.readouterr().out
    assert "(If)" not in out
    assert "branches are not quantised: remove choice (quant_pre_process, or export without it)" in out
    for wrong, text in (
        ({"rat": 1}, "input 'rat' is not one of the model's inputs (x, rate)"),
        ({"rate": [1, 2]}, "input 'rate' must be int64 of shape [], not int64 of [2]"),
    ):
        np.savez(given, **wrong)
        assert call(["explain", str(path), "--inputs", str(given)]) == 2
        assert capsys.readouterr().err == f"heald: {given}: {text}\n"


def test_inputs_are_checked_before_anything_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    b = Builder()
    path, given = tmp_path / "m.onnx", tmp_path / "in.npz"
    onnx.save(b.model(b.quantised(b.input((2, 3), "float32"), "int8", 0.1)), path)
    monkeypatch.setattr("heald.session.compile", lambda *_, **__: pytest.fail("compiled"))
    wrong = np.zeros((2, 3), np.float32)
    wrong[1, 2] = np.nan
    for name, array, text in (
        ("x0", np.zeros((2, 3)), "input 'x0' must be float32 of shape [2, 3], not float64 of [2, 3]"),
        ("x1", np.zeros((2, 3)), "input 'x1' is not one of the model's inputs (x0)"),
        ("x0", wrong, "input 'x0' must hold numbers, not NaN, as at [1, 2]: it is quantised"),
    ):
        np.savez(given, **{name: array})
        assert call(["run", str(path), "--hw", "test", "--inputs", str(given)]) == 2
        assert capsys.readouterr().err.endswith(f"heald: {given}: {text}\n")


def test_whole_numbers_of_64_bits_are_told_to_become_32() -> None:
    b = Builder()
    x = b.op("Cast", b.input((2, 3), "int64"), to=6)
    model = b.model(b.op("Add", x, b.constant(1, np.int32)))
    assert causes(model)[0].advice == ("make it int32 in the model",)


def divided(b: Builder, x: str) -> str:
    return b.op("Div", b.op("Exp", x), b.op("Add", x, b.real(b.input((2, 3)), "int8", 0.1)))


NUMBERS: list[tuple[Callable[[Builder, str], str], str]] = [
    (divided, r"the divisor 't3_0' must be above 0 in fixed point: it may be -"),
    (lambda b, x: b.op("Div", x, b.constant(0, np.float32)), r"the divisor 'c2' must not be 0"),
    (lambda b, x: b.op("Max", x, b.constant(np.nan, np.float32)), r"a constant must be numbers .* not NaN"),
    (
        lambda b, x: b.op("Mul", x, b.constant(3e38, np.float32)),
        r"it may reach .*e\+39, beyond numbers of 32",
    ),
]


@pytest.mark.parametrize(("make", "text"), NUMBERS, ids=["divisor", "zero", "nan", "range"])
def test_numbers_that_fixed_point_does_not_take_are_told(
    make: Callable[[Builder, str], str], text: str
) -> None:
    b = Builder()
    model = b.model(make(b, b.real(b.input((2, 3)), "int8", 0.1)))
    with warnings.catch_warnings(), pytest.raises(InputError, match=text):
        warnings.simplefilter("error")
        import_model(with_fixed_point(model))


def test_a_scale_that_is_none_is_told_with_its_tensor() -> None:
    b = Builder()
    model = b.model(b.op("Relu", b.op("DequantizeLinear", b.input((2, 3)), b.constant(np.inf, np.float32))))
    (refusal,) = causes(model)
    assert refusal.reason == "scales must be positive, not inf ('c0')"
    assert refusal.advice == ("quantise without what reads it (nodes_to_exclude=['n1'])",)


def test_an_operator_of_onnxruntime_alone_says_what_to_quantise_instead() -> None:
    b = Builder()
    names = (b.input((3, 1, 4), "float32"), *(b.constant(np.ones((1, n, 20)), np.int8) for n in (4, 5)))
    scales = [b.constant(s, k) for _ in range(2) for s, k in (([0.1], np.float32), ([0], np.int8))]
    last = b.ops(
        *("DynamicQuantizeLSTM", *names, "", "", "", "", "", *scales),
        count=1,
        domain="com.microsoft",
        hidden_size=5,
    )
    (refusal,) = causes(b.model(last[0]))
    assert refusal.advice == (
        "quantise the float32 original with quantize_static, which keeps LSTM, and use --fixed-point",
    )
    assert dataclasses.replace(refusal, lost=True).remedy == refusal.advice[0]


def test_what_no_quantisation_makes_run_is_named_as_the_cause() -> None:
    b = Builder()
    hard = b.op("Hardmax", b.real(b.input((13, 20)), "int8"))
    model = b.model(b.quantised(b.op("Relu", hard), "int8"))
    first, *others = onnx_source(model).refusals()
    assert (first.op, first.advice) == ("Hardmax", ())
    assert [r.op for r in others] == ["Relu", "QuantizeLinear"]
    assert {r.advice for r in others} == {(f"it may run once {first.place} does",)}
