"""The event-driven model agrees with a machine that steps through every cycle."""

import pytest

from cosim.model import predict
from tests.cosim.model.jobs import RandomJob
from tests.cosim.model.stepping import Stepping


@pytest.mark.parametrize("seed", range(60))
def test_random_jobs_have_the_same_events_and_counters(seed: int) -> None:
    made = RandomJob(seed)
    slow = Stepping(made.config, made.job)
    events, error = slow.run()
    outcome = predict(made.config, made.job)
    assert outcome.error == error
    assert outcome.events == events
    if error is None:
        expected = slow.counters()
        assert {name: outcome.counters[name] for name in expected} == expected
