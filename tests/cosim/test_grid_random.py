"""Random launches of the CGRA on the RTL, with storer and array in its way, and broken bitstreams.

Every event is as the model predicts, to the cycle. A broken bitstream is refused, stops the machine with an
error, or runs as it decodes.
"""

from __future__ import annotations

from collections import Counter

import pytest

from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Job, Outcome
from cosim.models.cycle import predict
from hw.config import MachineConfig
from hw.fabric import OPERATIONS, Fabric, Link, layout
from hw.fabric.bitstream import ArrayEntry, Configuration, Entry
from tests.budget import cases, sweep
from tests.cosim.models.cycle.grids import Change, GridJob, corrupted, launch_job
from tests.machines import MIXED, TEST, UNLIKE, machine_of

BUDGET = cases(30, 100)
on_machines = pytest.mark.parametrize("config", sweep([TEST, MIXED], kept=[TEST]), ids=lambda c: c.name)


def jobs_of(
    config: MachineConfig, first: int, *, wild: float = 0.0, change: Change | None = None
) -> list[Job]:
    """Random jobs that fit the instruction memory."""
    found: list[Job] = []
    while len(found) < BUDGET:
        job = GridJob(first, config, wild=wild, change=change).job
        first += 1
        if max(map(len, job.programs.values())) <= config.imem_words:
            found.append(job)
    return found


def agreed(config: MachineConfig, jobs: list[Job], outcomes: list[Outcome]) -> Counter[str]:
    """How the jobs ended, after each was compared with its prediction."""
    seen: Counter[str] = Counter()
    for job, outcome in zip(jobs, outcomes, strict=True):
        predicted = predict(config, job)
        divergence = compare(config, job, predicted, outcome)
        assert divergence is None, f"{job.name}: {divergence}"
        seen["none" if outcome.error is None else outcome.error.cause.name] += 1
        seen["stalls"] += outcome.counters["CGRA_STALL_BANK"]
        seen["outputs"] += len(outcome.stored)
        assert all(0 <= output.address < config.out_bytes for output in outcome.stored)
    return seen


@pytest.mark.drawn
@on_machines
def test_random_launches_do_what_the_model_predicts(config: MachineConfig) -> None:
    jobs = jobs_of(config, 0, wild=0.3)
    seen = agreed(config, jobs, simulator(config, "cpp").run(jobs))
    assert seen["none"] > BUDGET / 2, seen
    assert {"GRID_RANGE", "OPERAND"} <= set(seen), seen
    # Every job fills the output buffer first.
    assert seen["outputs"] > BUDGET * (config.out_bytes // 4) + 1000, seen
    assert seen["stalls"] > 100, seen


@pytest.mark.drawn
@on_machines
def test_broken_bitstreams_are_refused_or_do_what_they_say(config: MachineConfig) -> None:
    jobs = jobs_of(config, 1000, change=corrupted)
    seen = agreed(config, jobs, simulator(config, "cpp").run(jobs))
    assert seen["BITSTREAM"] > BUDGET / 2, seen
    assert seen["none"] > 0, seen


@pytest.mark.slow
def test_operands_are_initial_in_all_iterations_before_the_first() -> None:
    """Also where no iteration that runs has any: a copy of the iteration before the first stores `init`."""
    source = layout(UNLIKE, 0).sources
    copy = {"op": OPERATIONS["mov"].number, "initial": 1, "stage": 1, "result": source["result"].index("y")}
    store = {"op": OPERATIONS["store"].number, "b": source["b"].index("result")}
    entries = {(0, 0): Entry(copy, 0, 5), (0, 1): Entry(store)}
    job = launch_job(MIXED, Configuration(UNLIKE, 2, 2, entries, (ArrayEntry(2, 0, 8, 1),)), 1)
    (outcome,) = simulator(MIXED, "cpp").run([job])
    assert compare(MIXED, job, predict(MIXED, job), outcome) is None
    assert [output[1:] for output in outcome.stored] == [(0, 8, 5)]


def test_cocotb_sees_the_same_outputs() -> None:
    jobs = jobs_of(TEST, 2000)[:4]
    one, two = (simulator(TEST, name).run(jobs) for name in ("cpp", "verilator"))
    assert [outcome.stored for outcome in one] == [outcome.stored for outcome in two]
    assert all(outcome.stored for outcome in one)


def test_the_simulator_of_amaranth_shows_the_same_outputs() -> None:
    pair = Fabric("pair", 1, 2, UNLIKE.kinds[:2], (Link(0, 1), Link(1, 0)), contexts=2, stages=2)
    config = machine_of(pair, warps=4, rows=2, cols=2, acc_bytes=2048)
    job = GridJob(1, config).job
    (outcome,) = simulator(config, "amaranth").run([job])
    predicted = predict(config, job)
    assert compare(config, job, predicted, outcome) is None
    assert len(predicted.stored) >= config.out_bytes // 4
