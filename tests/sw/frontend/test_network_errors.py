"""Nodes that cannot be imported are refused (node, what was found, what is needed) or left to the host."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from heald.cli import call
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.contrib import CONTRIB
from sw.frontend.network import SUPPORTED, import_model
from sw.frontend.refusal import Refusal, RefusedError, summary
from sw.graph.host import HostOperator
from sw.graph.reference import random_inputs, run
from tests.sw.quantised_models import encoder, runtime


def dynamic(b: Builder) -> str:
    b.inputs.append(helper.make_tensor_value_info("d", 1, ["batch", 4]))
    return b.op("Relu", "d")


def float_product(b: Builder) -> str:
    return b.op("MatMul", b.input((2, 3), "float32"), b.constant(np.ones((3, 4), np.float32)))


def unknown(b: Builder) -> str:
    return b.op("Hardmax", b.real(b.input((2, 3)), "int8"))


def function_of_two(b: Builder) -> str:
    sigmoid, tanh = (b.op(op, b.real(b.input((2, 3)), "int8")) for op in ("Sigmoid", "Tanh"))
    total = b.op("Mul", sigmoid, tanh)
    return b.quantised(total, "int8")


def float_softmax(b: Builder) -> str:
    x = b.op("Add", b.real(b.input((2, 3)), "int8"), b.real(b.input((2, 3)), "int8"))
    return b.quantised(b.op("Softmax", x), "int8")


def float_output(b: Builder) -> str:
    return b.op("Sigmoid", b.real(b.input((2, 3)), "int8"))


def computed_shape(b: Builder) -> str:
    return b.op("Reshape", b.input((4, 3)), b.op("Cast", b.input((2,), "int32"), to=7))


CASES: list[tuple[Callable[[Builder], str], str]] = [
    (dynamic, r"model: inputs must have fixed sizes of at least 1; give those that are open: --dim batch=1$"),
    (float_product, r"node n0 \(MatMul\): A 'x0' must come from DequantizeLinear"),
    (unknown, r"node n1 \(Hardmax\): the operator is not supported; docs/operators.md has"),
    (function_of_two, r"node n4 \(Mul\): Mul of these operands has no exact form"),
    (float_softmax, r"node n3 \(Softmax\): its input 't2_0' must come from .* not from node n2 \(Add\)"),
    (float_output, r"output 't1_0': node n1 \(Sigmoid\) computes it in float32"),
    (
        computed_shape,
        r"node n1 \(Reshape\): shape must be a constant, .*; it depends on input 'x1' \(int32, shape \[2\]\)",
    ),
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_refusals_name_the_node(make: Any, message: str) -> None:
    b = Builder()
    output = make(b)
    kind = 1 if make in (dynamic, float_output, float_product, unknown) else 3
    info = helper.make_tensor_value_info(output, kind, ["rows", "columns"])
    graph = helper.make_graph(b.nodes, "test", b.inputs, [info], b.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with pytest.raises(InputError, match=message):
        import_model(model)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(InputError, match="no such file"):
        import_model(path)
    with pytest.raises(InputError, match="not a directory"):
        import_model(tmp_path)
    data = encoder().SerializeToString()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="not a valid ONNX model"):
        import_model(path)


def test_other_domains_are_refused() -> None:
    b = Builder()
    name = b.op("Inverse", b.input((3, 3), "float32"), domain="com.microsoft")
    model = b.model(name)
    with pytest.raises(InputError, match=r"n0 \(com.microsoft::Inverse\): the operator of domain 'com.mic"):
        import_model(model)
    inputs = {"x0": np.diag(np.arange(1, 4)).astype(np.float32)}
    assert hosted(model, inputs) == ["com.microsoft::Inverse"]
    model.graph.node[0].domain = "elsewhere"
    model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    with pytest.raises(InputError, match=r"operators of domain 'elsewhere' are not supported"):
        import_model(model, allow_host=True)


def test_operands_that_do_not_match_are_refused() -> None:
    b = Builder()
    name = b.op("MatMulInteger", b.input((2, 3)), b.input((4, 5)))
    info = helper.make_tensor_value_info(name, 6, ["rows", "columns"])
    graph = helper.make_graph(b.nodes, "test", b.inputs, [info], b.constants)
    with pytest.raises(InputError, match="shapes or types do not match"):
        import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def hosted(model: onnx.ModelProto, inputs: dict[str, np.ndarray] | None = None) -> list[str]:
    """Runs a model with help of the host against onnxruntime; gives the host's operators."""
    network = import_model(model, allow_host=True)
    inputs = inputs or random_inputs(network, np.random.default_rng(0))
    theirs = runtime(model, inputs)
    for name, array in run(network, inputs).items():
        assert array.dtype == theirs[name].dtype
        assert np.allclose(array, theirs[name], atol=1e-5)
    return [o.op for o in network.operators if isinstance(o, HostOperator) and not o.edge]


