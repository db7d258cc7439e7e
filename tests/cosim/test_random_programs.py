"""Random programs of warps on the RTL: whatever they do, it is what the model predicted.

Unlike compiled products they collide: several warps on one engine, full queues, busy accumulator banks,
channels that overflow or are shared, waits for nothing, padded and unaligned loads.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from bench.random_products import MACHINES
from cosim.backends import simulator
from cosim.compare import compare
from cosim.model import predict
from tests.budget import cases
from tests.cosim.model.jobs import RandomJob


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("name", "causes"),
    [("test", {"CHANNEL_OVERFLOW", "OPERAND", "WINDOW"}), ("wide", {"BUFFER_RANGE", "CHANNEL_CONFLICT"})],
)
def test_random_programs_do_what_the_model_predicts(name: str, causes: set[str]) -> None:
    budget = cases(200, 800)
    config = MACHINES[name]  # of two banks, and of one
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
