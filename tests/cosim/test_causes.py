"""Causes of cycles: situations with a known cause, and causes that add up to all cycles."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from cosim.causes import CAUSES, CriticalPath, bottleneck
from cosim.job import Job, Outcome
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem, problem_job
from hw.config import MachineConfig, load
from sw.problem import Product
from tests.cosim.models.cycle.grids import (
    GridJob,
    fill,
    launch_job,
    operation,
    random_configuration,
    random_fabric,
)
from tests.cosim.models.cycle.jobs import RandomJob, job_of, ring_job
from tests.machines import MIXED, UNLIKE, machine_of

CONFIG = load("test").replace(cgra=None)


def causes(config: MachineConfig, job: Job, predicted: Outcome | None = None) -> dict[str, int]:
    """All cycles of a job by cause; they add up."""
    outcome = predicted or predict(config, job)
    found = CriticalPath(config, job, outcome, outcome).causes(0, outcome.cycles)
    assert sum(found.values()) == outcome.cycles
    assert set(found) <= set(CAUSES)
    assert min(found.values(), default=1) > 0
    return found


def product(shape: tuple[int, ...], **memory: Any) -> dict[str, int]:
    problem = Product(*shape)
    kernel = compile_problem(problem, CONFIG, name="p")
    operands = problem.random(np.random.default_rng(0))
    return causes(CONFIG, problem_job(kernel, *operands, MemorySettings.of(CONFIG, **memory)))


def main(found: dict[str, int]) -> str:
    dominant = bottleneck(found)
    assert dominant is not None
    assert dominant.share == found[dominant.cause] / sum(found.values())
    return dominant.cause


@pytest.mark.parametrize(("port", "shape"), [("load_a", (64, 256, 4)), ("load_b", (4, 256, 64))])
def test_a_slow_port_is_the_bottleneck(port: str, shape: tuple[int, int, int]) -> None:
    found = product(shape, bandwidth={port: 1})
    assert main(found) == port
    assert found[port] > 0.8 * sum(found.values())
    assert main(product(shape)) != port


def test_a_slow_store_is_the_bottleneck() -> None:
    assert main(product((32, 8, 32), bandwidth={"store": 1})) == "store"


@pytest.mark.parametrize("seed", range(12))
def test_a_quicker_port_gains_no_more_than_what_it_is_charged(seed: int) -> None:
    r = random.Random(seed)
    shape = tuple(r.choice([4, 8, 16, 32, 64, 100]) for _ in range(3))
    ports = ("load_a", "load_b", "store")
    rates = {p: r.choice([1, 2, 4, 8]) for p in ports}
    waits = {p: r.choice([1, 10, 40, 200]) for p in ports}
    found = product(shape, bandwidth=rates, latency=waits)
    for port in ports:
        quicker = product(shape, bandwidth=rates | {port: 8}, latency=waits | {port: 1})
        assert sum(found.values()) - sum(quicker.values()) <= found.get(port, 0)


def test_an_array_that_always_multiplies_is_the_bottleneck() -> None:
    found = product((16, 512, 16))
    assert main(found) == "gemm"
    assert found["gemm"] == 16 * 512 * 16 // CONFIG.macs_per_cycle
    assert "edges" not in found


def test_blocks_that_do_not_fill_the_array() -> None:
    found = product((1, 512, 16))
    assert main(found) == "edges"
    assert found["gemm"] + found["edges"] == 512 * 16 // CONFIG.cols
    assert found["gemm"] == 512 * 16 // CONFIG.macs_per_cycle


def test_an_array_of_shallow_blocks_drains() -> None:
    multiply = operation("gemm", [0, 0, 0, 1], gemm_m=64, gemm_n=16, gemm_c_pitch=4)
    found = causes(CONFIG, job_of(["\n".join([*multiply, "halt"])], CONFIG))
    blocks = 64 // CONFIG.rows * (16 // CONFIG.cols)
    assert main(found) == "drain"
    assert found["gemm"] == blocks
    assert found["drain"] >= (CONFIG.rows - 1) * blocks


def test_a_warp_that_computes_is_waited_for() -> None:
    assert causes(CONFIG, job_of(["li r1, 7\nli r2, 3\ndiv r3, r1, r2\nhalt"], CONFIG)) == {
        "warps": 6 * 38 + 1
    }


@pytest.mark.parametrize(("iterations", "cause"), [(250, "cgra"), (0, "setup")])
def test_long_loops_and_launches_without_one(iterations: int, cause: str) -> None:
    config = MIXED
    job = launch_job(config, fill(UNLIKE, 256), iterations, addresses=(0,) * 9)
    found = causes(config, job)
    assert found.get("cgra", 0) == 9 * 2 * iterations
    assert "conflicts" not in found
    found.pop("load_c")  # which brings the configuration
    assert main(found) == cause


def test_conflicts_are_what_the_machine_counts() -> None:
    counted = []
    for seed in range(40):
        r = random.Random(seed)
        config = machine_of(random_fabric(r))
        assert config.cgra is not None
        job = launch_job(config, random_configuration(r, config.cgra, config), 50)
        outcome = predict(config, job)
        if outcome.error is None:
            # Nothing else is under way when a configuration is there.
            counted.append(outcome.counters["CGRA_STALL_BANK"])
            assert causes(config, job, outcome).get("conflicts", 0) == counted[-1]
    assert len(counted) > 5
    assert max(counted) > 0


@pytest.mark.parametrize("seed", range(30))
def test_causes_of_any_program_add_up(seed: int) -> None:
    fabric = random_fabric(random.Random(seed))
    random_job = RandomJob(seed)
    assert causes(random_job.config, random_job.job)
    config = machine_of(fabric, imem_words=1024)
    assert causes(config, GridJob(seed, config, wild=0.1).job)
    assert causes(*ring_job(seed))


def test_parts_of_a_run_add_up_to_the_whole() -> None:
    random_job = RandomJob(3)
    outcome = predict(random_job.config, random_job.job)
    path = CriticalPath(random_job.config, random_job.job, outcome, outcome)
    borders = [0, *range(7, outcome.cycles, 97), outcome.cycles]
    for first, last in itertools.pairwise(borders):
        assert sum(path.causes(first, last).values()) == last - first
