"""Models on a machine whose CGRA has lanes: the same results, in fewer cycles."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.model_run import run_model
from heald.testing.models import Builder
from hw.config import load
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.network import Network
from tests.heald.conftest import Ended, Quick
from tests.heald.test_row_networks import rows_of_any_length
from tests.sw.compile.row_networks import Builder as NetworkBuilder

ROOT = Path(__file__).resolve().parents[2]
#: Eight columns for eight lanes.
SETTINGS = {"cols": 8, "scratch_bytes": 32768}
MACHINE = ("--hw", "test", *(part for name in SETTINGS for part in ("--set", f"{name}={SETTINGS[name]}")))
VECTOR = (*MACHINE, "--set", "cgra=vector3x4")
#: Rows of ten pixels, behind which images have padding.
SMALL = "--size 10 --channels 16 --inner 8"
MODELS = {
    "09_bert_encoder": "--sequence 16 --hidden 32 --heads 2 --feed-forward 64",
    "10_resnet_bottleneck": "--size 8 --channels 16 --inner 8",
}


def model(name: str, folder: Path, arguments: str | None = None) -> Path:
    path = folder / f"{name}.onnx"
    make = [
        sys.executable,
        ROOT / "examples" / name / "make_model.py",
        "--output",
        path,
        *(arguments or MODELS[name]).split(),
    ]
    subprocess.run(make, check=True, capture_output=True, cwd=ROOT)
    return path


def run(heald: Callable[..., Ended], *arguments: object) -> dict[str, Any]:
    ended = heald("run", *arguments, "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


@pytest.mark.parametrize(
    "name", [pytest.param("09_bert_encoder", marks=pytest.mark.slow), "10_resnet_bottleneck"]
)
def test_results_are_the_references(
    heald: Callable[..., Ended], quick: object, tmp_path: Path, name: str
) -> None:
    path = model(name, tmp_path)
    plain, wide = (run(heald, path, *machine) for machine in (MACHINE, VECTOR))
    assert wide["correct"]
    assert wide["cycles"] < plain["cycles"]


def rows() -> Network:
    """Softmax and normalisation of rows of any length, some of more than one tile."""
    builder = rows_of_any_length()
    builder.softmax((300, 64), "int8", "uint8")
    builder.normalisation((2, 150, 96), result="uint8")
    builder.normalisation((40, 64), x_zero=-5)
    return builder.network()


def test_rows_of_any_length() -> None:
    config, network = load("test", SETTINGS | {"cgra": "vector3x4"}), rows()
    model = compile_model(network, config)
    inputs = reference.random_inputs(network, np.random.default_rng(2))
    report = run_model(model, inputs, MemorySettings.of(config), lambda: Quick(config))
    assert report.correct


def columns() -> Network:
    """Softmax of columns: one tile, tiles of planes, tiles of columns, and columns that lanes do not fill."""
    builder = NetworkBuilder()
    builder.column_softmax((1, 4, 16, 100), moved=True)
    builder.column_softmax((2, 2, 8, 301), "uint8", "int8")
    builder.column_softmax((1, 1, 32, 900), "int8", "uint8")
    builder.column_softmax((1, 7, 16, 150), "uint8", "uint8", moved=True)
    return builder.network()


def test_softmax_of_columns() -> None:
    config, network = load("test", SETTINGS | {"cgra": "vector3x4"}), columns()
    model = compile_model(network, config)
    assert {o.op for o in model.network.operators} == {"Softmax"}
    inputs = reference.random_inputs(network, np.random.default_rng(2))
    report = run_model(model, inputs, MemorySettings.of(config), lambda: Quick(config))
    assert report.correct


@pytest.mark.slow
def test_softmax_of_columns_on_the_rtl() -> None:
    config, network = load("test", SETTINGS | {"cgra": "vector3x4"}), columns()
    inputs = reference.random_inputs(network, np.random.default_rng(2))
    made = compile_model(network, config)
    report = run_model(made, inputs, MemorySettings.of(config), lambda: simulator(config, "cpp"))
    assert report.verified
    assert report.correct


def test_small_images_have_more_outputs_in_a_row_than_they_keep(tmp_path: Path) -> None:
    config = load("test", SETTINGS | {"cgra": "vector3x4"})
    network = import_model(model("10_resnet_bottleneck", tmp_path, SMALL))
    found = compile_model(network, config)
    problems = [
        p.nest.problem for s in compile_network(network, config) if isinstance(s, Compiled) for p in s.parts
    ]
    assert [(p.length, p.across) for p in problems] == [(10, 16), (10, 10), (10, 10)]
    inputs = reference.random_inputs(network, np.random.default_rng(3))
    report = run_model(found, inputs, MemorySettings.of(config), lambda: Quick(config))
    assert report.correct


def test_pixels_of_a_flat_tensor_stay_as_they_lie() -> None:
    """Rows of images inside one row of a tensor cannot have padding behind them."""
    b = Builder(1)
    images = b.op("Reshape", b.real(b.input((1, 300)), "int8", 0.05), b.constant([1, 3, 10, 10], np.int64))
    sizes = [(8, 3, 1, 1), (8, 8, 3, 3)]
    one, two = (b.real(b.constant(b.rng.integers(-50, 50, s), np.int8), "int8", 0.02) for s in sizes)
    inner = b.op(
        "DequantizeLinear", b.quantised(b.op("Conv", images, one), "int8", 0.05), *b.grid("int8", 0.05)
    )
    outer = b.quantised(b.op("Conv", inner, two, pads=[1] * 4), "int8", 0.2)
    config = load("test", SETTINGS | {"cgra": "vector3x4"})
    network = import_model(b.model(outer))
    inputs = reference.random_inputs(network, np.random.default_rng(3))
    made = compile_model(network, config)
    assert run_model(made, inputs, MemorySettings.of(config), lambda: Quick(config)).correct


def test_many_transposed_operands_are_loaded_one_element_at_a_time() -> None:
    b = Builder(5)
    terms = [b.op("Transpose", b.real(b.input((8, 12)), "int8", 0.05), perm=[1, 0]) for _ in range(7)]
    network = import_model(b.model(b.quantised(b.op("Sum", *terms), "int8", 0.3)))
    config = load("test", SETTINGS | {"cgra": "vector3x4"})
    inputs = reference.random_inputs(network, np.random.default_rng(3))
    made = compile_model(network, config)
    assert run_model(made, inputs, MemorySettings.of(config), lambda: Quick(config)).correct


@pytest.mark.slow
def test_small_images_on_the_rtl(heald: Callable[..., Ended], tmp_path: Path) -> None:
    found = run(heald, model("10_resnet_bottleneck", tmp_path, SMALL), *VECTOR)
    assert found["correct"]
    assert found["cycles"] == found["model_cycles"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_rtl_does_the_same(heald: Callable[..., Ended], tmp_path: Path, name: str) -> None:
    found = run(heald, model(name, tmp_path), *VECTOR)
    assert found["correct"]
    assert found["cycles"] == found["model_cycles"]


KERNEL = """LANES = 4


