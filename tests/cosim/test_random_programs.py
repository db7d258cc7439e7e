"""Random warp programs on the RTL: whatever they do, the model predicts it.

Unlike compiled products they collide: several warps on one engine, full queues, busy accumulator banks,
channels that overflow or are shared, waits for nothing, padded and unaligned loads.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import pytest

from cosim.backends import simulator
from cosim.compare import compare
from cosim.models.cycle import predict
from hw.assembly import decode
from tests.budget import cases
from tests.cosim.models.cycle.jobs import EdgeJob, RandomJob
from tests.machines import TEST, WIDE

#: Of two banks of the accumulator, and of one.
MACHINES = {"test": TEST, "wide": WIDE}


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("name", "causes"),
    [("test", {"CHANNEL_OVERFLOW", "OPERAND", "WINDOW"}), ("wide", {"BUFFER_RANGE", "CHANNEL_OVERFLOW"})],
)
def test_random_programs_do_what_the_model_predicts(name: str, causes: set[str]) -> None:
    budget = cases(200, 800)
    config = MACHINES[name]
    jobs, seed = [], 0
    while len(jobs) < budget:
        job = RandomJob(seed, config).job
        seed += 1
        if max(len(words) for words in job.programs.values()) <= config.imem_words:
            jobs.append(dataclasses.replace(job, watchdog=5000, name=f"seed {seed - 1}"))
    seen: Counter[str] = Counter()
    stalls = 0
    for job, outcome in zip(jobs, simulator(config, "cpp").run(jobs), strict=True):
        divergence = compare(config, job, predict(config, job), outcome)
        assert divergence is None, f"{job.name}: {divergence}"
        seen["none" if outcome.error is None else outcome.error.cause.name] += 1
        stalls += outcome.counters["STORE_STALL_BANK"]
    assert seen["none"] > budget / 4, seen
    assert {"WATCHDOG"} | causes <= set(seen), seen
    assert stalls > 0, "no program read an accumulator bank that the array held"


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["test", "wide"])
def test_errors_come_in_their_cycle(name: str) -> None:
    config = MACHINES[name]
    made = (EdgeJob(seed, config).job for seed in itertools.count())
    fitting = (job for job in made if max(map(len, job.programs.values())) <= config.imem_words)
    jobs = [
        dataclasses.replace(job, watchdog=3000, name=f"job {i}")
        for i, job in enumerate(itertools.islice(fitting, cases(250, 1000)))
    ]
    seen: Counter[str] = Counter()
    for job, outcome in zip(jobs, simulator(config, "cpp").run(jobs), strict=True):
        divergence = compare(config, job, predict(config, job), outcome)
        assert divergence is None, f"{job.name}: {divergence}"
        if outcome.error is not None:
            code = decode(job.programs[outcome.error.warp][outcome.error.pc])
            assert code is not None
            seen[f"{outcome.error.cause.name} {code.name.split('_')[0]}"] += 1
    wanted = {f"{cause} {unit}" for cause in ("BUFFER_RANGE", "WINDOW") for unit in ("load", "store")}
    assert wanted | {"BUFFER_RANGE gemm", "OPERAND load"} <= set(seen), seen
