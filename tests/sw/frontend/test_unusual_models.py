"""Models that are valid but unusual: they give onnxruntime's results, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from heald.session import compile
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.bindings import bound, check_inputs
from sw.frontend.network import import_model
from sw.graph.host import HostOperator
from sw.graph.reference import random_inputs, run
from tests.machines import TEST
from tests.sw.quantised_models import runtime

Node = helper.make_node


def same(model: onnx.ModelProto, seed: int = 0) -> list[str]:
    """Runs a model, which must give what onnxruntime does; gives the operators of the host but edges."""
    network = import_model(model, allow_host=True)
    inputs = random_inputs(network, np.random.default_rng(seed))
    found = run(network, inputs)
    for name, wanted in runtime(model, inputs).items():
        assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found[name], wanted, name)
    return [o.op for o in network.operators if isinstance(o, HostOperator) and not o.edge]


def model_of(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[str, tuple[int, ...]]],
    output: tuple[str, str, tuple[int, ...] | None],
    opset: int = 17,
    **constants: Any,
) -> onnx.ModelProto:
    """A model of nodes with names of their own; types and shapes are given."""

    def info(name: str, element: str, shape: Sequence[int] | None) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(element))
        return helper.make_tensor_value_info(name, kind, shape)

    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    given = [info(name, *kind) for name, kind in inputs.items()]
    graph = helper.make_graph(list(nodes), "unusual", given, [info(*output)], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    return made


def resized(opset: int, factors: Sequence[float], **how: Any) -> onnx.ModelProto:
    """Linear neighbours with scales that are powers of two: float32 has all results exactly."""
    b = Builder(1)
    x = b.real(b.input((1, 2, 5, 4), "uint8"), "uint8", 0.25)
    absent = [""] if opset > 10 else []
    y = b.op("Resize", x, *absent, b.constant(factors, np.float32), mode="linear", **how)
    return b.model(b.quantised(y, "uint8", 0.5), opset=opset)


def test_linear_neighbours_of_old_opsets_are_asymmetric() -> None:
    assert same(resized(10, [1, 1, 2, 2])) == []


@pytest.mark.parametrize("place", ["half_pixel", "asymmetric"])
def test_scales_that_were_rounded_to_whole_sizes_are_no_whole_factors(place: str) -> None:
    # 4 pixels become 8, by 2.2.
    how = {"coordinate_transformation_mode": place}
    assert same(resized(17, [1, 1, 2, 2.2], **how)) == ["DequantizeLinear", "Resize", "QuantizeLinear"]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_resize_to_the_same_size_is_a_copy(mode: str) -> None:
    b = Builder(1)
    x = b.input((1, 1, 5, 4), "uint8")
    y = b.op("Resize", x, "", b.constant([1, 1, 1.19, 1.2], np.float32), mode=mode)
    assert same(b.model(y)) == []


GRID = {"s": np.float32(0.25), "z": np.uint8(3)}


def real(name: str, result: str) -> Any:
    return Node("DequantizeLinear", [name, "s", "z"], [result])


def test_names_that_are_made_up_are_those_of_no_tensor() -> None:
    given = {"p": ("uint8", (2, 3)), "q": ("uint8", (2, 3))}
    nodes = [
        *(real("p", "a"), real("q", "sum.1")),
        Node("Sum", ["a", "a", "a"], ["sum"]),
        Node("Add", ["sum", "sum.1"], ["total"]),
        Node("QuantizeLinear", ["total", "wide", "z"], ["y"]),
    ]
    assert same(model_of(nodes, given, ("y", "uint8", (2, 3)), wide=np.float32(2), **GRID)) == []


def test_a_branch_has_names_of_its_own() -> None:
    given = {"p": ("uint8", (2, 3)), "q": ("uint8", (2, 3))}
    twice = helper.make_graph(
        [Node("Mul", ["a", "two"], ["inner"])],
        "twice",
        [],
        [helper.make_tensor_value_info("inner", 1, [2, 3])],
        [numpy_helper.from_array(np.float32(2), "two")],
    )
    nodes = [
        *(real("p", "a"), real("q", "chosen/inner"), real("q", "chosen/two")),
        Node("If", ["yes"], ["chosen"], then_branch=twice, else_branch=twice),
        Node("Max", ["chosen/inner", "chosen/two", "chosen"], ["total"]),
        Node("QuantizeLinear", ["total", "s", "z"], ["y"]),
    ]
    assert same(model_of(nodes, given, ("y", "uint8", (2, 3)), yes=np.array(True), **GRID)) == []


def test_parts_of_an_operator_have_names_of_no_tensor() -> None:
    b = Builder(2)
    x, y = (b.input((2, 3), "uint8") for _ in range(2))
    scale, zero = b.constant(0.25, np.float32), b.constant(3, np.uint8)
    b.nodes.append(Node("DequantizeLinear", [y, scale, zero], ["t1_0.0.DequantizeLinear"]))
    b.nodes.append(Node("Identity", [x], ["t0_0"]))
    b.nodes.append(Node("Identity", ["t0_0"], ["unread"]))
    given = ("t0_0", scale, zero)
    total = b.op("QLinearAdd", *given, *given, scale, zero, domain="com.microsoft")
    assert total == "t3_0"
    b.nodes[0].output[0] = f"{total}.0.DequantizeLinear"
    b.nodes.append(Node("QuantizeLinear", [f"{total}.0.DequantizeLinear", scale, zero], ["second"]))
    assert same(b.model(total, "second")) == []


def test_a_normalisation_without_a_scale_has_one_of_no_name() -> None:
    b = Builder(4)
    x = b.real(b.input((4, 8), "int8"), "int8", 0.05)
    less = b.op("Sub", x, b.op("ReduceMean", x, axes=[-1]))
    square = b.op("ReduceMean", b.op("Mul", less, less), axes=[-1])
    deviation = b.op("Sqrt", b.op("Add", square, b.constant(1e-5, np.float32)))
    b.nodes.append(Node("Div", [less, deviation], ["norm"]))
    b.constants.append(numpy_helper.from_array(np.float32(3), "norm.one"))
    model = b.model(
        b.quantised("norm", "int8", 0.05), b.quantised(b.op("Mul", x, "norm.one"), "int8", 0.3), opset=17
    )
    network = import_model(model)
    inputs = random_inputs(network, np.random.default_rng(0))
    found = run(network, inputs)
    for name, wanted in runtime(model, inputs).items():
        assert np.abs(found[name].astype(int) - wanted).max() <= 1


def elsewhere(b: Builder, op: str, *inputs: str) -> str:
    """A node of another domain whose operator has the name of a standard one."""
    return b.op(op, *inputs, domain="elsewhere")


def shape_of(b: Builder) -> str:
    other = elsewhere(b, "Transpose", b.constant(np.zeros((2, 6)), np.float32))
    return b.op("Reshape", b.input((3, 4), "int8"), b.op("Shape", other))


def normalisation(b: Builder) -> str:
    x = b.real(b.input((4, 8), "int8"), "int8", 0.05)
    square = b.op("ReduceMean", b.op("Mul", x, x), axes=[-1])
    root = elsewhere(b, "Sqrt", b.op("Add", square, b.constant(1e-5, np.float32)))
    return b.quantised(b.op("Div", x, root), "int8", 0.05)


@pytest.mark.parametrize("make", [shape_of, normalisation])
def test_an_operator_of_another_domain_is_not_the_standard_one(make: Callable[[Builder], str]) -> None:
    b = Builder()
    info = helper.make_tensor_value_info(make(b), 3, ["rows", "columns"])
    graph = helper.make_graph(b.nodes, "test", b.inputs, [info], b.constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("elsewhere", 1)]
    with pytest.raises(InputError, match=r"^node n\d \(elsewhere::\w+\): operators of domain 'elsewhere'"):
        import_model(helper.make_model(graph, opset_imports=opsets), allow_host=True)


def test_values_that_a_constant_does_not_take_are_refused() -> None:
    given = {"x": ("float32", (3,)), "scale": ("float32", ()), "zero": ("uint8", ())}
    nodes = [Node("QuantizeLinear", ["x", "scale", "zero"], ["y"])]
    model = model_of(nodes, given, ("y", "uint8", (3,)))
    made = compile(model, TEST, inputs={"scale": 0.5, "zero": 200})
    assert {name: (a.dtype, a.item()) for name, a in made.bound.items()} == {
        "scale": (np.float32, 0.5),
        "zero": (np.uint8, 200),
    }
    for values, text in (
        ({"scale": 0.5, "zero": 300}, r"^input 'zero' must be uint8; its values do not fit$"),
        (
            {"scale": [0.5, 1], "zero": 3},
            r"^input 'scale' must be float32 of shape \[\], not float64 of \[2\]$",
        ),
    ):
        with pytest.raises(InputError, match=text):
            compile(model, TEST, inputs=values)


# The quotients of the first two are next to a tie, which float32 does not tell from one.
@pytest.mark.parametrize(("fill", "scale"), [(1.325, 0.05), (0.525, 0.03), (1e30, 0.3), (-np.inf, 0.3)])
def test_what_a_pad_fills_with_is_rounded_as_float32(fill: float, scale: float) -> None:
    b = Builder(1)
    x = b.real(b.input((2, 3), "uint8"), "uint8", 0.1)
    y = b.op("Pad", x, b.constant([0, 1, 1, 0], np.int64), b.constant(fill, np.float32))
    assert same(b.model(b.quantised(y, "int8", scale))) == []


def test_a_graph_that_reads_the_one_around_it_is_refused() -> None:
    """What it reads has the name that operands of the host get."""
    b = Builder()
    b.inputs.append(helper.make_tensor_value_info("i0", 1, [2]))
    x = b.input((2,), "float32")
    kinds = [("turn", 7, []), ("more", 9, []), ("last", 1, [2]), ("next", 1, [2])]
    turn, more, last, following = (helper.make_tensor_value_info(*kind) for kind in kinds)
    nodes = [Node("Add", ["last", "i0"], ["next"]), Node("Identity", ["more"], ["on"])]
    on = helper.make_tensor_value_info("on", 9, [])
    body = helper.make_graph(nodes, "body", [turn, more, last], [on, following])
    y = b.op("Loop", b.constant(2, np.int64), "", x, body=body)
    with pytest.raises(InputError, match=r"n0 \(Loop\): .*; its graph reads 'i0' of the enclosing graph$"):
        import_model(b.model(y), allow_host=True)


def test_outputs_without_a_name_are_no_inputs() -> None:
    """Nodes that are not in order, of which one has an optional output without a name."""
    b = Builder(1)
    x = b.real(b.input((2, 3), "uint8"), "uint8", 0.25)
    kept = b.op("Clip", x, "", b.constant(9, np.float32))
    b.nodes.append(Node("Dropout", [kept], ["kept", ""], name="dropped"))
    y = b.quantised("kept", "uint8", 0.5)
    model = b.model(y, opset=13)
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert same(model) == []


@pytest.mark.parametrize("opset", [7, 12])
def test_parts_of_an_operator_may_be_younger_than_the_model(opset: int) -> None:
    """DequantizeLinear is of opset 10, its axis of 13, and the host executes it for what it takes."""
    b = Builder(1)
    scales, zeros = b.constant([0.25, 0.5], np.float32), b.constant([3, 4], np.uint8)
    how = {"domain": "com.microsoft", "axis": 0}
    real_ = b.op("DequantizeLinear", b.input((2, 3), "uint8"), scales, zeros, **how)
    y = b.op("QuantizeLinear", b.op("LogSoftmax", real_), scales, zeros, **how)
    assert same(b.model(y, opset=opset)) == ["DequantizeLinear", "LogSoftmax", "QuantizeLinear"]


def test_scales_that_differ_along_two_axes_are_what_a_movement_on_the_host_gives() -> None:
    b = Builder(1)
    scales = b.constant([0.25, 0.5, 1, 2, 3, 4], np.float32)
    x = b.op("DequantizeLinear", b.input((2, 6)), scales, axis=1)
    assert same(b.model(b.op("Reshape", x, b.constant([2, 2, 3], np.int64)))) == [
        "DequantizeLinear",
        "Reshape",
    ]


def test_dropout_in_training_is_refused_unless_it_drops_nothing() -> None:
    for ratio in (0.5, 0.0):
        b = Builder(1)
        given = b.constant(ratio, np.float32), b.constant(True)
        model = b.model(*b.ops("Dropout", b.input((2, 40), "float32"), *given, count=2))
        if ratio:
            with pytest.raises(InputError, match=r"n0 \(Dropout\): .*changes from run to run"):
                import_model(model, allow_host=True)
        else:
            same(model)


def test_bool_that_the_host_makes_is_cast_by_the_host() -> None:
    b = Builder(1)
    made = b.op("IsInf", b.input((2, 3), "float32"))
    y = b.quantised(b.op("Cast", made, to=TensorProto.FLOAT), "uint8", 0.25)
    assert same(b.model(y, opset=19)) == ["IsInf", "Cast", "QuantizeLinear"]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(("size", "kernel", "stride"), [(7, 2, 3), (9, 1, 3), (8, 3, 3), (9, 2, 4)])
def test_windows_without_padding_may_be_rounded_up(op: str, size: int, kernel: int, stride: int) -> None:
    b = Builder(1)
    x = b.real(b.input((1, 2, size), "uint8"), "uint8", 0.25)
    how = {"kernel_shape": [kernel], "strides": [stride], "auto_pad": "VALID", "ceil_mode": 1}
    assert same(b.model(b.quantised(b.op(op, x, **how), "uint8", 0.125), opset=17)) == []


def pool_with_dilations(b: Builder, x: str) -> str:
    return b.op("MaxPool", x, kernel_shape=[2, 2], dilations=[2, 2], auto_pad="SAME_UPPER")


def pool_with_strides(b: Builder, x: str) -> str:
    how = {"kernel_shape": [1, 1], "strides": [3, 3], "ceil_mode": 1, "count_include_pad": 1}
    return b.op("AveragePool", x, auto_pad="SAME_UPPER", **how)


def transposed_with_strides(b: Builder, x: str) -> str:
    w = b.real(b.constant(np.ones((2, 1, 1, 1)), np.int8), "int8", 0.5)
    return b.op("ConvTranspose", x, w, strides=[3, 3], auto_pad="SAME_UPPER")


def resized_by_policy(b: Builder, x: str) -> str:
    how = {"axes": [2, -1], "keep_aspect_ratio_policy": "not_smaller", "mode": "nearest"}
    return b.op("Resize", x, "", "", b.constant([12, 4], np.int64), **how)


@pytest.mark.parametrize(
    "make", [pool_with_dilations, pool_with_strides, transposed_with_strides, resized_by_policy]
)
def test_what_onnx_and_onnxruntime_see_differently_is_refused(make: Callable[[Builder, str], str]) -> None:
    b = Builder(1)
    y = b.quantised(make(b, b.real(b.input((1, 2, 9, 9), "uint8"), "uint8", 0.25)), "uint8", 0.5)
    graph = helper.make_graph(
        b.nodes, "test", b.inputs, [helper.make_empty_tensor_value_info(y)], b.constants
    )
    graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    for axis in "abcd":
        graph.output[0].type.tensor_type.shape.dim.add().dim_param = axis
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    with pytest.raises(InputError, match=r"differs? in (ONNX and )?onnxruntime; (give pads|count axes)"):
        import_model(model)


def test_clip_without_limits_has_those_of_float32() -> None:
    b = Builder()
    model = b.model(b.op("Clip", b.input((3,), "float32")))
    inputs = {"x0": np.array([np.inf, -np.inf, 1.5], np.float32)}
    (found,) = run(import_model(model, allow_host=True), inputs).values()
    np.testing.assert_array_equal(found, next(iter(runtime(model, inputs).values())))


def test_real_numbers_of_another_type_than_float32_are_not_taken_for_it() -> None:
    nodes = [
        Node("DequantizeLinear", ["x", "s", "z"], ["real"], output_dtype=TensorProto.FLOAT16),
        Node("Relu", ["real"], ["y"]),
    ]
    model = model_of(nodes, {"x": ("uint8", (2, 3))}, ("y", "float16", (2, 3)), 23, **GRID)
    assert same(model) == ["DequantizeLinear", "Relu"]
    nodes = [
        Node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        Node("QuantizeLinear", ["real", "s", "z"], ["y"], precision=TensorProto.FLOAT16),
    ]
    with pytest.raises(InputError, match="real numbers must be float32"):
        import_model(model_of(nodes, {"x": ("uint8", (2, 3))}, ("y", "uint8", (2, 3)), 23, **GRID))


def test_opsets_before_7_are_refused() -> None:
    """Their operands broadcast as an axis says: here the vector is a column."""
    nodes = [Node("Add", ["x", "c"], ["y"], broadcast=1, axis=0)]
    column = np.array([1, 2, 3], np.int32)
    model = model_of(nodes, {"x": ("int32", (3, 3))}, ("y", "int32", (3, 3)), 6, c=column)
    with pytest.raises(InputError, match=r"opset must be 7 or newer, .* not 6; convert the model"):
        import_model(model)


def test_functions_of_a_model_may_be_of_another_opset() -> None:
    opsets = [helper.make_opsetid("", 13)]
    inside = [Node("ReduceMax", ["a"], ["b"], axes=[0], keepdims=0)]
    function = helper.make_function("own", "Most", ["a"], ["b"], inside, opsets)
    nodes = [Node("Most", ["x"], ["most"], domain="own"), Node("Abs", ["most"], ["y"])]
    model = model_of(nodes, {"x": ("int32", (2, 3))}, ("y", "int32", (3,)), 17)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert same(model) == ["ReduceMax"]


def test_parts_of_a_concatenation_may_have_no_elements() -> None:
    b = Builder()
    empty = b.constant(np.zeros((0, 2), np.int8))
    assert same(b.model(b.op("Concat", empty, b.input((3, 2)), empty, axis=0))) == []


def test_what_is_refused_with_the_inputs_that_decide_is_told_and_not_that_they_are_missing() -> None:
    branch = helper.make_graph(
        [Node("Exp", ["x"], ["inner"], name="exp")],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", 1, [2, 3])],
    )
    nodes = [
        Node("Equal", ["rate", "wanted"], ["same"], name="same"),
        Node("If", ["same"], ["y"], name="choice", then_branch=branch, else_branch=branch),
    ]
    given = {"x": ("float32", (2, 3)), "rate": ("int64", ())}
    model = model_of(nodes, given, ("y", "float32", (2, 3)), wanted=np.int64(16000))
    with pytest.raises(InputError, match="choice"):
        import_model(model)
    rate = {"rate": np.array(16000)}
    with pytest.raises(InputError, match="exp"):
        bound(model, rate, 0, import_model)
    with pytest.raises(InputError, match=r"^input 'rat' is not one of the model's inputs \(x, rate\)$"):
        check_inputs(model, {"rat": rate["rate"]}, "model")
    made = bound(model, rate, 0, lambda proto: import_model(proto, allow_host=True))
    assert made is not None
    assert list(made[1]) == ["rate"]
