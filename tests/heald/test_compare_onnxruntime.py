"""Models compared with onnxruntime, tensor by tensor: what is equal, rounded differently, or wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import heald as hd
from cosim.session.onnxruntime_comparison import ModelComparison, compare_model
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph import reference
from tests.heald.network_models import hosted, model, perceptron, save, value
from tests.sw.models import matmul_integer

RUN = ("--hw", "test", "--sim", "cpp")


def beside(
    ours: onnx.ModelProto, theirs: onnx.ModelProto | None = None, inputs: dict[str, np.ndarray] | None = None
) -> ModelComparison:
    """What our reference makes of a model beside what onnxruntime makes of it, or of another one."""
    network = import_model(ours, allow_host=True, fuse=False)
    inputs = inputs or reference.random_inputs(network, np.random.default_rng(0))
    return compare_model(theirs or ours, network, inputs, {})


def changed(name: str, array: Any) -> onnx.ModelProto:
    """The perceptron with another constant."""
    made = perceptron()
    (held,) = (t for t in made.graph.initializer if t.name == name)
    held.CopyFrom(numpy_helper.from_array(np.asarray(array), name))
    return made


def test_a_run_tells_what_onnxruntime_makes_of_every_tensor(heald: Any, tmp_path: Path) -> None:
    path, page = save(tmp_path, perceptron()), tmp_path / "report.html"
    ended = heald("run", path, *RUN, "--compare", "onnxruntime", "--json", "--report", page)
    assert ended.code == 0, ended.err
    run = json.loads(ended.out)
    assert run["ran_on_machine"] is True
    compared = run["compared"]
    assert (compared["with"], compared["ok"]) == ("onnxruntime", True)
    assert [t["name"] for t in compared["tensors"]] == ["xq", "h", "g", "sq", "y"]
    assert [t["node"] for t in compared["tensors"]] == ["quantise", "up", "down", "requantise", "dequantise"]
    # Scales of the model put some sums on ties.
    assert all(t["largest"] < 1.001 and t["cosine"] > 0.9999 for t in compared["tensors"])
    assert all(t["status"] in ("equal", "rounded", "carried") for t in compared["tensors"])
    text = page.read_text(encoding="utf-8")
    assert "Beside onnxruntime" in text
    assert '<th scope="row">onnxruntime</th>' in text


def test_the_python_interface_keeps_the_comparison() -> None:
    run = hd.compile(perceptron(), "test").run(on="cpp")
    assert run.as_dict()["compared"] is None
    assert run.compare_reference() is run.compare_reference()
    assert "5 tensors" in repr(run.compare_reference())
    assert [c.name for c in run.checks if c.ok][-1] == "onnxruntime"
    with pytest.raises(InputError, match="needs an ONNX model"):
        hd.compile(hd.matmul(4, 4, 4), "test").run(on="cpp").compare_reference()


def test_a_wrong_operator_is_named_and_others_are_not_blamed() -> None:
    other = changed("w1", np.zeros((9, 7), np.int8))
    found = beside(perceptron(), other)
    assert not found.ok
    assert found.first is not None
    assert (found.first.name, found.first.node, found.first.op) == ("h", "up", "QLinearMatMul")
    assert [t.status for t in found.tensors if t.node in ("up", "down")] == ["different", "carried"]
    assert found.first.own == found.first.largest > 1
    assert found.first.cosine < 0.9
    assert found.tensors[-1].unit == "steps"
    assert found.tensors[-1].largest == pytest.approx(found.tensors[-2].largest)
    assert found.summary.startswith("differs from onnxruntime: node up (QLinearMatMul): ")


def test_one_step_next_to_a_tie_is_a_rounding_and_elsewhere_is_not() -> None:
    b = Builder()
    x = b.op("DequantizeLinear", b.input((64,)), b.constant(0.1, np.float32))
    y = b.op("DequantizeLinear", b.input((64,)), b.constant(0.3, np.float32))
    grid = b.constant(0.2, np.float32), b.constant(0, np.int8)
    made = b.model(b.op("QuantizeLinear", b.op("Add", x, y), *grid))
    inputs = {f"x{i}": np.random.default_rng(i).integers(-60, 60, 64).astype(np.int8) for i in range(2)}
    network = import_model(made, fuse=False)
    exact = (inputs["x0"].astype(int) + 3 * inputs["x1"]) / 2
    halves = exact % 1 == 0.5

    def judged(places: np.ndarray, steps: float) -> tuple[bool, list[str]]:
        """The comparison where onnxruntime's real numbers lie so many steps beyond ours at these places."""
        more = np.zeros(64, np.float32)
        beyond = np.where(halves, np.sign(exact - np.rint(exact)), 1)
        more[places] = 0.2 * steps * beyond[places]
        shifted = onnx.ModelProto()
        shifted.CopyFrom(made)
        last = shifted.graph.node[-1]
        assert last.op_type == "QuantizeLinear"
        shifted.graph.node.insert(
            len(shifted.graph.node) - 1, helper.make_node("Add", [last.input[0], "more"], ["moved"])
        )
        shifted.graph.node[-1].input[0] = "moved"
        shifted.graph.initializer.append(numpy_helper.from_array(more, "more"))
        found = compare_model(shifted, network, inputs, {})
        return found.ok, [t.status for t in found.tensors]

    assert judged(np.flatnonzero(halves)[:3], 2.0**-13) == (True, ["rounded"])
    assert judged(np.flatnonzero(halves)[:3], 2.0**-8) == (False, ["different"])
    assert judged(np.flatnonzero(~halves)[:3], 1.0) == (False, ["different"])
    # Ours rounds the exact sum; that of float32 lies on one side of each tie.
    found = compare_model(made, network, inputs, {})
    assert found.ok
    assert found.tensors[0].status in ("equal", "rounded")


