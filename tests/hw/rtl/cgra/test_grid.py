"""The CGRA against a plain simulator of its contract: registers, stores and ends in every cycle."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.budget import sweep
from tests.hw.rtl.cgra.bench import run
from tests.hw.rtl.cgra.cases import FABRICS, machine, random_case


@pytest.mark.parametrize("number", sweep(range(len(FABRICS)), kept=(1, 3, 5, 8, 13)))
def test_random_configurations(number: int) -> None:
    fabric, banks = FABRICS[number]
    config = machine(fabric, banks)
    cases = [random_case(seed, config) for seed in range(10)]
    played = run(config, cases)
    launches = [launch for launches in played for launch in launches]
    whole = sum(launch.cause is None for launch in launches)
    assert whole >= 10
    if fabric.name != "alone" and fabric.cols > 1:
        stores = [store for launch in launches for store in launch.stores]
        assert len(stores) > 10
        # With more banks fewer accesses meet.
        assert any(launch.stalls for launch in launches) or fabric.lanes > 1
        # With several lanes some stores are of all of them, in one cycle of one PE.
        together = Counter((cycle, pe) for cycle, pe, _, _ in stores)
        assert fabric.lanes == 1 or max(together.values()) > 1
