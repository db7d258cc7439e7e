"""Host operators: onnxruntime executes them, and their results are as the import states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper

from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph.host import HostOperator, check_node, named_node, node_of, run_node
from sw.graph.network import Network, Tensor, whole
from sw.graph.reference import run
from tests.sw.quantised_models import runtime


def quantised(values: list[float], scale: float) -> list[int]:
    node = helper.make_node("QuantizeLinear", ["i0", "i1", "i2"], ["o0"])
    arrays = {
        "i0": np.array(values, np.float32),
        "i1": np.array(scale, np.float32),
        "i2": np.array(3, np.int8),
    }
    found: list[int] = run_node(node, 19, arrays, "edge")[0].tolist()
    return found


def test_what_is_too_large_saturates() -> None:
    assert quantised([1e10, -1e30, np.inf, -np.inf, 0.25, -0.75], 0.5) == [127, -128, 127, -128, 3, 1]


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="edge: values to quantise must be numbers, not NaN"):
        quantised([np.nan], 0.5)


def test_a_maximum_over_one_axis_is_that_of_onnxruntime() -> None:
    b = Builder()
    model = b.model(b.op("GlobalMaxPool", b.op("Sin", b.input((1, 3, 5), "float32"))))
    x = np.random.default_rng(0).standard_normal((1, 3, 5)).astype(np.float32)
    (name,) = (o.name for o in model.graph.output)
    found = run(import_model(model, allow_host=True), {"x0": x})[name]
    assert found.shape == (1, 3, 1)
    assert np.array_equal(found, runtime(model, {"x0": x})[name])


def network(y: Tensor) -> Network:
    """Neg of one number, with a result that is something else."""
    x = Tensor("x", (1, 1), "float32")
    node: Any = helper.make_node("Neg", ["i0"], ["o0"])
    operator = HostOperator("neg", "Neg", ("neg",), whole(y), (whole(x),), node.SerializeToString(), 21)
    return Network("wrong", {"x": x, "y": y}, (operator,), ("x",), ("y",))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Tensor("y", (1, 3, 1), "float32"), r"result of shape \[1, 1\] where the model has \[1, 3, 1\]"),
        (Tensor("y", (1, 1), "int8"), "result of float32 where the model has int8"),
    ],
)
def test_results_of_another_shape_or_type_are_errors(y: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=r"neg \(Neg\): onnxruntime gives a " + message):
        run(network(y), {"x": np.ones((1, 1), np.float32)})


def test_what_onnxruntime_does_not_have_is_refused() -> None:
    node = helper.make_node("Erf", ["i0"], ["o0"])
    with pytest.raises(InputError, match=r"node e \(Erf\): onnxruntime, .* opset 13 for float64 .*; convert"):
        check_node(node, 13, ["float64"], "float64", "node e (Erf)")


def test_operators_that_draw_numbers_are_refused() -> None:
    for op in ("RandomNormalLike", "RandomNormal"):
        b = Builder()
        drawn = b.op(op, b.input((4,), "float32")) if op.endswith("Like") else b.op(op, shape=[4])
        model = b.model(b.op("Add", drawn, b.input((4,), "float32")))
        with pytest.raises(InputError, match=rf"n0 \({op}\): .*changes from run to run"):
            import_model(model, allow_host=True)


@pytest.mark.parametrize(
    "kind", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.STRING]
)
def test_types_that_tensors_do_not_have_are_refused_at_import(kind: int) -> None:
    b = Builder()
    model = b.model(b.op("Cast", b.op("Cast", b.input((4,), "float32"), to=kind), to=TensorProto.FLOAT))
    with pytest.raises(InputError, match=r"n0 \(Cast\): .*tensors of \w+ cannot be handed to onnxruntime"):
        import_model(model, allow_host=True)


def test_attributes_may_have_any_name_and_no_elements() -> None:
    given = {"op": 1, "name": 2.5, "inputs": [1], "domain": "d"}
    node = node_of("Own", [True], given, 1, "elsewhere")
    assert {a.name: helper.get_attribute_value(a) for a in node.attribute} == {**given, "domain": b"d"}
    empty = named_node("ReduceSum", ["x"], ["y"], {"axes": []})
    assert [(a.name, a.type) for a in empty.attribute] == [("axes", AttributeProto.INTS)]


def test_results_that_are_no_tensors_are_refused() -> None:
    b = Builder()
    parts = b.op("SplitToSequence", b.constant([1, 2, 3], np.float32), b.constant([1, 2], np.int64))
    last = b.op("SequenceAt", parts, b.constant(1, np.int64))
    model = b.model(b.op("Add", b.input((2,), "float32"), last))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(model.graph.output[0].name, 1, [2]))
    with pytest.raises(InputError, match=r"n0 \(SplitToSequence\): .* shape of its result must be known"):
        import_model(model, allow_host=True)