def test_the_host_takes_what_is_left() -> None:
    b = Builder()
    x = b.real(b.input((4, 8)), "int8", 0.02)
    w = b.real(b.constant(b.rng.integers(-127, 127, (8, 8)), np.int8), "int8", 0.01)
    product = b.real(b.quantised(b.op("MatMul", x, w), "int8", 0.02), "int8", 0.02)
    top = b.ops("TopK", product, b.constant([3]), count=2)[0]
    model = b.model(b.quantised(top, "int8", 0.02))
    with pytest.raises(InputError, match="TopK"):
        import_model(model)
    assert hosted(model) == ["DequantizeLinear", "TopK", "QuantizeLinear"]


def test_dynamic_quantisation_has_its_product_on_the_machine() -> None:
    b = Builder()
    x = b.input((5, 8), "float32")
    w = b.constant(b.rng.integers(-127, 127, (8, 6)), np.int8)
    name = b.op("DynamicQuantizeMatMul", x, w, b.constant(0.01, np.float32), domain="com.microsoft")
    model = b.model(name)
    assert hosted(model) == []
    edges = [o.op for o in import_model(model).operators if isinstance(o, HostOperator) and o.edge]
    assert "DynamicQuantizeLinear" in edges
    assert "MatMulInteger" not in edges


def test_a_float_model_runs_on_the_host() -> None:
    model = encoder()
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 8, 16)).astype(np.float32)}
    assert hosted(model, inputs).count("MatMul") == 8


def test_a_refusal_is_short_and_ends_with_what_to_do() -> None:
    name = "x" * 500
    node = helper.make_node("Hardmax", [name], ["y"], name="n")
    more = helper.make_node("Add", [name, name], ["z"], name=name)
    given, *outputs = (helper.make_tensor_value_info(n, 1, [2, 3]) for n in (name, "y", "z"))
    graph = helper.make_graph([more, node], "g", [given], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with pytest.raises(InputError, match=r"--allow-host leaves (it|them) to the host$") as caught:
        import_model(model)
    assert len(str(caught.value)) <= 300


def test_the_operators_that_are_supported_are_listed() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operators.md").read_text()
    (section,) = re.findall(r"## Operators of ONNX\n(.*?)\n## ", page, re.DOTALL)
    assert {*SUPPORTED, *CONTRIB} - set(re.findall(r"\w+", section)) == set()


def refused(b: Builder) -> onnx.ModelProto:
    """A product of float32 and what follows from it, two operators without import, a product that runs."""
    x = b.input((2, 3), "float32")
    product = b.op("MatMul", x, b.constant(np.ones((3, 4), np.float32)))
    y = b.real(b.quantised(b.op("Relu", product), "int8"), "int8")
    first = b.op("Hardmax", y)
    return b.model(
        first,
        b.op("Hardmax", first),
        b.op("MatMulInteger", b.input((2, 3)), b.constant(np.ones((3, 4), np.int8))),
    )


def test_all_that_is_refused_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    model = refused(Builder())
    onnx.save(model, path)
    with pytest.raises(RefusedError) as error:
        import_model(model)
    have = [(r.name, r.op, r.follows) for r in error.value.refusals]
    want = [
        ("n0", "MatMul", False),
        ("n1", "Relu", True),
        ("n2", "QuantizeLinear", True),
        ("n4", "Hardmax", False),
    ]
    assert have == [*want, ("n5", "Hardmax", True)]
    text = str(error.value)
    assert re.match(
        r"node n0 \(MatMul\): A 'x0' must come from .*; 1 more, see heald explain; quantise again", text
    )
    assert text.endswith("'Relu'], or --allow-host leaves them to the host")
    assert len(text) <= 300
    assert call(["explain", str(path), "--json"]) == 1
    listed = json.loads(capsys.readouterr().out)["refused"]
    assert [(r["name"], r["op"], r["follows"]) for r in listed] == have
    assert all(r["reason"] and "--allow-host" in r["remedy"] for r in listed)
    assert call(["explain", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[6:8] == [
        "node n4 (Hardmax): the operator is not supported; docs/operators.md has the "
        f"{len(SUPPORTED)} that are",
        "    --allow-host leaves it to the host",
    ]
    assert lines[-2] == "5 refused, 3 of them perhaps only because of others"
    assert lines[-1].startswith("with --allow-host: 6 operators on the host in 1 island: 0 tensors cross")
    assert set(hosted(model)) == {"MatMul", "Relu", "QuantizeLinear", "DequantizeLinear", "Hardmax"}


def test_a_refusal_without_a_remedy_ends_with_what_is_refused() -> None:
    refusals = [Refusal("node a (Own)", "a", "Own", "it is not known", lost=True)] * 2
    assert summary(refusals).endswith("1 more is refused: 1 Own (heald explain lists all)")
    assert summary(refusals[:1]) == "node a (Own): it is not known"


def test_nodes_may_be_out_of_order() -> None:
    b = Builder()
    model = b.model(b.quantised(b.op("Relu", b.real(b.input((2, 3)), "int8")), "int8"))
    inputs = random_inputs(import_model(model), np.random.default_rng(0))
    want = run(import_model(model), inputs)
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    (name,) = want
    np.testing.assert_array_equal(run(import_model(model), inputs)[name], want[name])
