"""Random products and convolutions: bit-exact, and every event in its predicted cycle.

The budget is fixed here; `tests/fuzz/random_products.py` runs for as long as wanted.
"""

from __future__ import annotations

import pytest

from heald.testing.problems import draw, draw_convolution
from tests.budget import cases, sweep
from tests.fuzz.random_products import MACHINES, prove

#: Products per machine: 6 machines x 34 = 204 shapes in `make slow`.
BUDGET = cases(15, 34)
#: Building takes most of the time; other tests build these as well.
NAMES = sweep(MACHINES, kept=("test", "wide"))


@pytest.mark.drawn
@pytest.mark.parametrize("name", NAMES)
def test_random_products_are_bit_exact_and_cycle_exact(name: str) -> None:
    report = prove(MACHINES[name], [draw(MACHINES[name], f"{name}/{i}") for i in range(BUDGET)], "verilator")
    assert report.failures == []
    assert report.products == BUDGET
    assert report.events > 100 * BUDGET


#: Convolutions per machine.
CONVOLUTIONS = cases(6, 12)


@pytest.mark.drawn
@pytest.mark.parametrize("name", NAMES)
def test_random_convolutions_are_bit_exact_and_cycle_exact(name: str) -> None:
    drawn = [draw_convolution(MACHINES[name], f"{name}/{i}") for i in range(CONVOLUTIONS)]
    report = prove(MACHINES[name], drawn, "verilator")
    assert report.failures == []
    assert report.products == CONVOLUTIONS
