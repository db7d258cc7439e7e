"""Plans for machines: predictions against the cycle model, refinement, and reports of plans."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.prediction import MACHINES, bert, draw, resnet
from cosim.jobs import exact_cycles
from cosim.refine import refine
from cosim.session.tiling import plan_for_machine
from cosim.settings import MemorySettings
from heald.testing.problems import bounds, compile_problem
from hw.config import load
from sw.convolution import Convolution
from sw.graph.problems import network_of
from sw.patches import Axis
from sw.problem import Product
from tests.budget import cases, sweep
from tests.heald.conftest import Ended

Run = Callable[..., Ended]


@pytest.mark.drawn
@pytest.mark.parametrize("name", sweep(MACHINES, kept=("lean",)))
def test_predictions_are_right_without_running_anything(name: str) -> None:
    config = load(name)
    settings = MemorySettings.of(config)
    errors = []
    for i in range(cases(8, 24)):
        problem = draw(config, f"{name}/{i}")
        plan = plan_for_machine(problem, config, settings)
        exact = exact_cycles(compile_problem(problem, config, blocking=plan.blocking), settings)
        errors.append(abs(exact / plan.cycles - 1))
    assert statistics.median(errors) < 0.02
    assert max(errors) < 0.10


@pytest.mark.drawn
def test_predictions_hold_for_convolutions_and_slow_memories() -> None:
    config = load("default")
    errors = []
    for settings in (
        MemorySettings.of(config),
        MemorySettings.of(config, bandwidth={"load_b": 3, "store": 7}, latency={"load_a": 90}),
    ):
        for problem in resnet()[:: cases(6, 3)]:
            plan = plan_for_machine(problem, config, settings)
            rate = {port: p.bandwidth for port, p in settings.ports.items()}
            kernel = compile_problem(problem, config, bandwidth=rate, blocking=plan.blocking)
            errors.append(abs(exact_cycles(kernel, settings) / plan.cycles - 1))
    assert statistics.median(errors) < 0.02
    assert max(errors) < 0.10


@pytest.mark.slow
def test_every_product_of_bert_large_comes_near_its_bound() -> None:
    config = load("default")
    settings = MemorySettings.of(config)
    for problem in bert():
        kernel = compile_problem(problem, config)
        assert max(bounds(problem, kernel).values()) / exact_cycles(kernel, settings) > 0.97, problem


def test_refinement_takes_the_quickest_candidate_by_the_cycle_model() -> None:
    config = load("lean")
    settings = MemorySettings.of(config)
    problem = Product(53, 49, 231)
    found = refine(network_of(problem), config, settings, 8)
    assert [c.cycles for c in found] == sorted(c.cycles for c in found)
    assert len({c.blocking for c in found}) == 8
    assert found[0].cycles <= exact_cycles(compile_problem(problem, config), settings)
    for c in found:
        again = compile_problem(problem, config, blocking=c.blocking)
        assert exact_cycles(again, settings) == c.cycles


def test_a_refined_plan_is_what_a_refined_run_runs(heald: Run, quick: Callable[..., None]) -> None:
    shape = ("--matmul", "20x33x50", "--hw", "test")
    plan = json.loads(heald("tile", *shape, "--refine", 5, "--json").out)
    ran = json.loads(heald("run", *shape, "--refine", 5, "--json").out)
    assert plan["cycles"] == plan["predicted_cycles"] == ran["cycles"]
    assert plan["utilization"] == pytest.approx(ran["utilization"])
    assert len(plan["candidates"]) == 5


def test_a_plan_is_what_a_run_runs(heald: Run, quick: Callable[..., None]) -> None:
    shape = ("--matmul", "20x33x50", "--hw", "test", "--latency", "load_a=40", "--bandwidth", "store=2")
    plan = json.loads(heald("tile", *shape, "--json").out)
    (ran,) = json.loads(heald("run", *shape, "--json").out)["operators"]
    names = ("partition_m", "partition_n", "partition_k", "tile_m", "tile_n", "loop_order", "split_k")
    assert {n: plan[n] for n in names} == {n: ran["plan"][n] for n in names}
    assert plan["cycles"] == ran["plan"]["page_cycles"]
    assert abs(plan["utilization"] / ran["utilization"] - 1) < 0.1


def test_latencies_of_the_run_count(heald: Run) -> None:
    shape = ("--matmul", "8x8x8", "--hw", "tiny", "--json")
    near = json.loads(heald("tile", *shape).out)["predicted_cycles"]
    far = json.loads(heald("tile", *shape, "--latency", "store=300").out)["predicted_cycles"]
    assert far == near + 300 - load("tiny").store_latency


def test_words_of_a_run_are_those_that_the_plan_loads(heald: Run, quick: Callable[..., None]) -> None:
    (ran,) = json.loads(heald("run", "--matmul", "64x64x64", "--hw", "test", "--json").out)["operators"]
    assert ran["memory_words"]["load_a"] * 8 == ran["plan"]["bytes_a"]
    assert ran["memory_words"]["load_b"] * 8 == ran["plan"]["bytes_b"]
    assert ran["memory_words"]["store"] * 8 == 4 * 64 * 64


def test_pixels_are_read_once_per_tile_and_load() -> None:
    config = load("default")
    settings = MemorySettings.of(config)
    axis = Axis(56, 3, 1, 1, 1)
    problem = Convolution(1, 64, axis, axis, 64)
    plan = plan_for_machine(problem, config, settings)
    # 56 pixels and their padding are two words of 32 bytes; bands of output rows read their halo again.
    bands = -(-56 // plan.blocking.out_rows)
    rows = 56 + (bands - 1) * 2
    assert plan.plan.bytes_b == plan.plan.loads_b * rows * 56 * 64
    from cosim.job import Job, Window
    from cosim.models.cycle import predict

    kernel = compile_problem(problem, config, blocking=plan.blocking)
    job = Job(kernel.programs, settings, tuple(Window(*w) for w in kernel.memory.windows))
    assert predict(config, job).counters["LOAD_B_WORDS"] == plan.plan.loads_b * rows * 2 * 64


def test_a_convolution_file_is_planned_for_a_machine(heald: Run, tmp_path: Path) -> None:
    conv = {
        "sn": 1,
        "ic": 8,
        "h": 14,
        "w": 14,
        "oc": 16,
        "kh": 3,
        "kw": 3,
        "stride": 2,
        "pad": 1,
        "dilation": 1,
    }
    file = tmp_path / "conv.json"
    file.write_text(json.dumps({"conv": conv}))
    ended = heald("tile", file, "--hw", "tiny", "--json")
    assert ended.code == 0, ended.err
    plan = json.loads(ended.out)
    assert plan["out_rows"] * plan["out_cols"] == plan["partition_n"]
    assert plan["partition_k"] % 9 == 0
    assert "tiny" in heald("tile", file, "--hw", "tiny").out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "tile must be given either a problem file or --matmul MxKxN"),
        (("x.json", "--matmul", "1x2x3"), "tile must be given either a problem file or --matmul MxKxN"),
        (("--matmul", "1x2"), "--matmul must be MxKxN with whole numbers, not '1x2'"),
        (("--matmul", "0x2x3"), "m of a matrix product must be at least 1, not 0"),
        (("--matmul", "1x2x3", "--hw", "nothing"), "--hw must be a preset"),
        (("--matmul", "1x2x3", "--set", "rows=3"), "rows"),
        (("--matmul", "1x2x3", "--bandwidth", "b=3"), "--bandwidth must be PORT=N"),
        (("x.json", "--refine", 3), "--refine goes with --hw or --matmul"),
        (("--matmul", "40000x40000x40000"), "must fit 4293918720 bytes of memory"),
    ],
)
def test_bad_requests_are_refused_with_one_line(heald: Run, arguments: tuple[str, ...], text: str) -> None:
    ended = heald("tile", *arguments)
    assert ended.code == 2
    assert text in ended.err
    assert ended.out == ""
    assert len(ended.err.strip().splitlines()) == 1


def test_a_file_for_a_machine_holds_a_shape_only(heald: Run, tmp_path: Path) -> None:
    file = tmp_path / "shape.json"
    file.write_text('{"m": 3, "k": 4, "n": 5, "bw_a": 8}')
    ended = heald("tile", file, "--hw", "test")
    assert ended.code == 2
    assert "bw_a comes from the machine with --hw" in ended.err
    file.write_text('{"m": 3, "k": 4}')
    ended = heald("tile", file, "--hw", "test")
    assert ended.code == 2
    assert "n must be given" in ended.err
