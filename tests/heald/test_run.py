"""`heald run`: keys, exit codes, files."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim.job import MachineError, Outcome
from hw.config import load
from hw.isa import Cause
from tests.sw.models import matmul_integer, save

KEYS = {
    "correct",
    "cycles",
    "model_cycles",
    "events",
    "first_divergence",
    "macs",
    "utilization",
    "bound_cycles",
    "build_seconds",
    "sim_seconds",
    "cycles_per_second",
    "model_seconds",
    "instructions",
    "sync_operations",
    "checked",
    "hw",
    "machine",
    "memories",
    "operators",
    "host_operators",
    "islands",
    "fixed_point",
    "ii",
    "first_wrong",
    "programs",
    "compile_seconds",
    "ran_on_machine",
    "compared",
    "outputs",
}


def test_json_is_one_object_with_the_promised_keys(heald: Any, quick: Any) -> None:
    ended = heald("run", "--matmul", "5x6x7", "--hw", "test", "--json")
    assert ended.code == 0
    run = json.loads(ended.out)
    assert set(run) == KEYS
    assert run["correct"] is True
    assert run["first_divergence"] is None
    assert run["macs"] == 5 * 6 * 7
    assert run["cycles"] == run["model_cycles"] > run["bound_cycles"]
    assert run["utilization"] == pytest.approx(run["macs"] / (run["cycles"] * 16))
    assert run["hw"] == load("test").hash
    assert set(run["instructions"]) == {"0", "1", "2", "3"}
    assert run["checked"]["ok"]
    checked = run["operators"][0]["checked"]
    assert checked["method"] == "exact"
    assert run["sync_operations"] == 2 * sum(c["tokens"] for c in checked["channels"].values())
    assert run["operators"][0]["shape"] == [5, 7]
    assert run["operators"][0]["cycles"] == run["cycles"]
    assert run["operators"][0]["plan"]["partition_k"] == 6
    assert run["operators"][0]["where"] == "machine"
    assert run["host_operators"] == run["ii"] == []
    assert "model:" in ended.err


def test_table_names_product_bound_and_proof(heald: Any, quick: Any) -> None:
    ended = heald("run", "--matmul", "5x6x70", "--hw", "test")
    assert ended.code == 0
    assert "matmul 5x6x70" in ended.out
    assert "array" in ended.out or "store" in ended.out
    assert "every result equals NumPy's" in ended.out
    assert "model and RTL agree" in ended.out


def test_every_option_that_describes_a_product(heald: Any, quick: Any) -> None:
    ended = heald(
        *("run", "--matmul", "5x6x7", "--hw", "test", "--json", "--seed", 3, "--stall", 9, "--batch", "2x3"),
        *("--type-a", "uint8", "--type-b", "uint8", "--zero-a", 255, "--zero-b", 7),
        *("--transpose-a", "--transpose-b", "--latency", "load_a=50", "--bandwidth", "store=3"),
        *("--base", "0x80000000"),
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["operators"][0]["shape"] == [2, 3, 5, 7]


def _wrong_result(outcome: Outcome) -> Outcome:
    outcome.outputs[0][0] ^= 1
    return outcome


def _late(outcome: Outcome) -> Outcome:
    last = outcome.events[-1]
    return replace(outcome, events=[*outcome.events[:-1], last._replace(cycle=last.cycle + 1)])


def _stopped(outcome: Outcome) -> Outcome:
    return replace(outcome, error=MachineError(Cause.WINDOW, 3, 9))


@pytest.mark.parametrize(
    ("spoil", "correct", "diverges"),
    [(_wrong_result, False, False), (_late, True, True), (_stopped, False, True)],
)
def test_what_does_not_hold_is_exit_code_1(
    heald: Any, quick: Any, spoil: Callable[[Outcome], Outcome], correct: bool, diverges: bool
) -> None:
    quick(spoil)
    ended = heald("run", "--matmul", "5x6x7", "--hw", "test", "--json")
    run = json.loads(ended.out)
    assert ended.code == 1
    assert run["correct"] is correct
    assert (run["first_divergence"] is not None) == diverges
    table = heald("run", "--matmul", "5x6x7", "--hw", "test")
    assert table.code == 1
    assert "✗" in table.out


def test_same_seed_same_inputs(heald: Any, quick: Any, tmp_path: Path) -> None:
    results = []
    for seed in (1, 1, 2):
        out = tmp_path / "out.npz"
        assert heald("run", "--matmul", "5x6x7", "--hw", "test", "--seed", seed, "--outputs", out).code == 0
        results.append(np.load(out)["C"])
    assert results[0].dtype == np.int32
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_inputs_of_a_shape_are_a_and_b(heald: Any, quick: Any, tmp_path: Path) -> None:
    a, b = np.arange(6, dtype=np.int8).reshape(2, 3), np.ones((3, 4), np.int8)
    np.savez(tmp_path / "in.npz", A=a, B=b)
    out = tmp_path / "out.npz"
    code = heald(
        "run", "--matmul", "2x3x4", "--hw", "test", "--inputs", tmp_path / "in.npz", "--outputs", out
    ).code
    assert code == 0
    assert np.array_equal(np.load(out)["C"], a.astype(np.int32) @ b)


def test_a_model_of_several_nodes_runs_as_one(heald: Any, quick: Any, tmp_path: Path) -> None:
    model = save(tmp_path, matmul_integer((4, 5), (5, 6), nodes=3))
    ended = heald("run", model, "--hw", "test", "--json", "--trace", tmp_path / "t.json")
    run = json.loads(ended.out)
    assert ended.code == 0
    assert [o["name"] for o in run["operators"]] == ["product0", "product1", "product2"]
    assert run["cycles"] == sum(o["cycles"] for o in run["operators"])
    assert run["instructions"]["0"] == sum(p["instructions"]["0"] for p in run["programs"])
    trace = json.loads((tmp_path / "t.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"]} == {1, 2}


def test_outputs_have_the_models_names_and_shapes(heald: Any, quick: Any, tmp_path: Path) -> None:
    model = save(tmp_path, matmul_integer((5,), (5, 6)))
    out = tmp_path / "out.npz"
    assert heald("run", model, "--hw", "test", "--outputs", out).code == 0
    assert np.load(out)["y0"].shape == (6,)


SHAPE = ("run", "--matmul", "4x4x4", "--hw", "test")


def test_a_stage_can_be_printed(heald: Any, quick: Any) -> None:
    ended = heald(*SHAPE, "--print-after", "emit")
    assert ended.code == 0
    assert ended.err.count("----- after ") == ended.err.count("----- after emit -----") == 1
    assert "load_a(" in ended.err
    everything = heald(*SHAPE, "--print-after-all").err
    for stage in ("legalise", "emit", "dead-store", "warps", "canonicalize", "hoist, warp gemm"):
        assert f"----- after {stage} -----" in everything


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run",), "either a model file or --matmul"),
        (("run", "x.onnx", "--matmul", "4x4x4"), "either a model file or --matmul"),
        (("run", "no-such.onnx"), "no-such.onnx: no such file"),
        (("run", "--matmul", "4x4"), "--matmul must be MxKxN"),
        (("run", "--matmul", "4x4x-4"), "--matmul must be MxKxN"),
        (("run", "--matmul", "0x4x4"), "m of a matrix product must be at least 1, not 0"),
        (("run", "--matmul", "100000x100000x100000"), "must fit 4293918720 bytes of memory"),
        (("run", "--matmul", "100000x1x100000"), "must fit 4293918720 bytes of memory"),
        ((*SHAPE, "--batch", "x"), "--batch must be N"),
        ((*SHAPE, "--zero-a", "128"), "zero point of A (int8) must be -128 to 127, not 128"),
        ((*SHAPE, "--type-a", "int4"), "int4"),
        ((*SHAPE, "--hw", "nothing"), "--hw must be a preset"),
        ((*SHAPE, "--set", "rows=5"), "rows (rows of the GEMM array) must be a power of two, not 5"),
        ((*SHAPE, "--set", "cgra=torus"), "test: cgra: a fabric must be a preset (compact4x4, "),
        ((*SHAPE, "--set", "row=4"), "--set: unknown field 'row'; did you mean 'rows'?"),
        ((*SHAPE, "--set", "rows"), "--set rows needs a value, as in --set rows=16"),
        ((*SHAPE, "--set", "warps=2"), "not 2: store needs one of its own (--set warps=4)"),
        ((*SHAPE, "--sim", "modelsim"), "modelsim"),
        ((*SHAPE, "--seed", "-1"), "seed"),
        ((*SHAPE, "--stall", "-1"), "stall seed must be 0 to"),
        ((*SHAPE, "--latency", "load_a=0"), "latency of load_a must be 1 to 500 cycles, not 0"),
        ((*SHAPE, "--latency", "load_d=3"), "--latency must be PORT=N"),
        ((*SHAPE, "--bandwidth", "load_a=9"), "bandwidth of load_a must be 1 to 8"),
        ((*SHAPE, "--bandwidth", "load_a"), "--bandwidth must be PORT=N"),
        ((*SHAPE, "--base", "80k"), "an address must be a number, as 4096 or 0x1000, not '80k'"),
        ((*SHAPE, "--base", "0x80000100"), "base must be a multiple of 4,096 below 2^32, not 0x80000100"),
        ((*SHAPE, "--inputs", "no-such.npz"), "no-such.npz: no such file"),
        ((*SHAPE, "--outputs", "no/such/dir/x.npz"), "directory no/such/dir does not exist"),
        ((*SHAPE, "--trace", "/"), "must be a file, not a directory"),
        ((*SHAPE, "--frobnicate"), "--frobnicate"),
        ((*SHAPE, "--print-after", "emitt"), "--print-after must be one of legalise, tile, emit, "),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_line(
    heald: Any, quick: Any, arguments: tuple[str, ...], text: str
) -> None:
    ended = heald(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert text in ended.err
    assert ended.err.startswith("heald: ")
    assert ended.err.count("\n") == 1


EPILOGUE = """
def finish(acc, bias, scale: Scalar):
    return min(max(mul_shift_round_even(acc + bias, scale, 16), 0), 127)
