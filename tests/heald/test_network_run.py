"""`heald run` of whole models: what it verifies and reports, and how it localises errors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from cosim.backends import simulator
from cosim.job import EventKind, Job, MachineError, Outcome
from cosim.session.machine_program import decoded
from cosim.session.network import compile_model, draw_inputs
from cosim.settings import MemorySettings
from heald.model_run import ModelRun, run_model
from hw.config import MachineConfig, load
from hw.errors import InputError
from hw.isa import Cause
from sw.frontend.network import import_model
from sw.graph import reference
from sw.layout import MEMORY_BYTES, MIDDLE
from tests.heald.network_models import hosted, integers, perceptron, save

TEST = load("test")
RUN = ("--hw", "test", "--sim", "cpp")


@dataclass
class Spoiled:
    """The RTL, whose outcomes are changed."""

    config: MachineConfig
    spoil: Callable[[Job, Outcome], Outcome]
    build_seconds: float = 0.0

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Outcomes of the RTL, spoiled."""
        outcomes = simulator(self.config, "cpp").run(jobs)
        return [self.spoil(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]


def _ran(spoil: Callable[[Job, Outcome], Outcome] = lambda job, outcome: outcome) -> ModelRun:
    network = import_model(perceptron())
    model = compile_model(network, TEST)
    inputs = draw_inputs(network, 0)
    return run_model(model, inputs, MemorySettings.of(TEST), lambda: Spoiled(TEST, spoil))


def test_addresses_have_32_bits() -> None:
    """Tensors lie on both sides of 2^31, where programs' numbers change their sign."""
    network = import_model(perceptron())
    model = compile_model(network, TEST, memory=range(MIDDLE - 3 * 4096, MEMORY_BYTES))
    homes = model.programs[0].homes.values()
    assert min(h.address for h in homes) < MIDDLE < max(h.address for h in homes)
    assert all(h.address + h.size <= MIDDLE or h.address >= MIDDLE for h in homes)
    inputs = draw_inputs(network, 0)
    run = run_model(model, inputs, MemorySettings.of(TEST), lambda: simulator(TEST, "cpp"))
    assert run.correct
    (output,) = run.outputs
    np.testing.assert_array_equal(run.outputs[output], reference.run(network, inputs)[output])


def test_a_model_is_proven_and_told_operator_by_operator(heald: Any, tmp_path: Path) -> None:
    path = save(tmp_path, perceptron())
    ended = heald("run", path, *RUN, "--json")
    assert ended.code == 0, ended.err
    run = json.loads(ended.out)
    assert run["correct"] is True
    assert run["first_divergence"] is run["first_wrong"] is None
    assert run["cycles"] == run["model_cycles"] > run["bound_cycles"] > 0
    assert run["macs"] == 2 * 5 * 9 * 7
    assert run["hw"] == TEST.hash
    assert run["host_operators"] == []
    assert run["checked"]["ok"] is True
    assert run["checked"]["dependences"] > 0
    assert set(run["compile_seconds"]) >= {"tile", "warps", "generate", "check"}
    where = [o["where"] for o in run["operators"]]
    assert where[0] == where[-1] == "edge"
    machine = [o for o in run["operators"] if o["where"] == "machine"]
    assert [n for o in machine for n in o["nodes"]] == ["up", "down", "sum", "requantise"]
    assert all(o["correct"] for o in machine)
    assert sum(o["macs"] for o in machine) == run["macs"]
    # Shares are from completion to completion, so that they add up to the last one.
    assert sum(o["cycles"] for o in machine) == machine[-1]["end"] <= run["cycles"]
    assert machine[1]["start"] < machine[0]["end"]
    for o in machine:
        assert o["bound_cycles"] == max(o["bounds"].values()) <= o["end"] - o["start"]
        assert all(k["ii"] >= k["mii"] >= 1 and k["verified"] for k in o["ii"])
    assert len(run["ii"]) == 2


def test_the_table_tells_operators_and_four_checks(heald: Any, tmp_path: Path) -> None:
    ended = heald("run", save(tmp_path, perceptron()), *RUN)
    assert ended.code == 0, ended.err
    assert ended.out.count("✓") == 4
    assert ended.out.count(" edge ") == 2
    assert "= reference" in ended.out
    assert "all 2 bitstreams decode to their loops" in ended.out


def test_inputs_and_outputs_go_by_the_models_names(heald: Any, tmp_path: Path) -> None:
    path = save(tmp_path, perceptron())
    x = np.linspace(-6, 6, 45, dtype=np.float32).reshape(5, 9)
    np.savez(tmp_path / "in.npz", x=x)
    files = ("--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert heald("run", path, *RUN, *files).code == 0
    found = np.load(tmp_path / "out.npz")
    assert found.files == ["y"]
    assert found["y"].dtype == np.float32
    assert np.array_equal(found["y"], reference.run(import_model(path), {"x": x})["y"])


def test_files_for_people_hold_the_run(heald: Any, tmp_path: Path) -> None:
    page, trace, waves = tmp_path / "r.html", tmp_path / "t.json", tmp_path / "w.vcd"
    path = save(tmp_path, integers("Max"))
    ended = heald("run", path, *RUN, "--report", page, "--trace", trace)
    assert ended.code == 0, ended.err
    assert "only" in page.read_text()
    assert json.loads(trace.read_text())["traceEvents"]
    ended = heald("run", save(tmp_path, hosted()), *RUN, "--allow-host", "--waves", waves)
    assert ended.code == 2
    assert "--waves must be of one program, this model has 2" in ended.err


def test_the_host_works_between_programs(heald: Any, tmp_path: Path) -> None:
    path = save(tmp_path, hosted())
    refused = heald("run", path, *RUN)
    assert (refused.code, refused.out) == (2, "")
    ended = heald("run", path, *RUN, "--allow-host", "--json")
    assert ended.code == 0, ended.err
    run = json.loads(ended.out)
    assert "sine" in run["host_operators"]
    assert len(run["programs"]) == 2
    assert run["cycles"] == sum(p["cycles"] for p in run["programs"])
    last = run["operators"][-1]
    assert (last["name"], last["program"], last["correct"]) == ("max", 1, True)
    assert last["start"] >= run["programs"][0]["cycles"]
    assert "operators ran on the host: " in heald("run", path, *RUN, "--allow-host").out


def test_the_first_wrong_operator_is_named() -> None:
    def wrong(job: Job, outcome: Outcome) -> Outcome:
        for region in outcome.outputs:
            region[0] ^= 1
        return outcome

    report = _ran(wrong)
    assert not report.correct
    assert not report.verified
    assert report.first_wrong is not None
    name, text = report.first_wrong
    assert name == next(o.name for o in report.operators if o.where == "machine")
    assert "of 35 elements differ, first [0, 0]" in text
    assert [o.same for o in report.operators if o.where == "machine"] == [False, False]


def test_a_wrong_output_alone_is_found() -> None:
    def wrong(job: Job, outcome: Outcome) -> Outcome:
        outcome.outputs[-1][3] ^= 64
        return outcome

    report = _ran(wrong)
    assert report.wrong_outputs == ["y"]
    assert report.first_wrong is not None
    assert report.first_wrong[0] == report.operators[2].name


def test_a_divergence_names_its_operator() -> None:
    def late(job: Job, outcome: Outcome) -> Outcome:
        last = max(i for i, e in enumerate(outcome.events) if e.kind is EventKind.COMPLETE)
        event = outcome.events[last]
        changed = [*outcome.events]
        changed[last] = event._replace(cycle=event.cycle + 1)
        return replace(outcome, events=changed)

    report = _ran(late)
    assert report.correct
    assert not report.verified
    first = report.as_dict()["first_divergence"]
    assert first["operator"] == [o.name for o in report.operators if o.where == "machine"][-1]


def test_an_error_of_the_machine_names_its_operator() -> None:
    def stopped(job: Job, outcome: Outcome) -> Outcome:
        event = next(e for e in outcome.events if e.warp == 3 and e.kind is EventKind.COMPLETE)
        return replace(outcome, error=MachineError(Cause.WINDOW, event.warp, event.pc))

    report = _ran(stopped)
    assert report.first_wrong is not None
    assert "the machine stopped: window, warp 3" in report.first_wrong[1]
    assert report.first_wrong[0] in {o.name for o in report.operators}
    assert not report.verified


def test_a_run_that_breaks_off_has_a_page(tmp_path: Path) -> None:
    def halved(job: Job, outcome: Outcome) -> Outcome:
        half = outcome.events[: len(outcome.events) // 2]
        end = half[-1].cycle + 1
        return replace(outcome, events=half, error=MachineError(Cause.BUS, 1, 2), cycles=end)

    report = _ran(halved)
    assert 0 in [o.cycles for o in report.operators]
    report.report(tmp_path / "r.html")
    assert "bus, warp 1" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_configuration_that_means_another_loop_is_no_proof() -> None:
    report = _ran()
    (run,) = report.results
    kernel = run.program.kernels[0]
    assert decoded(kernel.graph, kernel.words, kernel.arrays, kernel.scalars, kernel.places, TEST) == ()
    words = [*kernel.words]
    words[-1] ^= 1 << 9
    differences = decoded(kernel.graph, words, kernel.arrays, kernel.scalars, kernel.places, TEST)
    assert differences
    spoiled = dataclasses.replace(kernel, differences=differences)
    run.program = dataclasses.replace(run.program, kernels=(spoiled, *run.program.kernels[1:]))
    assert report.correct
    assert not report.verified


def test_bounds_count_each_element_once_and_launches_by_the_least_ii() -> None:
    network = import_model(integers("Add", TensorProto.INT32, (40, 50)))
    (program,) = compile_model(network, TEST).programs
    (facts,) = program.operators
    (kernel,) = program.kernels
    assert facts.macs == 0
    assert facts.moved["store"] == 4 * 40 * 50
    assert facts.moved["load_c"] == 2 * 4 * 40 * 50 + 4 * len(kernel.words)
    assert facts.launches > 1
    assert facts.grid * kernel.configured.kernel.per_iteration >= 40 * 50 * kernel.bound.mii  # type: ignore[union-attr]
    bounds = facts.bounds(TEST, {"load_c": 1})
    assert bounds["load_c"] == facts.moved["load_c"]
    assert bounds["store"] == -(-facts.moved["store"] // TEST.store_bytes)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: integers("Pow"), "node only (Pow)"),
        (lambda: integers("Add", TensorProto.INT32, ("n", 4)), "give those that are open: --dim n=1"),
        (lambda: integers("Add", TensorProto.INT32, (40000, 40000)), "bytes of memory"),
    ],
)
def test_models_that_cannot_be_compiled_are_refused(
    heald: Any, tmp_path: Path, make: Callable[[], Any], text: str
) -> None:
    ended = heald("run", save(tmp_path, make()), *RUN)
    assert (ended.code, ended.out) == (2, "")
    assert text in ended.err
    assert "Traceback" not in ended.err


def test_broken_models_and_wrong_inputs_are_refused(heald: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(perceptron().SerializeToString()[:300])
    assert "not a valid ONNX model" in heald("run", broken, *RUN).err
    path, given = save(tmp_path, perceptron()), tmp_path / "in.npz"
    np.savez(given, x=np.zeros((5, 9)))
    ended = heald("run", path, *RUN, "--inputs", given)
    assert ended.code == 2
    assert f"{given}: input 'x' must be float32 of shape [5, 9], not float64 of [5, 9]" in ended.err
    np.savez(given, z=np.zeros((5, 9), np.float32))
    assert "input 'z' is not one of the model's inputs (x)" in heald("run", path, *RUN, "--inputs", given).err
    np.savez(given, x=np.array([None]))
    ended = heald("run", path, *RUN, "--inputs", given)
    assert "array 'x' must hold numbers" in ended.err
    assert "pickle" not in ended.err
    no_grid = heald("run", path, *RUN, "--set", "cgra=none")
    assert (no_grid.code, "must have a CGRA" in no_grid.err) == (2, True)
    assert "--refine goes with" in heald("run", path, *RUN, "--refine", "2").err
    assert "--allow-host goes with a model" in heald("run", "--matmul", "4x4x4", "--allow-host").err


def test_inputs_are_checked_before_anything_runs() -> None:
    network = import_model(perceptron())
    with pytest.raises(InputError, match="'x' is needed"):
        draw_inputs(network, 0, {})
    first, second = draw_inputs(network, 1), draw_inputs(network, 1)
    assert np.array_equal(first["x"], second["x"])
    assert not np.array_equal(first["x"], draw_inputs(network, 2)["x"])