def clipped(n, x, y, most):
    for i in range(n):
        v = load_lanes(x, 4 * i)
        if v < most:
            store_lanes(y, 4 * i, v)
        y[4 * i] = max_lanes(v)
"""
#: Two memory ports and an ALU with four lanes each, and one lane for what counts.
FABRIC = """rows = 2
cols = 2
lanes = 4
links = ["mesh"]
grid = ["port port", "across plain"]
[kinds.port]
units = ["alu", "memory"]
[kinds.across]
units = ["alu", "lanes"]
[kinds.plain]
units = ["alu"]
lanes = 1
"""


@pytest.fixture
def kernel(tmp_path: Path) -> tuple[str, ...]:
    """The command that runs a kernel with lanes."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "four.toml").write_text(FABRIC)
    return "cgra", "run", f"{tmp_path}/kernel.py:clipped", "--fabric", f"{tmp_path}/four.toml", "--json"


def test_a_kernel_stores_and_states_what_all_lanes_do(
    heald: Callable[..., Ended], quick: object, kernel: tuple[str, ...]
) -> None:
    ended = heald(*kernel)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["correct"]


@pytest.mark.slow
def test_so_does_the_rtl(heald: Callable[..., Ended], kernel: tuple[str, ...]) -> None:
    ended = heald(*kernel)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["correct"]
