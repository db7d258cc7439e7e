"""`heald cgra run`: keys, files, errors; kernels in any order that their warps permit, and on the RTL."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.job import Outcome
from cosim.session.arguments import arguments
from cosim.session.driver import simulate
from cosim.session.kernel import base_machine, machine, prepare_kernel
from hw.config import load
from hw.errors import InputError
from hw.fabric import load as load_fabric
from sw.dfg.interpret import run as meaning
from sw.dfg.python import from_function, parse_kernel
from sw.ir.parse import parse_program
from tests.budget import sweep
from tests.fuzz.grid_kernels import equals_numpy, prepared
from tests.heald.conftest import Quick
from tests.machines import TEST
from tests.sw.cgra.test_launch_plan import NESTS
from tests.sw.dfg.reference import CASES, KERNELS
from tests.sw.functional import Machine

KEYS = {
    "correct",
    "cycles",
    "model_cycles",
    "first_divergence",
    "ii",
    "mii",
    "difference",
    "returned",
    "launches",
    "events",
    "stores",
    "counters",
    "fabric",
    "scratch_bytes",
    "out_bytes",
    "map_seconds",
    "model_seconds",
    "build_seconds",
    "sim_seconds",
    "hw",
    "program",
    "programs",
    "checked",
    "inputs",
}
MESH = load_fabric("mesh4x4")
SMALL = load_fabric("mesh4x4", (2, 2))


def test_the_command_tells_what_it_found(heald: Any, quick: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-99, 99, 20) for _ in range(2))
    np.savez(tmp_path / "in.npz", x=x, y=y, alpha=-7)
    ended = heald(
        "cgra",
        "run",
        f"{KERNELS}:saxpy",
        "--iterations",
        17,
        "--inputs",
        tmp_path / "in.npz",
        "--outputs",
        tmp_path / "out.npz",
        "--trace",
        tmp_path / "trace.json",
        "--json",
    )
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert set(told) == KEYS
    assert told["correct"]
    assert told["first_divergence"] is None
    assert told["cycles"] == told["model_cycles"]
    # Three accesses of an iteration, two memory ports.
    assert told["ii"] == told["mii"] == 2
    assert [launch["name"] for launch in told["launches"]] == ["saxpy.1", "copy"]
    with np.load(tmp_path / "out.npz") as found:
        assert found["x"].tolist() == x.tolist()
        # What no iteration writes stays.
        assert found["y"].tolist() == [*(-7 * x + y)[:17], *y[17:]]
        assert found["returned"].tolist() == []
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > told["events"]


def test_a_wrong_result_is_told(heald: Any, quick: Any) -> None:
    def spoil(outcome: Outcome) -> Outcome:
        return replace(outcome, outputs=[np.bitwise_xor(o, 1) for o in outcome.outputs])

    quick(spoil)
    ended = heald("cgra", "run", f"{KERNELS}:fir", "--iterations", 3, "--json")
    assert ended.code == 1
    told = json.loads(ended.out)
    assert not told["correct"]
    assert re.fullmatch(r"x\[0\]: expected -?\d+, got -?\d+", told["difference"])
    assert heald("cgra", "run", f"{KERNELS}:fir", "--iterations", 3).code == 1


@pytest.mark.parametrize(
    ("options", "fabric"),
    [
        ((), "compact4x4"),
        (("--set", "cgra=none"), "mesh4x4"),
        (("--set", "cgra=none", "--grid", "2x3"), "mesh2x3"),
        (("--set", "cgra=mesh2x2"), "mesh2x2"),
        (("--set", "cgra=mesh2x2", "--fabric", "torus3x3"), "torus3x3"),
    ],
)
def test_the_grid_is_the_one_that_is_named(
    options: tuple[str, ...], fabric: str, heald: Any, quick: Any
) -> None:
    ended = heald("cgra", "run", f"{KERNELS}:prefix_sum", "--iterations", 3, "--json", *options)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["fabric"]["name"] == fabric


def test_what_is_drawn_is_told(heald: Any, quick: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones(6, np.int64))
    given = ("--iterations", 5, "--seed", 3, "--inputs", tmp_path / "in.npz", "--json")
    ended = heald("cgra", "run", f"{KERNELS}:saxpy", *given)
    assert ended.code == 0, ended.err
    told = re.search(r"^drawn from seed 3: alpha = (\d+), y\[5\] int32$", ended.err, re.MULTILINE)
    assert told, ended.err
    assert 1 <= int(told[1]) <= 16
    assert json.loads(ended.out)["inputs"] == {
        "x": {"shape": [6], "type": "int32", "from": "given"},
        "y": {"shape": [5], "type": "int32", "from": "drawn"},
        "alpha": {"shape": [], "type": "int32", "value": int(told[1]), "from": "drawn"},
        "n": {"shape": [], "type": "int32", "value": 5, "from": "given"},
    }
    np.savez(tmp_path / "in.npz", x=np.ones(6, np.int64), y=np.ones(6, np.int64), alpha=2)
    assert "drawn" not in heald("cgra", "run", f"{KERNELS}:saxpy", *given).err


def test_a_table_is_printed(heald: Any, quick: Any) -> None:
    ended = heald("cgra", "run", f"{KERNELS}:argmax", "--iterations", 9, "--seed", 4)
    assert ended.code == 0, ended.err
    assert "all" in ended.out
    assert "argmax.1" in ended.out
    assert "equals the function's; returned [" in ended.out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["nothing"], "a kernel must be FILE.py:FUNCTION, not 'nothing'"),
        ([f"{KERNELS}:missing"], "no function 'missing'"),
        ([f"{KERNELS}:fir", "--grid", "4"], "--grid must be ROWSxCOLS"),
        ([f"{KERNELS}:fir", "--fabric", "none"], "none"),
        ([f"{KERNELS}:fir", "--inputs", "in.npz"], "'z' must be a parameter (x, y, c0, c1, c2, c3, n)"),
        ([f"{KERNELS}:fir", "--inputs", "flat.npz"], "x must be an array of whole numbers of one dimension"),
        ([f"{KERNELS}:fir", "--iterations", "9", "--inputs", "short.npz"], "x[5]: the index must be 0 to 4"),
        (
            [f"{KERNELS}:fir", "--iterations", "300000"],
            "with random arrays (x, y, at most 262,144 elements each): graph 'fir.1', node 5, "
            "iteration 262144: load of x[262144]",
        ),
        ([f"{KERNELS}:fir", "--iterations", "9", "--set", "rows=3"], "must be a power of two"),
        (
            [f"{KERNELS}:fir", "--set", "cgra=mesh2x2", "--grid", "3x3"],
            "--grid needs --fabric: the machine already has the CGRA 'mesh2x2'",
        ),
    ],
)
def test_bad_input_is_one_message(
    given: list[str], message: str, heald: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("in.npz", z=1)
    np.savez("flat.npz", x=np.ones((2, 2), np.int32))
    np.savez("short.npz", x=np.ones(5, np.int32))
    ended = heald("cgra", "run", *given)
    assert ended.code == 2
    assert ended.err.count("\nheald: ") + ended.err.startswith("heald: ") == 1
    assert message in ended.err, ended.err


def test_more_arrays_than_a_configuration_has_are_refused() -> None:
    names = [f"a{i}" for i in range(17)]
    text = f"def f(n, y, {', '.join(names)}):\n    for i in range(n):\n        y[i] = "
    kernel = parse_kernel(text + " + ".join(f"{a}[i]" for a in names) + "\n", "f")
    with pytest.raises(InputError, match="arrays must be at most 16, not 18: a0, a1"):
        prepare_kernel(kernel, arguments(kernel, {}, 3), machine(base_machine(), MESH))


def test_a_recurrence_that_is_longer_than_the_contexts_is_refused() -> None:
    steps = "".join(f"        s = x[s & {7 - k % 2}]\n" for k in range(12))
    kernel = parse_kernel(f"def f(n, x):\n    s = 0\n    for i in range(n):\n{steps}    return s\n", "f")
    with pytest.raises(
        InputError, match=r"contexts must be at least 36, not 32: .* because of the recurrence"
    ):
        prepare_kernel(kernel, arguments(kernel, {}, 3), machine(base_machine(), MESH))


def test_arrays_that_no_buffer_holds_are_refused() -> None:
    kernel = from_function(KERNELS, "prefix_sum")
    given = arguments(kernel, {"x": np.zeros(1 << 18, np.int32), "y": np.zeros(3, np.int32)}, 3)
    with pytest.raises(
        InputError, match=r"scratch_bytes \(scratchpad .*\) must be at most 1048576 bytes, not "
    ):
        prepare_kernel(kernel, given, machine(base_machine(), MESH))


def test_a_machine_without_grid_is_refused() -> None:
    kernel = from_function(KERNELS, "prefix_sum")
    with pytest.raises(InputError, match="a kernel needs a machine with a CGRA, 'test' has none"):
        prepare_kernel(kernel, arguments(kernel, {}, 3), lambda scratch, out: load("test").replace(cgra=None))


def test_what_is_not_given_is_random_and_as_large_as_needed() -> None:
    kernel = from_function(KERNELS, "convolution_3x3")
    given = arguments(kernel, {"width": np.array(10)}, 8, seed=2)
    assert {name: len(array) for name, array in given.arrays.items()} == {"x": 30, "w": 9, "y": 8}
    again = arguments(kernel, {"width": np.array(10)}, 8, seed=2)
    assert all(np.array_equal(given.arrays[name], again.arrays[name]) for name in given.arrays)


BYTES = """
def clamp(n, x, y):
    for i in range(n):
        y[i] = min(max(x[i] * 3, -128), 127)
        x[i] = y[i] + 300
