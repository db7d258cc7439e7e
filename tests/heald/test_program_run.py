"""`heald run PROGRAM.py`: keys, files, errors; and random programs of several warps on the RTL."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.job import Outcome
from cosim.session.driver import simulate
from cosim.session.tile_program import prepare, synchronised
from cosim.session.warps import converted
from cosim.settings import MemorySettings
from cosim.texts import job, run_jobs
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.ir.load import load_program
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.walk import instructions
from sw.warps.channels import Channels
from sw.warps.reduce import Reduction
from tests.budget import cases
from tests.heald.test_run import KEYS
from tests.sw.generic_programs import drawn

TEST = load("test")
ROOT = Path(__file__).resolve().parents[2]

#: Keys of models alone: a program has no outputs beside its buffers, and is compiled in one step.
OF_MODELS = {"first_wrong", "programs", "compile_seconds", "outputs", "ran_on_machine", "compared"}
SCALE = """
@program
def scale(n: int[1, 9]):
    A: Buffer[8, 12, int8, memory]
    B: Buffer[12, 8, int8, memory]
    C: Buffer[8, 8, int32, memory]
    a: Buffer[8, 12, int8, A]
    b: Buffer[12, 8, int8, B]
    c: Buffer[8, 8, int32, acc]
    load(memory=A[0:n, 0:12], target=a[0:n, 0:12], warp=0)
    load(memory=B, target=b, warp=0)
    gemm(a=a[0:n, 0:12], b=b, c=c[0:n, 0:8], warp=0)
    store(source=c[0:n, 0:8], memory=C[0:n, 0:8], warp=0)
"""
COPY = """
@program
def copy():
    x: Buffer[20]
    for i in range(4):
        P = produce(write=x[5 * i : 5 * i + 5], warp=0)
        C = combine(read=x[5 * i : 5 * i + 5], write=x[5 * i : 5 * i + 2], warp=0)
    E = consume(read=x, warp=0)
"""

RACE = """
@program
def race():
    x: Buffer[64]
    P = produce(write=x, warp=0)
    C = consume(read=x, warp=1)
    signal(1, warp=0)
"""
ORDERED = RACE.replace("    C =", "    wait(1, warp=1)\n    C =")


def written(folder: Path, text: str) -> Path:
    """A program in a file."""
    path = folder / "program.py"
    path.write_text(text)
    return path


def operands(folder: Path, **changes: Any) -> tuple[Path, np.ndarray, np.ndarray]:
    """Inputs of SCALE in a file."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((8, 12), (12, 8)))
    path = folder / "in.npz"
    np.savez(path, **({"A": a, "B": b, "n": np.int64(5)} | changes))
    return path, a, b


def test_a_program_gives_the_json_of_a_model(heald: Any, quick: Any, tmp_path: Path) -> None:
    inputs, a, b = operands(tmp_path)
    outputs = tmp_path / "out.npz"
    ended = heald(
        *("run", written(tmp_path, SCALE), "--hw", "test", "--json"),
        *("--inputs", inputs, "--outputs", outputs, "--stall", 3, "--latency", "store=9"),
    )
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert set(told) == KEYS - OF_MODELS
    assert told["correct"]
    assert told["first_divergence"] is None
    assert told["macs"] == 5 * 12 * 8
    (entry,) = told["operators"]
    assert entry["name"] == "scale"
    assert entry["op"] == "program"
    assert entry["output"] == "C"
    assert entry["bound"] == "gemm"
    assert entry["programs"]["0"].endswith("halt\n")
    assert entry["checked"]["ok"]
    with np.load(outputs) as found:
        assert list(found) == ["C"]
        assert np.array_equal(found["C"][:5], a[:5].astype(np.int32) @ b.astype(np.int32))


