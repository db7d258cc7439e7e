"""The interface in Python (docs/api.md): every line of it, on the RTL of the machine `test`."""

from __future__ import annotations

import json
import linecache
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from onnx import helper

import heald as hd
from cosim.job import Outcome
from hw.config import load
from tests.heald.conftest import Quick
from tests.heald.network_models import perceptron, save
from tests.sw.models import model as model_of
from tests.sw.models import value

TABLE = tuple(int(np.rint(x / 2 * (1 + np.tanh(x / 40)))) for x in range(-128, 128))
PROGRAM = "examples/07_tile_program_on_rtl/product.py"


@hd.epilogue
def gelu_requantise(acc, bias, scale: hd.Scalar, zero: hd.Scalar, residual: hd.Tile):  # type: ignore[no-untyped-def]
    """GELU of the requantised sum, and a residual."""
    x = mul_shift_round_even(acc + bias, scale, 20)  # type: ignore[name-defined] # noqa: F821
    x = min(max(x, -128), 127)
    return min(max(TABLE[x + 128] + zero + residual, -128), 127)


def fir(n, x, y):  # type: ignore[no-untyped-def]
    """Three taps."""
    for i in range(n):
        y[i] = 3 * x[i] + 5 * x[i + 1] - x[i + 2]


def negated(n, x, y):  # type: ignore[no-untyped-def]
    for i in range(n):
        y[i] = -x[i]


@pytest.fixture(scope="module")
def hw() -> hd.Machine:
    return hd.machine("test")


def inputs(seed: int = 0) -> dict[str, Any]:
    """Operands of 12 x 40 x 20 with an epilogue, some as lists and numbers."""
    rng = np.random.default_rng(seed)
    return {
        "A": rng.integers(-128, 128, (12, 40)).astype(np.int8),
        "B": rng.integers(-128, 128, (40, 20)).astype(np.int8),
        "bias": rng.integers(-9999, 9999, 20).tolist(),
        "scale": 1500,
        "zero": -3,
        "residual": rng.integers(-128, 128, (12, 20)).astype(np.int8),
    }


def expected(given: dict[str, Any]) -> np.ndarray:
    """The same by NumPy."""
    total = given["A"].astype(np.int64) @ given["B"] + np.array(given["bias"])
    x = np.clip(np.rint(total * given["scale"] / 2**20), -128, 127).astype(np.int64)
    return np.clip(np.array(TABLE)[x + 128] + given["zero"] + given["residual"], -128, 127).astype(np.int8)


