"""The event-driven model agrees with a machine that steps through every cycle."""

import pytest

from cosim.job import Job
from cosim.models.cycle import predict
from hw.config import MachineConfig
from hw.isa import Cause
from tests.cosim.models.cycle.jobs import RandomJob, ring_job
from tests.cosim.models.cycle.stepping import Stepping


def assert_agreement(config: MachineConfig, job: Job) -> None:
    slow = Stepping(config, job)
    events, error = slow.run()
    outcome = predict(config, job)
    assert outcome.error == error
    assert outcome.events == events
    if error is not None and error.cause is not Cause.WATCHDOG:
        assert outcome.cycles == slow.failed
    if error is None:
        expected = slow.counters()
        assert {name: outcome.counters[name] for name in expected} == expected


# Behind the first ones some with loads that leave the buffer.
@pytest.mark.parametrize("seed", [*range(60), 242, 249, 254, 327, 456])
def test_random_jobs_have_the_same_events_and_counters(seed: int) -> None:
    made = RandomJob(seed)
    assert_agreement(made.config, made.job)


@pytest.mark.parametrize("seed", range(40))
def test_rings_of_warps_have_the_same_events_and_counters(seed: int) -> None:
    assert_agreement(*ring_job(seed))