def test_a_program_without_inputs_gets_random_ones_by_seed(heald: Any, quick: Any, tmp_path: Path) -> None:
    path = written(tmp_path, COPY)
    found = []
    for seed in (1, 1, 2):
        out = tmp_path / "out.npz"
        ended = heald("run", path, "--hw", "test", "--seed", seed, "--outputs", out)
        assert ended.code == 0, ended.err
        assert "every result equals the sequential execution's" in ended.out
        with np.load(out) as arrays:
            found.append({name: arrays[name].tolist() for name in arrays})
    assert set(found[0]) == {"x", "C_log", "E_log"}
    assert found[0] == found[1]
    assert found[0]["E_log"] != found[2]["E_log"]
    assert np.array(found[0]["x"]).shape == (20,)


def test_a_program_of_which_nothing_happens_runs(heald: Any, quick: Any, tmp_path: Path) -> None:
    text = "@program\ndef p():\n    a: Buffer[3]\n    F = f(read=a, when=1 > 2)\n"
    ended = heald("run", written(tmp_path, text), "--hw", "test", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["operators"][0]["programs"] == {"0": "halt\n"}


def test_every_step_can_be_printed(heald: Any, quick: Any, tmp_path: Path) -> None:
    ended = heald("run", written(tmp_path, COPY), "--hw", "test", "--print-after-all")
    assert ended.code == 0
    assert "# ----- after bind -----" in ended.err
    assert "P = load_c(" in ended.err


def wrong(outcome: Outcome) -> Outcome:
    """A bit of what comes back is not right."""
    return replace(outcome, outputs=[output ^ 1 for output in outcome.outputs])


def late(outcome: Outcome) -> Outcome:
    """The last event comes a cycle later."""
    last = outcome.events[-1]
    return replace(outcome, events=[*outcome.events[:-1], last._replace(cycle=last.cycle + 1)])


@pytest.mark.parametrize(
    ("spoil", "says"), [(wrong, "wrong results: copy"), (late, "copy: cycle"), (None, "bit for bit")]
)
def test_what_differs_is_told_and_exits_with_1(
    heald: Any, quick: Any, tmp_path: Path, spoil: Any, says: str
) -> None:
    if spoil is not None:
        quick(spoil)
    ended = heald("run", written(tmp_path, COPY), "--hw", "test")
    assert ended.code == (0 if spoil is None else 1)
    assert says in ended.out


@pytest.mark.parametrize(
    ("text", "inputs", "message"),
    [
        (SCALE, {}, "program.py:3:11: found no value of the parameter n, expected one among the inputs"),
        (SCALE, {"n": 9}, "program.py:3:11: found n = 9, expected a value of int[1,9]"),
        (SCALE, {"n": 1.5}, "n must be a whole number, not float64 of []"),
        (SCALE, {"D": 1}, "D must be a parameter or a buffer in memory of the program (n, A, B, C)"),
        (SCALE, {"n": 3, "A": np.zeros(3)}, "A must be int8 of shape [8, 12], not float64 of [3]"),
        (SCALE.replace("Buffer[8, 8, int32, acc]", "Buffer[9, 400, int32, acc]"), {"n": 3}, "900 words"),
        (SCALE.replace(", warp=0", ", warp=9"), {"n": 3}, "found warp 9 of load0, expected a warp of 0 to 5"),
        (
            COPY.replace("x[5 * i : 5 * i + 5], warp", "ANY, warp"),
            {},
            "found write=ANY of P, expected a region",
        ),
        (COPY.replace("range(4)", "range(n)"), {}, "program.py:5:20: found unknown name 'n'"),
        (
            ORDERED.replace("signal(1", "signal(2"),
            {},
            "race: the warps deadlock: warp 1: waits in line",
        ),
        (SCALE.replace("    load(memory=B, target=b, warp=0)\n", ""), {"n": 3}, "a read of buffer B where"),
    ],
)
def test_what_cannot_run_is_refused_with_2(
    heald: Any, quick: Any, tmp_path: Path, text: str, inputs: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "in.npz", **inputs)
    path = written(tmp_path, text)
    ended = heald("run", path, "--hw", "test", "--inputs", tmp_path / "in.npz")
    assert ended.code == 2
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--set", "imem_words=32"), "imem_words must be at least"),
        (("--set", "loop_depth=1"), "loop_depth must be at least 3, not 1"),
        (("--refine", 3), "--refine goes with products and convolutions"),
        (("--batch", "3"), "--batch goes with --matmul"),
    ],
)
def test_what_the_machine_lacks_is_refused_with_2(
    heald: Any, quick: Any, tmp_path: Path, changes: tuple[Any, ...], message: str
) -> None:
    nest = """
@program
def nest():
    x: Buffer[40]
    for i in range(3):
        for j in range(3):
            for k in range(3):
                P = produce(write=x[i + j * k : i + j * k + 4], when=i != j, warp=0)
                C = consume(read=x[9 * i + 3 * j + k], when=j > k, warp=0)
"""
    ended = heald("run", written(tmp_path, nest), "--hw", "test", *changes)
    assert ended.code == 2
    assert message in ended.err