def test_what_nothing_ran_of_on_the_machine_is_no_success(heald: Any, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "only")]
    vector = [value(name, TensorProto.FLOAT, (4,)) for name in "xy"]
    path = save(tmp_path, model(nodes, vector[:1], vector[1:], {}))
    ended = heald("run", path, *RUN, "--allow-host", "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["ran_on_machine"] is False
    ended = heald("run", path, *RUN, "--allow-host", "--host-only", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["ran_on_machine"] is False


def test_operators_of_the_host_are_compared_too() -> None:
    found = beside(hosted())
    assert found.ok
    assert [t.name for t in found.tensors][-3:] == ["sine", "q", "y"]
    assert {t.status for t in found.tensors} == {"equal"}
    assert next(t for t in found.tensors if t.name == "sine").unit == ""


def test_a_model_that_onnxruntime_cannot_run_is_told() -> None:
    nodes = [helper.make_node("BitwiseNot", ["x"], ["y"], "only")]
    vector = [value(name, TensorProto.INT8, (4,)) for name in "xy"]
    good, made = (model(nodes, vector[:1], vector[1:], {}) for _ in range(2))
    made.opset_import[0].version = 999
    with pytest.raises(InputError, match="onnxruntime cannot run the model, so nothing is compared"):
        compare_model(made, import_model(good), {"x": np.zeros(4, np.int8)}, {})


def test_a_comparison_goes_with_a_model(heald: Any) -> None:
    ended = heald("run", "--matmul", "4x4x4", *RUN, "--compare", "onnxruntime")
    assert ended.code == 2
    assert "--compare goes with a model, not with --matmul" in ended.err


def test_what_cannot_be_compared_is_refused_before_the_run(
    heald: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwanted(*arguments: Any) -> Any:
        raise AssertionError("the run began")

    monkeypatch.setattr("heald.session.simulator", unwanted)
    program = Path("examples/07_tile_program_on_rtl/product.py")
    for name, source in (("problem", hd.matmul(4, 4, 4)), ("program", program)):
        hd.compile(source, "test").save(tmp_path / name)
        ended = heald("run", tmp_path / name, "--sim", "cpp", "--compare", "onnxruntime", "--json")
        needed = f"a comparison with onnxruntime needs an ONNX model, and {tmp_path / name} is not one"
        assert (ended.code, ended.out, ended.err) == (2, "", f"heald: {needed}\n")
    made = matmul_integer((4, 4), (4, 4))
    made.opset_import[0].version = 999
    ended = heald("run", save(tmp_path, made), *RUN, "--compare", "onnxruntime")
    assert ended.code == 2
    assert "onnxruntime cannot run the model, so nothing is compared: " in ended.err.splitlines()[-1]


def test_an_operator_of_two_parts_gives_its_name_to_the_last() -> None:
    """Clip behind a dynamically quantised product is a maximum and a minimum."""
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.integers(-9, 10, (6, 5)).astype(np.int8),
        "low": np.asarray(0.25, np.float32),
        "high": np.asarray(2.5, np.float32),
    }
    made = model(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"], "quantise"),
            helper.make_node("MatMulInteger", ["q", "w", "zero"], ["m"], "product"),
            helper.make_node("Cast", ["m"], ["f"], "cast", to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "scale"], ["r"], "scaled"),
            helper.make_node("Clip", ["r", "low", "high"], ["c"], "clip"),
            helper.make_node("Tanh", ["c"], ["y"], "end"),
        ],
        [value("x", TensorProto.FLOAT, (4, 6))],
        [value("y", TensorProto.FLOAT, (4, 5))],
        constants,
    )
    found = beside(made)
    assert "c" in {t.name for t in found.tensors}
    assert found.ok, found.summary