def test_importing_loads_nothing() -> None:
    text = "import sys, heald; print([m for m in ('numpy', 'onnx', 'amaranth', 'numba') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_every_name_is_there_for_type_checkers_too() -> None:
    assert all(getattr(hd, name) is not None for name in hd.__all__)
    assert sorted(hd.__all__) == dir(hd)
    stub = Path(hd.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    told = {line.rpartition(" as ")[2] for line in stub.splitlines() if " as " in line}
    assert told == set(hd.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = hd.nothing  # type: ignore[attr-defined]


def test_a_machine(hw: hd.Machine, tmp_path: Path) -> None:
    assert hd.machine("test", rows=8).rows == hw.replace(rows=8).rows == 8
    assert hd.machine(load("test")) == hw
    found = hw.estimate(family="ecp5")
    assert min(found.luts, found.ffs, found.brams, found.dsps) > 0
    assert found.fmax_mhz is not None
    assert sum(found.luts_by_part.values()) == pytest.approx(found.luts, rel=0.01)
    assert "rows of the GEMM array" in hw._repr_html_()
    for wrong in ({"rows": 3000}, {"rowz": 1}):
        with pytest.raises(hd.InputError):
            hd.machine("test", **wrong)
    with pytest.raises(hd.InputError, match="top must be one of core, axi, uart"):
        hw.verilog("pcie")
    with pytest.raises(AttributeError):
        _ = hw.nothing


@pytest.fixture(scope="module")
def small() -> hd.Machine:
    """A machine that Amaranth's own simulator makes and runs in seconds."""
    sizes = {f"{name}_bytes": 256 for name in ("buffer_a", "buffer_b", "acc")}
    return hd.machine("test", rows=np.int64(2), cols=2, cgra=None, warps=4, imem_words=256, **sizes)


def test_every_top_is_verilog_of_its_module(small: hd.Machine) -> None:
    small = small.replace(warps=1, imem_words=32, loop_depth=1, windows=1)
    told: list[str] = []
    for top, name in (("axi", "heald_axi"), ("uart", "heald_uart")):  # test_commands.py makes the core
        assert f"module {name}(" in small.verilog(top=top, progress=told.append)
    assert any("(uart)" in text for text in told)


def test_simulators_agree(hw: hd.Machine, small: hd.Machine) -> None:
    a, b = np.arange(12).reshape(3, 4), -np.arange(20).reshape(4, 5)
    for machine, names in ((hw, ("verilator", "cpp")), (small, ("amaranth",))):
        model = hd.compile(hd.matmul(3, 4, 5), machine)
        for name in names:
            run = model.run((a, b), on=name)
            assert run.verified, name
            assert run.cycles == model.predict().cycles, name
            assert np.array_equal(run.outputs["C"], a @ b), name


@pytest.fixture
def no_rtl(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs without a simulator; call it to spoil what the machine does."""

    def install(spoil: Any = lambda outcome: outcome) -> None:
        monkeypatch.setattr("heald.session.simulator", lambda config, *rest: Quick(config, spoil=spoil))

    install()
    return install


def test_a_divergence_says_where(hw: hd.Machine, no_rtl: Any) -> None:
    def late(outcome: Outcome) -> Outcome:
        *events, last = outcome.events
        return replace(outcome, events=[*events, last._replace(cycle=last.cycle + 2)])

    no_rtl(late)
    run = hd.compile(hd.matmul(3, 4, 5), hw).run()
    found = run.divergence
    assert found is not None
    assert found.expected == found.cycle
    assert found.got == found.cycle + 2
    assert {"cycle", "warp", "pc", "expected", "got"} <= found.as_dict().keys()
    assert f"cycle {found.cycle}, warp {found.warp}, pc {found.pc}" in str(found)
    assert run.correct
    assert not run.verified
    assert repr(run) == f"<3x4x5: {run.cycles:,} cycles, cycles wrong>"


def test_inputs_in_every_form(hw: hd.Machine, no_rtl: Any) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(-128, 128, (4, 3)), rng.integers(-128, 128, (3, 5))
    model = hd.compile(hd.matmul(4, 3, 5), hw)
    small = np.asfortranarray(a.astype(np.int8)), b.astype(np.int8)[::-1][::-1]
    for given in ((a, b), [a, b], {"B": b, "A": a}, small, (a.tolist(), b.astype(float))):
        assert np.array_equal(model.run(given).outputs["C"], a @ b)
    assert model.run().correct
    floats = hd.compile(perceptron(), hw)
    ((name, (shape, kind)),) = floats.inputs.items()
    x = rng.normal(size=shape)
    wanted = floats.run(x.astype(kind)).outputs["y"]
    for given in (x, x.tolist(), (x,), {name: x}):
        assert np.array_equal(floats.run(given).outputs["y"], wanted)


@pytest.mark.parametrize(
    "problem",
    [
        hd.matmul(6, 10, 14, transposed_a=True, transposed_b=True),
        hd.matmul(4, 5, 6, batch=(2, 3), type_a=np.uint8, zero_a=7, zero_b=-128),
        hd.matmul(1, 1, 1, type_a="uint8", type_b=np.dtype("uint8"), zero_a=255),
        hd.conv(2, 4, 9, 8, 4, 3, 1, stride=(2, 1), pad=(1, 0), groups=2),
        hd.conv(1, 3, 9, 8, 4, 3, 3, pad=(0, 1, 2, 0), dilation=2, type_b=np.uint8, zero_b=12),
    ],
    ids=str,
)
def test_problems_of_every_kind(hw: hd.Machine, no_rtl: Any, problem: hd.Problem) -> None:
    run = hd.compile(problem, hw).run(seed=3, latency={"store": np.int64(9)}, stall=np.int64(1))
    assert run.verified
    assert run.outputs["C"].dtype == np.int32


@hd.epilogue
def halved(acc):  # type: ignore[no-untyped-def]
    """Half of the sum."""
    return acc >> 1


@pytest.mark.parametrize("out", ["int8", np.uint8, np.dtype("int32")])
def test_results_are_wrapped_as_numpy_casts(hw: hd.Machine, no_rtl: Any, out: Any) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-128, 128, (8, 30)), rng.integers(-128, 128, (30, 9))
    run = hd.compile(hd.matmul(8, 30, 9, epilogue=halved, out=out), hw).run((a, b))
    assert run.outputs["C"].dtype == out
    assert np.array_equal(run.outputs["C"], (a @ b >> 1).astype(out))


@hd.epilogue
def all_operands(acc, row: hd.Row, column, tile: hd.Tile[np.uint8], factor: hd.Scalar):  # type: ignore[no-untyped-def]
    """Every kind of operand."""
    return acc * factor + row + column + tile


def test_operands_follow_rows_columns_and_tiles(hw: hd.Machine, no_rtl: Any) -> None:
    rng = np.random.default_rng(6)
    problem = hd.matmul(5, 8, 7, epilogue=all_operands, out="int32", factor=np.rint(3.2))
    model = hd.compile(problem, hw)
    shapes = {name: shape for name, (shape, _) in model.inputs.items()}
    assert shapes == {"A": (5, 8), "B": (8, 7), "row": (5,), "column": (7,), "tile": (5, 7)}
    given = {name: rng.integers(0, 100, shape) for name, shape in shapes.items()}
    wanted = given["A"] @ given["B"] * 3 + given["row"][:, None] + given["column"] + given["tile"]
    assert np.array_equal(model.run(given).outputs["C"], wanted)


def test_functions_of_a_notebook_are_read(hw: hd.Machine, no_rtl: Any) -> None:
    """A cell has a text without a file; `from heald.lang import` makes names known to editors."""
    text = """
        from heald.lang import Buffer, gemm, int8, int32, load, memory, mul_shift_round_even, program, store

        @hd.epilogue
        def scaled(acc, bias):
            return mul_shift_round_even(acc + bias, FACTOR, 4)

        def doubled(n, x, y):
            for i in range(n):
                y[i] = FACTOR * x[i]

        @program
        def nothing():
            A: Buffer[4, 4, int8, memory]
        """
    lines = textwrap.dedent(text).splitlines(keepends=True)
    linecache.cache["<cell 1>"] = (len(text), None, lines, "<cell 1>")
    cell: dict[str, Any] = {"hd": hd, "FACTOR": 2, "__name__": "__main__"}
    exec(compile("".join(lines), "<cell 1>", "exec"), cell)
    run = hd.compile(hd.matmul(2, 2, 2, epilogue=cell["scaled"], out="int32"), hw).run(
        ([[8, 0], [0, 8]], [[4, 8], [12, 16]], [0, 8])
    )
    assert run.outputs["C"].tolist() == [[4, 9], [12, 17]]
    assert hd.map_loop(cell["doubled"]).ii == 1
    assert list(hd.compile(cell["nothing"], hw).inputs) == ["A"]


def test_results_show_themselves_in_a_notebook(hw: hd.Machine, no_rtl: Any) -> None:
    model = hd.compile(hd.matmul(3, 4, 5), hw)
    prediction, run = model.predict(), model.run()
    loop = hd.map_loop(negated)
    shown = (hw, hw.estimate(), model, prediction, run)
    assert all(thing._repr_html_().count("<table>") >= 1 for thing in shown)
    assert loop._repr_html_().startswith("<svg")
    assert repr(model) == "<3x4x5 for machine test>"
    assert repr(prediction) == f"<{prediction.cycles:,} cycles by the cycle model>"
    assert repr(loop) == "<negated.1 on mesh4x4: II 1, MII 1>"


def test_inputs_that_the_compiler_must_know_become_constants(hw: hd.Machine) -> None:
    names = ("a", "sa", "za", "b", "sb", "zb", "sy", "zy")
    kinds = ("uint8", "float32", "uint8", "int8", "float32", "int8", "float32", "int8")
    shapes = {"a": (3, 4), "b": (4, 5)}
    types = [helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in kinds]
    inputs = [
        helper.make_tensor_value_info(n, t, shapes.get(n, ())) for n, t in zip(names, types, strict=True)
    ]
    node = helper.make_node("QLinearMatMul", names, ["y"])
    proto = model_of([node], inputs, [value("y", "int8", (3, 5))], {})
    rng = np.random.default_rng(1)
    given: dict[str, np.ndarray] = {
        "a": rng.integers(0, 256, (3, 4)).astype(np.uint8),
        "b": rng.integers(-128, 128, (4, 5)).astype(np.int8),
        "za": np.array(7, np.uint8),
        **{n: np.array(-3, np.int8) for n in ("zb", "zy")},
        **{n: np.array(x, np.float32) for n, x in (("sa", 0.5), ("sb", 0.25), ("sy", 64))},
    }
    given = {name: given[name] for name in names}
    with pytest.raises(hd.InputError, match="a_scale must be a constant, not 'sa'"):
        hd.compile(proto, hw)
    made = hd.compile(proto, hw, inputs=given)
    assert list(made.inputs) == ["a", "b"]
    total = (given["a"].astype(int) - 7) @ (given["b"].astype(int) + 3)
    expected = np.clip(np.rint(total / 512) - 3, -128, 127).astype(np.int8)
    assert np.array_equal(made.run(given, on="cpp").outputs["y"], expected)
    with pytest.raises(hd.InputError, match="input 'za' was compiled as another constant"):
        made.run(given | {"za": np.array(8, np.uint8)})


def test_a_product_with_an_epilogue(hw: hd.Machine, tmp_path: Path) -> None:
    model = hd.compile(hd.matmul(12, 40, 20, epilogue=gelu_requantise), hw)
    assert model.inputs["bias"] == ((20,), np.dtype("int32"))
    assert model.inputs["residual"] == ((12, 20), np.dtype("int8"))
    assert model.inputs["scale"] == ((), np.dtype("int32"))
    assert model.outputs == {"C": ((12, 20), np.dtype("int8"))}
    given = inputs()
    run = model.run(given)
    assert isinstance(run.outputs["C"], np.ndarray)
    assert np.array_equal(run.outputs["C"], expected(given))
    assert run.correct
    assert run.divergence is None
    assert run.cycles == run.model_cycles == model.predict(given).cycles
    assert [check.ok for check in run.checks] == [True] * 4
    assert run.operators[0].cycles == run.cycles
    run.report(tmp_path / "r.html")
    run.trace(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert run.as_dict()["cycles"] == run.cycles
    assert f"{run.cycles:,} cycles" in run._repr_html_()
    again = model.run(tuple(given.values()), stall=3, bandwidth={"load_a": 2}, latency={"load_b": 40})
    assert np.array_equal(again.outputs["C"], expected(given))
    assert again.cycles > run.cycles


def test_saved_models_are_the_same(hw: hd.Machine, tmp_path: Path) -> None:
    given = inputs(1)
    model = hd.compile(hd.matmul(12, 40, 20, epilogue=gelu_requantise, zero=7), hw)
    model.save(tmp_path / "made")
    loaded = hd.load(tmp_path / "made")
    assert loaded.inputs == model.inputs
    assert loaded.machine == model.machine
    del given["zero"]
    assert np.array_equal(loaded.run(given).outputs["C"], expected(given | {"zero": 7}))
    conv = hd.conv(1, 3, 9, 8, 4, 3, 3, stride=(2, 1), pad=1, zero_b=5)
    hd.compile(conv, hw).save(tmp_path / "conv")
    assert hd.load(tmp_path / "conv").outputs == {"C": ((1, 4, 5, 8), np.dtype("int32"))}
    assert hd.load(tmp_path / "conv").run(seed=2).correct


def test_sources_of_every_kind(hw: hd.Machine, tmp_path: Path) -> None:
    proto = perceptron()
    path = save(tmp_path, proto)
    data = path.read_bytes()
    sources = (path, str(path), data, bytearray(data), proto, hd.compile(proto, hw))
    cycles = {hd.compile(source, hw).predict().cycles for source in sources}
    assert len(cycles) == 1
    with pytest.raises(hd.InputError, match=r"must be a path, bytes, an onnx\.ModelProto"):
        hd.compile(3, hw)
    with pytest.raises(hd.InputError, match="model: not a valid ONNX model"):
        hd.compile(b"no model", hw)
    with pytest.raises(hd.InputError, match=r"nothing\.onnx: no such file"):
        hd.compile("nothing.onnx", hw)


def test_a_tile_program(hw: hd.Machine, tmp_path: Path) -> None:
    model = hd.compile(PROGRAM, hw)
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(-128, 128, (24, 40)).astype(np.int8),
        rng.integers(-128, 128, (40, 32)).astype(np.int8),
    )
    assert model.inputs["A"] == ((24, 40), np.dtype("int8"))
    run = model.run({"A": a, "B": b})
    assert run.correct
    assert run.divergence is None
    assert np.array_equal(run.outputs["C"], a.astype(np.int32) @ b)
    assert model.predict({"A": a, "B": b}).cycles == run.cycles == run.operators[0].cycles
    model.save(tmp_path / "program")
    assert hd.load(tmp_path / "program").predict({"A": a, "B": b}).cycles == run.cycles


def test_a_loop_on_the_cgra(hw: hd.Machine, tmp_path: Path) -> None:
    mapped = hd.map_loop(fir, fabric="compact4x4")
    assert mapped.ii is not None
    assert mapped.ii >= mapped.mii
    assert mapped.verified
    assert mapped.svg(tmp_path / "fir.svg").startswith("<svg")
    x = np.arange(19, dtype=np.int32) ** 2
    run = mapped.run(hw=hw, n=17, x=x, y=np.zeros(17, np.int32))
    assert run.config == hw.config
    assert run.correct
    assert run.divergence is None
    assert run.cycles == run.model_cycles
    assert np.array_equal(run.outputs["y"], 3 * x[:17] + 5 * x[1:18] - x[2:19])
    with pytest.raises(hd.InputError, match="'z' must be a parameter"):
        mapped.run(n=17, z=x)
    assert hd.map_loop(Path("tests/data/dfg/mac.json"), Path("hw/fabric/presets/mesh4x4.toml")).mii == 1


def test_an_exploration(hw: hd.Machine, tmp_path: Path) -> None:
    path = save(tmp_path, perceptron())
    told: list[str] = []
    space = {"rows": np.array([4, 8]), "cols": (4, np.int64(8))}
    study = hd.explore(space, [path, hd.matmul(8, 8, 8)], base=hw, progress=told.append)
    assert len(study.points) == 4
    assert {"rows", "cols", "cycles", "luts", "state", "number"} <= study.points[0].keys()
    assert {p["number"] for p in study.front} <= {p["number"] for p in study.points}
    point = study.front[0]
    machine = study.machine(point["number"])
    assert (machine.rows, machine.cols) == (point["rows"], point["cols"])
    assert point["cycles"] == sum(hd.compile(m, machine).predict().cycles for m in (path, hd.matmul(8, 8, 8)))
    study.report(tmp_path / "e.html")
    assert "points" in study._repr_html_()
    assert told
    assert repr(study).startswith("<4 of 4 points")
    assert len(pandas.DataFrame(study.points)) == 4
    with pytest.raises(hd.InputError, match="unknown option 'trails'"):
        hd.explore(space, [path], trails=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((1, 2), "inputs must be 6 arrays"),
        ({"Z": 1}, "input 'Z' is not one of the model's inputs"),
        ({**inputs(), "bias": [1 << 40] * 20}, "input 'bias' must be int32; its values do not fit"),
        ({**inputs(), "A": np.zeros((2, 2), np.int8)}, r"input 'A' must be int8 of shape \[12, 40\]"),
    ],
)
def test_inputs_that_do_not_fit(hw: hd.Machine, given: Any, message: str) -> None:
    model = hd.compile(hd.matmul(12, 40, 20, epilogue=gelu_requantise), hw)
    with pytest.raises(hd.InputError, match=message):
        model.run(given)
    with pytest.raises(hd.InputError, match="on must be one of verilator, cpp, amaranth"):
        model.run(on="paper")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: hd.machine(3), "a machine must be a preset"),
        (lambda m: hd.machine("test", rows="8"), "rows must be a whole number from 2 to 64, not '8'"),
        (lambda m: hd.compile("a" * 5000, m.machine), "cannot be read: File name too long"),
        (lambda m: hd.matmul("a", 1, 1), "m must be a whole number of at least 1, not 'a'"),
        (lambda m: hd.matmul(1.5, 1, 1), "m must be a whole number of at least 1, not 1.5"),
        (lambda m: hd.matmul(1, 1, 1, batch=3), "batch must be a sequence of whole numbers, not 3"),
        (lambda m: hd.matmul(2, 2, 2, zero_a="x"), "zero_a must be a whole number, not 'x'"),
        (lambda m: hd.conv(1, 1, 3, 3, 1, 3, 3, pad=(1, 2, 3)), "pad must be one number or two, not 3"),
        (lambda m: hd.conv(1, 1, 3.5, 3, 1, 3, 3), "a size of a convolution must be a whole number, not 3.5"),
        (lambda m: hd.matmul(2, 2, 2, epilogue=lambda acc: acc), "found a lambda, expected a function"),
        (lambda m: m.run(on=3), "on must be one of verilator, cpp, amaranth, not '3'"),
        (lambda m: m.run(bandwidth={"x": 1}), "memory port must be one of load_a"),
        (lambda m: m.run(bandwidth={"load_a": "2"}), "bandwidth of load_a must be a whole number"),
        (lambda m: m.run(latency=3), "latency must be numbers by port, not 3"),
        (lambda m: m.run(stall="a"), "stall must be a whole number, not 'a'"),
        (lambda m: m.predict(seed=-1), "seed must be a whole number of at least 0, not -1"),
        (lambda m: m.predict({"A": object(), "B": 1}), "input 'A' must hold numbers, not object"),
        (lambda m: m.predict({"A": [[1, 2], [3]], "B": 1}), "input 'A' must be an array"),
        (lambda m: m.run(waves="x.txt"), "the wave file must end in .fst or .vcd"),
        (lambda m: m.save("/nowhere/x/y"), "directory /nowhere/x does not exist"),
        (lambda m: hd.load("/nowhere"), "must be a directory of heald compile"),
        (lambda m: hd.map_loop(3), "a loop must be a function"),
        (lambda m: hd.map_loop(fir, fabric=4), "fabric must be a preset, a TOML file or a Fabric, not 4"),
        (lambda m: hd.map_loop(fir, size=4), "size must be rows and columns, not 4"),
        (lambda m: hd.map_loop(fir, timeout="1 s"), "timeout must be seconds, not '1 s'"),
        (lambda m: hd.matmul(2, 2, 2, out="int16"), "out must be one of int8, uint8, int32, not 'int16'"),
        (lambda m: hd.explore({"rows": [4, 8]}, [m], sampler="foo"), "sampler must be one of grid"),
        (
            lambda m: hd.explore({"rows": [4, 8]}, [m], trials="x"),
            "trials must be a whole number of at least 1",
        ),
        (lambda m: hd.explore({"rows": [4]}, [m], seed="a"), "seed must be a whole number of at least 0"),
        (lambda m: hd.explore(3, [m]), "a space must be parameters with their values or a TOML file, not 3"),
        (lambda m: hd.explore({"rows": [4, 8]}, []), "an exploration needs at least one model"),
    ],
)
def test_wrong_arguments_are_told(hw: hd.Machine, call: Any, message: str) -> None:
    with pytest.raises(hd.InputError, match=re.escape(message)):
        call(hd.compile(hd.matmul(3, 4, 5), hw))