"""


def test_an_epilogue_finishes_sums(heald: Any, quick: Any, tmp_path: Path) -> None:
    path, given, out = tmp_path / "e.py", tmp_path / "in.npz", tmp_path / "out.npz"
    path.write_text(EPILOGUE)
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((5, 9), (9, 7)))
    bias = rng.integers(-999, 999, 7).astype(np.int32)
    np.savez(given, A=a, B=b, bias=bias, scale=np.int32(300))
    shape = ("run", "--matmul", "5x9x7", "--hw", "test", "--epilogue", f"{path}:finish")
    ended = heald(*shape, "--inputs", given, "--outputs", out, "--json")
    assert ended.code == 0, ended.err
    wanted = np.clip(np.rint((a.astype(int) @ b + bias) * 300 / 2**16), 0, 127).astype(np.int8)
    with np.load(out) as found:
        assert np.array_equal(found["C"], wanted)
    ended = heald(*shape[:-1], f"{path}:missing")
    assert (ended.code, "no function 'missing'" in ended.err) == (2, True)
    ended = heald("run", save(tmp_path, matmul_integer((4, 5), (5, 6))), "--epilogue", "e.py:finish")
    assert "--epilogue goes with --matmul" in ended.err


def test_shape_options_do_not_go_with_a_model(heald: Any, quick: Any, tmp_path: Path) -> None:
    model = save(tmp_path, matmul_integer((4, 5), (5, 6)))
    ended = heald("run", model, "--zero-a", "3", "--json")
    assert (ended.code, ended.out) == (2, "")
    assert "--zero-a goes with --matmul" in ended.err


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 broken", b"\x93NUMPY"])
def test_broken_input_files_are_refused(heald: Any, quick: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(content)
    ended = heald(*SHAPE, "--inputs", path)
    assert ended.code == 2
    assert "not a readable .npz file" in ended.err


def test_inputs_of_another_shape_or_type_are_refused(heald: Any, quick: Any, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, A=np.zeros((4, 5), np.int8), B=np.zeros((4, 4), np.int8))
    assert "A must be int8 of shape [4, 4], not int8 of [4, 5]" in heald(*SHAPE, "--inputs", path).err
    np.savez(path, A=np.zeros((4, 4), np.float32), B=np.zeros((4, 4), np.int8))
    assert "not float32" in heald(*SHAPE, "--inputs", path).err
    np.savez(path, A=np.zeros((4, 4), np.int8))
    assert "must hold A and B, not A" in heald(*SHAPE, "--inputs", path).err


def test_an_internal_error_is_one_line_and_code_70(heald: Any, quick: Any) -> None:
    def broken(outcome: Outcome) -> Outcome:
        raise RuntimeError("simulation\ncrashed")

    quick(broken)
    ended = heald(*SHAPE)
    assert ended.code == 70
    assert "internal error: RuntimeError: simulation crashed" in ended.err
    assert "Traceback" not in ended.err
    assert "Traceback" in heald("--debug", *SHAPE).err


def test_interrupt_is_code_130(heald: Any, quick: Any) -> None:
    def interrupted(outcome: Outcome) -> Outcome:
        raise KeyboardInterrupt

    quick(interrupted)
    assert heald(*SHAPE).code == 130


@pytest.mark.parametrize("named", [False, True])
def test_an_interrupt_while_libraries_are_imported_is_code_130(named: bool) -> None:
    """Python 3.11 raises `RuntimeError` where an attribute is named while a class is made."""
    program = """
    import heald, sys
    class Interrupt:
        def __set_name__(self, owner, name): raise KeyboardInterrupt
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "click":
                NAMED and type("Class", (), {"field": Interrupt()})
                raise KeyboardInterrupt
    sys.meta_path.insert(0, Finder())
    import heald.cli
    """
    code = textwrap.dedent(program).replace("NAMED", str(named))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "heald: interrupted\n")


def test_files_appear_whole_or_not_at_all(heald: Any, quick: Any, tmp_path: Path) -> None:
    def broken(outcome: Outcome) -> Outcome:
        raise RuntimeError

    quick(broken)
    assert heald(*SHAPE, "--waves", tmp_path / "x.vcd", "--outputs", tmp_path / "x.npz").code == 70
    assert list(tmp_path.iterdir()) == []


def test_files_beside_waves_are_checked_before_the_run(heald: Any, tmp_path: Path) -> None:
    """No simulator is replaced: the run would take minutes."""
    for ending in (".gtkw", ".sucl"):
        (beside := tmp_path / f"x{ending}").mkdir()
        ended = heald(*SHAPE, "--waves", tmp_path / "x.fst")
        assert (ended.code, ended.err) == (
            2,
            f"heald: {beside}: must be a file, not a directory: name one inside it\n",
        )
        beside.rmdir()
        ended = heald(*SHAPE, "--waves", tmp_path / "x.fst", "--trace", beside)
        assert (ended.code, ended.err) == (
            2,
            f"heald: --trace and --waves must be different files, not both {beside}\n",
        )
