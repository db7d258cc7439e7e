"""The examples do what their pages say, on the RTL."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def module(path: Path) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def small_layer(folder: Path) -> Path:
    """The layer of example 1, small."""
    path = folder / "small.onnx"
    make = module(EXAMPLES / "01_bert_layer/make_model.py")
    path.write_bytes(make.layer(sequence=8, hidden=32, heads=4, feed_forward=64, seed=0).SerializeToString())
    return path


def test_a_small_bert_layer_is_proven(heald: Any, tmp_path: Path) -> None:
    ended = heald("run", small_layer(tmp_path), "--hw", "test", "--json")
    assert ended.code == 0, ended.err
    run = json.loads(ended.out)
    names = [o["name"] for o in run["operators"]]
    assert names == [
        "query",
        "key",
        "value",
        "scores",
        "context",
        "output",
        "feed_forward_1",
        "feed_forward_2",
    ]
    assert run["operators"][3]["shape"] == [4, 8, 8]


def test_the_bert_layer_of_the_demo_has_the_shapes_of_bert_large(heald: Any, quick: Any) -> None:
    make = module(EXAMPLES / "01_bert_layer/make_model.py")
    layer = make.layer(sequence=128, hidden=1024, heads=16, feed_forward=4096, seed=0)
    sizes = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in layer.graph.output]
    assert sizes == [[128, 1024]] * 3 + [[16, 128, 128], [16, 128, 64], [128, 1024], [128, 4096], [128, 1024]]


def test_the_convolutions_of_example_5_are_proven(heald: Any, tmp_path: Path) -> None:
    path = tmp_path / "convolutions.onnx"
    make = module(EXAMPLES / "05_convolutions/make_model.py")
    path.write_bytes(make.network(size=10, channels=8, seed=0).SerializeToString())
    ended = heald("run", path, "--hw", "test", "--json")
    assert ended.code == 0, ended.err
    run = json.loads(ended.out)
    assert run["correct"]
    assert run["first_divergence"] is None
    assert [o["op"] for o in run["operators"]] == ["ConvInteger"] * 6
    assert sum(p["memory_words"]["load_b"] for p in run["programs"]) > 0


def test_the_program_of_example_3() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "03_hand_written_program/run.py")],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT)} | dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert "result equals NumPy's" in done.stdout
    assert "model and RTL agree on all" in done.stdout


def test_the_official_onnx_cases_pass_on_the_rtl() -> None:
    bench = module(ROOT / "bench/official_onnx.py")
    for operator in bench.OPERATORS:
        found = bench.cases(operator)
        assert found
        assert sum(bench.run_case(case, "test", "verilator") for case in found) == 0


NOTEBOOKS = sorted(EXAMPLES.glob("*/*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(path: Path) -> None:
    """By nbmake, with the packages of this folder; a cell that hangs ends it."""
    command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", "--nbmake"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [*command, "--nbmake-timeout=3000", path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_results(path: Path) -> None:
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert cells
    assert not any(c["outputs"] or c["execution_count"] for c in cells)


def test_the_index_names_every_example() -> None:
    found = set(re.findall(r"\]\(([^)]*)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    pages = {*EXAMPLES.glob("*/README.md"), *NOTEBOOKS}
    assert found == {str(page.relative_to(EXAMPLES)) for page in pages}
