"""Unusable models and options, and messages in corner cases: one line, no truncated numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rich.console import Console

from cosim.backends import simulator
from cosim.session.network import compile_model, draw_inputs
from cosim.settings import MemorySettings
from heald.model_run import ModelRun, run_model
from heald.report.table import print_report
from heald.testing.models import Builder
from hw.config import load
from sw.frontend.network import import_model
from sw.graph.reference import run
from tests.heald.network_models import perceptron, save, value
from tests.sw.models import conv_integer

TEST = load("test")
RUN = ("--hw", "test", "--sim", "cpp")


def _of_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    model.opset_import[0].version = opset
    return model


def _scaled(scale: float) -> onnx.ModelProto:
    """A quantised product whose scale of A is this number."""
    made = perceptron()
    held = next(t for t in made.graph.initializer if t.name == "x_scale")
    held.CopyFrom(onnx.numpy_helper.from_array(np.float32(scale), "x_scale"))
    product = next(n for n in made.graph.node if n.name == "up")
    del made.graph.node[:]
    made.graph.node.append(product)
    del made.graph.input[:], made.graph.output[:]
    made.graph.input.append(value("xq", TensorProto.INT8, (5, 9)))
    made.graph.output.append(value("h", TensorProto.INT8, (5, 7)))
    return made


def _without_outputs() -> onnx.ModelProto:
    made = perceptron()
    del made.graph.output[:]
    return made


def _unsorted() -> onnx.ModelProto:
    made = perceptron()
    made.graph.node[1].input[0] = "nowhere"
    return made


def _unsupported() -> onnx.ModelProto:
    made = perceptron()
    made.graph.node.insert(1, helper.make_node("Hardmax", ["x"], ["hard"], "hard"))
    made.graph.output.append(value("hard", TensorProto.FLOAT, (5, 9)))
    return made


@pytest.mark.parametrize("opset", [10, 13, 17, 18])
def test_edges_of_models_of_older_opsets_run(opset: int) -> None:
    inputs = {"x": np.linspace(-5, 5, 45, dtype=np.float32).reshape(5, 9)}
    old, new = (import_model(_of_opset(perceptron(), o)) for o in (opset, 21))
    assert np.array_equal(run(old, inputs)["y"], run(new, inputs)["y"])


def test_a_model_of_an_older_opset_is_proven(heald: Any, tmp_path: Path) -> None:
    ended = heald("run", save(tmp_path, _of_opset(perceptron(), 13)), *RUN)
    assert ended.code == 0, ended.err
    assert "every result equals the reference's" in ended.out


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_scaled(float("nan")), "node up (QLinearMatMul): a_scale must be positive, not nan"),
        (_scaled(0.0), "node up (QLinearMatMul): a_scale must be positive, not 0.0"),
        (_without_outputs(), "a model must have an output, it has none"),
        (_unsorted(), "however input 'nowhere' of node: name: up"),
        (_unsupported(), "node hard (Hardmax): the operator is not supported; "),
    ],
)
def test_models_that_cannot_run_are_told_in_one_line(
    heald: Any, tmp_path: Path, model: onnx.ModelProto, message: str
) -> None:
    path = save(tmp_path, model)
    ended = heald("run", path, *RUN, "--json")
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert ended.err.startswith(f"heald: {path}: ")
    assert ended.err.count("\n") == 1


def test_sizes_that_do_not_fit_the_model_are_named_with_the_mistake(heald: Any, tmp_path: Path) -> None:
    b = Builder()
    made = b.model(b.op("Reshape", b.input((4, 8)), b.constant([2, 16], np.int64)))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    made.graph.output[0].type.tensor_type.shape.dim[0].Clear()
    path, sizes = save(tmp_path, made), "24 elements cannot be an array of shape [2, 16]"
    told = f"node n0 (Reshape): {sizes}; the model may need other sizes than --dim batch=3"
    assert heald("explain", path, "--dim", "batch=3").out.startswith(f"{told}\n")
    assert "may need other sizes than --dim batch=3" in heald("run", path, *RUN, "--dim", "batch=3").err
    assert heald("explain", path, "--dim", "batch=4").code == 0


def test_files_of_a_run_are_checked_before_it(heald: Any, tmp_path: Path) -> None:
    path = save(tmp_path, perceptron())
    same, wave = tmp_path / "same.npz", tmp_path / "w.fst"
    for options, message in (
        (("--waves", tmp_path / "waves.txt"), "the wave file must end in .fst or .vcd, not '"),
        (("--waves-from", 3), "heald: --waves-from goes with --waves FILE, which is missing"),
        (("--waves", wave, "--waves-from", 9, "--waves-to", 8), "(--waves-to) must be 9 or later, not 8"),
        (("--outputs", same, "--report", same), "--outputs and --report must be different files, not both "),
        (("--outputs", same, "--inputs", same), "--outputs and --inputs must be different files, not both "),
        (("--inputs", tmp_path), f"heald: {tmp_path}: must be an .npz file, not a directory"),
    ):
        ended = heald("run", path, *RUN, *options)
        assert (ended.code, ended.out) == (2, "")
        assert message in ended.err
        assert ended.err.count("\n") == 1, ended.err
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_waves_of_cycles_and_operators_that_a_run_does_not_have(heald: Any, tmp_path: Path) -> None:
    path = save(tmp_path, perceptron())
    for option, given, message in (
        (
            "--waves-from",
            1 << 40,
            "heald: the first cycle of waves (--waves-from) must be below the run's ",
        ),
        ("--waves-around", "none", "heald: --waves-around must be an operator on the machine ("),
    ):
        ended = heald("run", path, *RUN, "--waves", tmp_path / "w.fst", option, given)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.splitlines()[-1].startswith(message)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_missing_files_of_machines_and_grids_are_told(heald: Any, tmp_path: Path) -> None:
    path = save(tmp_path, perceptron())
    missing = tmp_path / "none.toml"
    for arguments in (("run", path, "--hw", missing), ("fabric", missing)):
        ended = heald(*arguments)
        assert ended.code == 2
        assert ended.err.startswith(f"heald: {missing}: no such file; ")


def test_the_group_of_the_grid_tells_its_commands(heald: Any) -> None:
    ended = heald("cgra")
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"^  run  ", ended.out, re.MULTILINE)


def test_nothing_is_claimed_where_nothing_ran_on_the_machine(heald: Any, tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], "only")
    vector = [value(name, TensorProto.FLOAT, (4,)) for name in "xy"]
    made = helper.make_model(helper.make_graph([node], "g", vector[:1], vector[1:]), ir_version=10)
    made.opset_import[0].version = 21
    ended = heald("run", save(tmp_path, made), *RUN, "--allow-host")
    assert ended.code == 1, ended.err
    assert "nothing ran on the machine" in ended.out
    assert "! 1 operator ran on the host: only" in ended.out
    assert "✓" not in ended.out


def test_convolutions_go_to_the_host_of_a_machine_without_patches(heald: Any, tmp_path: Path) -> None:
    made = save(tmp_path, conv_integer((1, 2, 5, 6), (3, 2, 3, 3)))
    machine = ("--hw", "test", "--set", "convolutions=false", "-o", tmp_path / "out")
    ended = heald("compile", made, *machine)
    assert ended.code == 2
    text = "conv: 'test with convolutions=false' forms no image patches; this needs convolutions = true"
    assert text in ended.err
    ended = heald("compile", made, *machine, "--allow-host")
    assert ended.code == 0
    assert "nothing runs on the machine" in ended.err


@pytest.fixture(scope="module")
def report() -> ModelRun:
    """A run of a small model."""
    network = import_model(perceptron())
    model = compile_model(network, TEST)
    return run_model(
        model, draw_inputs(network, 0), MemorySettings.of(TEST), lambda: simulator(TEST, "cpp", None)
    )


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_numbers_and_heads_are_never_cut(report: ModelRun, width: int) -> None:
    told = StringIO()
    print_report(report, Console(file=told, width=width))
    lines = told.getvalue().splitlines()
    head = next(line for line in lines if line.startswith("operator"))
    assert (
        " ".join(head.split())
        == "operator kind cycles lower bound bound by bottleneck array busy result II of all"
    )
    for operator in report.operators:
        if operator.where != "machine":
            continue
        line = next(x for x in lines if x.startswith(operator.name[:5]) and f" {operator.cycles:,} " in x)
        assert f" {operator.bound_cycles:,} " in line
        assert line.rstrip().endswith(f"{100 * operator.cycles / report.cycles:.1f} %")
    total = next(line for line in lines if line.startswith("total"))
    assert total.split()[1:3] == [f"{report.cycles:,}", f"{report.bound_cycles:,}"]
    assert sum(operator.cycles for operator in report.operators) == report.cycles


def test_an_interrupt_while_commands_are_imported_is_told_in_one_line() -> None:
    code = """if True:
        import sys

        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "heald.cli.warps":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        import heald.cli
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "heald: interrupted\n")
