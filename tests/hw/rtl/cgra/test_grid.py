"""The grid against a plain simulator of its contract: registers, stores and ends in every cycle."""

from __future__ import annotations

import pytest

from tests.budget import sweep
from tests.hw.rtl.cgra.bench import run
from tests.hw.rtl.cgra.cases import FABRICS, machine, random_case


@pytest.mark.parametrize("number", sweep(range(len(FABRICS)), kept=(1, 3, 5)))
def test_random_configurations(number: int) -> None:
    fabric, banks = FABRICS[number]
    config = machine(fabric, banks)
    cases = [random_case(seed, config) for seed in range(10)]
    played = run(config, cases)
    launches = [launch for launches in played for launch in launches]
    whole = sum(launch.cause is None for launch in launches)
    assert whole >= 10
    if number % 5 < 3:
        assert sum(len(launch.stores) for launch in launches) > 10
        assert any(launch.stalls for launch in launches)