@pytest.mark.drawn
def test_random_programs_of_several_warps_have_their_sequential_meaning_on_the_rtl() -> None:
    settings = MemorySettings.of(TEST, stall_seed=11)
    prepared = []
    for seed in range(100, 100 + cases(8, 32)):
        program, values = drawn(seed, warps=1 + seed % 4, instructions=7)
        arrays = {name: np.array(value) for name, value in values.items()}
        prepared.append(prepare(program, TEST, settings, arrays, seed=seed))
    for result in simulate(prepared, simulator(TEST, "cpp")):
        assert result.correct, result.compiled.program
        assert result.divergence is None, str(result.divergence)


def test_a_missing_wait_is_seen_on_the_rtl() -> None:
    right, loose = (prepare(parse_program(t), TEST, MemorySettings.of(TEST)) for t in (ORDERED, RACE))
    found = simulate([right, loose, right], simulator(TEST, "cpp"))
    assert [r.correct for r in found] == [True, False, True]
    assert [r.checked.ok for r in found] == [True, False, True]
    assert all(r.divergence is None for r in found)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (ORDERED, 0, "the warps enforce the 1 dependence between them"),
        (RACE, 1, "race: the warps are wrong: "),
    ],
)
def test_waits_by_hand_are_checked(
    heald: Any, quick: Any, tmp_path: Path, text: str, code: int, says: str
) -> None:
    ended = heald("run", written(tmp_path, text), "--hw", "test")
    assert ended.code == code
    assert says in ended.out


@pytest.mark.parametrize(
    ("reduction", "channels"),
    [(Reduction.OBTAINED, Channels.UNIQUE), (Reduction.FULL, Channels.FIFO), (None, None)],
)
def test_the_worked_example_has_its_sequential_meaning_on_the_rtl(
    reduction: Reduction | None, channels: Channels | None
) -> None:
    def unrolled(program: Program, config: MachineConfig) -> Program:
        assert reduction is not None
        assert channels is not None
        return converted(program, config, reduction, channels, unroll=True).program

    source = load_program(ROOT / "examples/07_tile_program_on_rtl/phases.py")
    way = synchronised if reduction is None else unrolled
    arrays = {"last": np.array(50)}
    prepared = prepare(source, TEST, MemorySettings.of(TEST), arrays, synchronise=way)
    names = [i.name for i in instructions(prepared.compiled.program)]
    if reduction is not None:
        # One wait for each of the 7 data and of the resource edges that remain.
        assert names.count("wait") == (12 if reduction is Reduction.OBTAINED else 9)
    (result,) = simulate([prepared], simulator(TEST, "cpp"))
    assert result.correct
    assert result.checked.ok
    assert result.divergence is None


def test_texts_of_warps_run_as_they_are() -> None:
    texts = {0: "signal 0\nhalt\n", 1: "wait 0\nli r1, 3\nloop r1, L1\nnop\nL1:\nhalt\n"}
    jobs = [job(TEST, texts), job(TEST, {1: texts[1]}, watchdog=100)]
    done, stuck = run_jobs(TEST, jobs)
    assert done.error is None
    assert stuck.error is not None
    assert run_jobs(TEST, [job(TEST, texts)])[0].cycles == done.cycles
    with pytest.raises(InputError, match="warp 1:1: loop: there is no label L1"):
        job(TEST, {1: "loop r1, L1"})