"""


def test_arrays_of_bytes_keep_the_lowest_byte() -> None:
    kernel = parse_kernel(BYTES, "clamp")
    x = np.arange(-100, 100, dtype=np.int8)
    y = np.zeros(250, np.uint8)
    given = arguments(kernel, {"x": x, "y": y}, 200)
    expected = meaning(kernel, given.arrays, given.scalars)
    wide = np.clip(x.astype(int) * 3, -128, 127)
    assert expected.arrays["y"][:200].tolist() == (wide % 256).tolist()
    made = prepare_kernel(kernel, given, machine(base_machine(), SMALL))
    (result,) = simulate([made], Quick(made.prediction.config))
    assert result.difference is None


NAMES = """
def program(out, grid, words, results, configuration0, entry, scratch):
    entry = 1
    for memory in range(out):
        entry = 0
        for A in range(scratch):
            entry = entry + grid[A + memory] * words[A]
        results[memory] = entry
        configuration0[memory] = memory
    return entry, scratch, out
"""


def test_names_of_the_kernel_may_be_those_of_the_tile_program() -> None:
    kernel = parse_kernel(NAMES, "program")
    made = prepare_kernel(
        kernel, arguments(kernel, {"scratch": np.array(3)}, 5), machine(base_machine(), MESH)
    )
    text = str(made.program.program)
    assert parse_program(text) == made.program.program
    (result,) = simulate([made], Quick(made.prediction.config))
    assert result.verified


@pytest.mark.parametrize("name", sweep(CASES, kept=[name for name in CASES if name != "gelu"]))
def test_any_order_that_the_warps_permit_gives_numpys_result(name: str) -> None:
    make = machine(base_machine(), MESH)(0, 0)
    for count in (0, 1, 2, 17):
        made = prepared(name, count, make, 1)
        outcomes = []
        for seed in range(3):
            memory = made.prepared.memory.copy()
            Machine(make, made.prepared.prediction.job.programs, memory, seed).run()
            outcomes.append(np.array_equal(memory, made.prepared.expected.memory))
        assert all(outcomes)
        (result,) = simulate([made], Quick(make))
        assert equals_numpy(name, count, result)
        assert result.verified


@pytest.mark.slow
@pytest.mark.parametrize(("name", "counts"), [("gelu", (1, 17)), ("softmax", (1, 17, 200))])
def test_what_takes_long_to_map_equals_numpy_on_the_rtl(name: str, counts: tuple[int, ...]) -> None:
    """Each takes longer than the other kernels together."""
    results = simulate([prepared(name, count, TEST, 1) for count in counts], simulator(TEST, "cpp"))
    for count, result in zip(counts, results, strict=True):
        assert result.verified
        assert equals_numpy(name, count, result)


def test_kernels_on_the_rtl_equal_numpy_and_the_model() -> None:
    # Mapping softmax takes longer than mapping the others together: a command of example 8 runs it.
    runs = [(name, count) for name in CASES for count in (1, 17) if name not in ("gelu", "softmax")]
    runs += [("matrix_vector", 0), ("softmax", 0), ("histogram", 1000)]
    ready = [prepared(name, count, TEST, 1) for name, count in runs]
    unrolled = [(name, 17) for name in ("argmax", "fir", "iir")]
    ready += [prepared(name, count, TEST, 3) for name, count in unrolled]
    bytes_ = parse_kernel(BYTES, "clamp")
    given = arguments(bytes_, {"x": np.arange(-100, 100, dtype=np.int8), "y": np.zeros(250, np.uint8)}, 200)
    ready.append(prepare_kernel(bytes_, given, lambda scratch, out: TEST))
    for text in NESTS.values():
        nest = parse_kernel(text, "f")
        scalars = {name: np.array(5) for name in nest.scalars}
        ready.append(prepare_kernel(nest, arguments(nest, scalars, 4), lambda scratch, out: TEST))
    results = simulate(ready, simulator(TEST, "verilator"))
    runs += unrolled
    assert all(result.verified for result in results[len(runs) :])
    for (name, count), result in zip(runs, results, strict=False):
        assert result.difference is None, name
        assert result.divergence is None, name
        assert equals_numpy(name, count, result), name
        assert result.observed.cycles == result.predicted.cycles
        assert bool(result.observed.stored) == (count > 0 or name == "softmax")
