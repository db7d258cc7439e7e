"""Constants and shapes are folded before nodes are read; open sizes are set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from heald.cli import call
from heald.session import compile
from heald.sources import MODEL, onnx_source
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.model import load
from sw.frontend.network import import_model
from sw.frontend.sizes import parse_sizes, with_sizes
from sw.graph.reference import random_inputs, run
from tests.machines import TEST
from tests.sw.quantised_models import runtime

SIZES = {"batch": 2, "rows": 3, "x0.3": 5}


def opened(b: Builder, *outputs: str) -> onnx.ModelProto:
    """A model whose first input has open sizes, one of them without a name."""
    (shape,) = [v.type.tensor_type.shape for v in b.inputs[:1]]
    shape.dim[0].dim_param, shape.dim[2].dim_param = "batch", "rows"
    shape.dim[3].Clear()
    infos = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph(b.nodes, "open", b.inputs, infos, b.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def branches(b: Builder, condition: str, tensor: str) -> str:
    """An If whose branches are Relu of a tensor and another one, each with a constant of its own."""
    graphs = {}
    for name, number in (("then_branch", 0.0), ("else_branch", 9.0)):
        least = numpy_helper.from_array(np.asarray(number, np.float32), "least")
        node = helper.make_node("Max", [tensor, "least"], ["inner"])
        info = [helper.make_empty_tensor_value_info("inner")]
        graphs[name] = helper.make_graph([node], name, [], info, [least])
    return b.op("If", condition, **graphs)


def sizes(b: Builder) -> str:
    """A shape that is computed from another one, and a condition that follows from it."""
    x = b.op("Transpose", b.input((2, 4, 3, 5), "uint8"), perm=[0, 2, 3, 1])
    shape = b.op("Shape", x)
    first, last = (b.op("Gather", shape, b.constant([i], np.int64)) for i in (0, 3))
    flat = b.op("Reshape", x, b.op("Concat", first, b.constant([-1], np.int64), last, axis=0))
    few = b.op("Squeeze", b.op("Less", last, b.constant([9], np.int64)))
    return b.quantised(branches(b, few, b.real(flat, "uint8", 0.1)), "uint8", 0.1)


def other_branch(b: Builder) -> str:
    x = b.real(b.input((2, 4, 3, 5), "uint8"), "uint8", 0.1)
    return b.quantised(branches(b, b.constant(False), x), "uint8", 0.1)


def masks(b: Builder) -> str:
    """A mask of constants, and what replaces numbers that are none, as attention has it."""
    x = b.real(b.input((2, 4, 3, 5), "int8"), "int8", 0.1)
    safe = b.op("Where", b.op("IsNaN", x), b.constant(0, np.float32), x)
    both = b.op("And", b.constant([True, False, True]), b.op("Not", b.constant([False, False, True])))
    mask = b.op("Where", both, b.constant(0, np.float32), b.constant(-5, np.float32))
    column = b.op("Unsqueeze", mask, b.constant([0, 1, 3], np.int64))
    return b.quantised(b.op("Add", safe, column), "int8", 0.15)


def casts(b: Builder) -> str:
    """Casts that change nothing, and a sum of three."""
    x = b.op("Cast", b.op("Cast", b.input((2, 4, 3, 5), "uint8"), to=7), to=2)
    real = b.op("Cast", b.real(x, "uint8", 0.1), to=1)
    total = b.op("Sum", real, b.constant(2, np.float32), b.op("Identity", b.constant(3, np.float32)))
    kept, _ = b.ops("Dropout", b.op("Identity", total), b.constant(0.4, np.float32), count=2)
    return b.quantised(kept, "uint8", 0.1)


def weights(b: Builder) -> str:
    """Weights that are dequantised, put together and quantised again, as those of an LSTM."""
    x = b.real(b.input((2, 4, 3, 5), "uint8"), "uint8", 0.1)
    parts = [
        b.real(b.constant(b.rng.integers(-90, 90, (1, 4, 1, 5)), "int8"), "int8", s) for s in (0.1, 0.03)
    ]
    joined = b.quantised(b.op("Concat", *parts, axis=0), "int8", 0.1)
    return b.quantised(b.op("Mul", x, b.real(joined, "int8", 0.1)), "uint8", 0.173)


@pytest.mark.parametrize(
    ("make", "nodes"),
    [
        (sizes, ["Transpose", "Reshape", "DequantizeLinear", "Max", "QuantizeLinear"]),
        (other_branch, ["DequantizeLinear", "Max", "QuantizeLinear"]),
        (masks, ["DequantizeLinear", "Add", "QuantizeLinear"]),
        (weights, ["DequantizeLinear", "DequantizeLinear", "Mul", "QuantizeLinear"]),
        (casts, ["DequantizeLinear", "Add", "Add", "Dropout", "QuantizeLinear"]),
    ],
)
def test_what_follows_from_constants_is_gone_and_results_stay(
    make: Callable[[Builder], str], nodes: list[str]
) -> None:
    b = Builder()
    model = opened(b, make(b))
    sized = with_sizes(model, SIZES, "model")
    assert [n.op for n in load(sized).nodes] == nodes
    network = import_model(sized)
    inputs = random_inputs(network, np.random.default_rng(1))
    want = runtime(model, inputs)
    for name, array in run(network, inputs).items():
        np.testing.assert_array_equal(array, want[name])


def test_absent_inputs_may_be_empty_tensors() -> None:
    b = Builder()
    x = b.input((2, 4, 3, 5), "uint8")
    empty = b.constant(np.zeros(0, np.float32))
    twice = b.op("Resize", x, empty, b.constant([1, 1, 2, 2], np.float32), mode="nearest")
    (node,) = load(b.model(twice)).nodes
    assert node.inputs[:2] == (x, "")


def test_a_result_beyond_the_limit_is_not_computed() -> None:
    b = Builder()
    huge = b.op("Expand", b.constant(1, np.int32), b.constant([1 << 20, 1 << 20], np.int64))
    total = b.op("ReduceSum", huge, b.op("Add", b.constant([0], np.int64), b.constant([1], np.int64)))
    y = b.op("Add", b.input((1,), "int32"), total)
    info = helper.make_tensor_value_info(y, 6, [1])
    graph = helper.make_graph(b.nodes, "g", b.inputs, [info], b.constants)
    made = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert [n.op for n in made.nodes] == ["Expand", "ReduceSum", "Add"]
    assert made.constants[made.nodes[1].inputs[1]].tolist() == [1]


def test_a_condition_that_is_computed_is_refused_or_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = Builder()
    x = b.real(b.input((2, 4, 3, 5), "uint8"), "uint8")
    model = opened(b, branches(b, b.op("Cast", b.input((), "int32"), to=9), x))
    text = r"\(If\): its condition must .* input 'x1' \(int32, shape \[\]\): .*x1=..., x0=.*--inputs in.npz"
    with pytest.raises(InputError, match=text):
        import_model(with_sizes(model, SIZES, "model"), allow_host=True)
    path, known = tmp_path / "model.onnx", tmp_path / "known.npz"
    onnx.save(model, path)
    np.savez(known, x1=np.int32(1))
    given = [f"--dim={name}={size}" for name, size in SIZES.items()]
    command = ["compile", str(path), "--hw", "test", "--allow-host", "-o", str(tmp_path / "made"), *given]
    assert call(command) == 2
    assert [call(["explain", str(path), *given, *more]) for more in ([], ["--inputs", str(known)])] == [1, 1]
    told = capsys.readouterr().out
    assert (told.count("(If): its condition must follow"), told.count("output 't")) == (1, 1)
    assert call([*command, "--inputs", str(known)]) == 0
    assert [o["name"] for o in json.loads((tmp_path / "made" / "manifest.json").read_text())["inputs"]] == [
        "x0"
    ]
    bound = compile(model, TEST, dims=SIZES, inputs={"x1": 1}, allow_host=True)
    assert list(bound.inputs) == ["x0"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, r"open: --dim batch=1 --dim rows=N --dim x0\.3=N \(N: a whole number of your choice\)$"),
        ({"rows": 3}, r"open: --dim batch=1 --dim x0\.3=N \(N: a"),
        ({"cols": 3}, r"^model: no axis 'cols' is open; open are batch, rows, x0\.3$"),
        ({"row": 3}, r"no axis 'row' is open; did you mean 'rows'\? open are batch, rows, x0\.3$"),
        ({"x0.1": 4}, r"^model: axis 'x0\.1' has the fixed size 4; .*open are batch, rows, x0\.3$"),
        ({"batch": 7, "x0.0": 2}, "^model: --dim x0.0=2 and batch=7 are one axis, which must have one size$"),
        ({"rows": 0}, "size of 'rows' must be a whole number of at least 1, not 0"),
    ],
)
def test_open_sizes_must_be_given(given: dict[str, int], text: str) -> None:
    b = Builder()
    model = opened(b, casts(b))
    with pytest.raises(InputError, match=text):
        load(with_sizes(model, given, "model"))


def test_an_open_size_is_quoted_for_the_shell() -> None:
    b = Builder()
    model = opened(b, casts(b))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "it's"
    with pytest.raises(InputError, match="open: --dim 'it'\"'\"'s'=1 --dim rows=N"):
        load(model)


def test_names_that_are_signs_alone_are_told_by_their_axes() -> None:
    b = Builder()
    model = opened(b, casts(b))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "?"
    with pytest.raises(InputError, match=r"--dim batch=1 --dim x0\.2=N --dim x0\.3=N"):
        load(model)
    sized = with_sizes(model, {"batch": 2, "x0.0": 2, "x0.2": 3, "x0.3": 5}, "model")
    assert load(sized).inputs["x0"][1] == (2, 4, 3, 5)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    with pytest.raises(InputError, match="no axis 'batch' is open; the model has no open sizes: omit --dim"):
        with_sizes(model, {"batch": 2}, "model")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("n=4", "n=8"), "^--dim 'n' must have one size, not 4 and 8$"),
        (("batch",), "^--dim must be NAME=SIZE with a whole number, as --dim batch=1, not 'batch'$"),
        (("n=x",), "as --dim n=1, not 'n=x'$"),
    ],
)
def test_texts_that_are_no_sizes_are_refused(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_sizes(texts)
    assert parse_sizes(["n=4", "x.1=8", "n=4"]) == {"n": 4, "x.1": 8}


def test_a_compiled_model_holds_constants_of_other_files(tmp_path: Path) -> None:
    b = Builder()
    x = b.real(b.input((4, 6)), "int8", 0.1)
    held = numpy_helper.from_array(np.full((6,), 3, np.float32), "held")
    total = b.op("Add", b.op("Add", x, b.op("Constant", value=held)), b.constant(np.ones(6, np.float32)))
    model = b.model(b.quantised(total, "int8", 0.1))
    inputs = random_inputs(import_model(model), np.random.default_rng(0))
    (want,) = runtime(model, inputs).values()
    path = tmp_path / "there" / "model.onnx"
    path.parent.mkdir()
    onnx.save(
        model, path, save_as_external_data=True, location="data", size_threshold=0, convert_attribute=True
    )
    data = path.read_bytes()
    source = onnx_source(path)
    inside = tmp_path / "alone.onnx"
    inside.write_bytes(source.files()[MODEL])
    for constant in (path.parent / "data", path):
        constant.unlink()
    (have,) = run(import_model(inside), inputs).values()
    np.testing.assert_array_equal(have, want)
    with pytest.raises(InputError, match="is in another file, which can only be found from the path"):
        import_model(onnx.load_model_from_string(data))
