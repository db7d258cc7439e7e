"""Four ways to order a program: all are correct, and ours needs the fewest cycles, waits and signals."""

from __future__ import annotations

import pytest

from bench.prediction import Problem
from bench.sync import CHANNELS, DEPTH, SCHEMES, compiled, faults, measure
from cosim.settings import MemorySettings
from hw.config import load
from sw.convolution import Convolution
from sw.ir.program import For
from sw.ir.walk import statements
from sw.patches import Axis
from sw.problem import Product

AXIS = Axis(20, 3, 1, 1, 1)


@pytest.mark.parametrize(
    ("problem", "loops"),
    [
        pytest.param(
            Product(64, 64, 64, batch_a=(3,), batch_b=(3,)), {"batch0", "m", "n", "inner"}, id="product"
        ),
        pytest.param(Convolution(1, 16, AXIS, AXIS, 32), {"n", "k", "inner"}, id="convolution"),
    ],
)
def test_every_scheme_is_right_and_ours_needs_least(problem: Problem, loops: set[str]) -> None:
    config = load("default")
    large = config.replace(channels=CHANNELS, channel_depth=DEPTH)
    kernels = compiled(problem, config)
    found = {n: measure(problem, k, MemorySettings.of(config), large, None) for n, k in kernels.items()}
    assert {s.variable for s in statements(kernels["ours"].source.body) if isinstance(s, For)} == loops
    assert tuple(found) == SCHEMES
    assert {n: m.wrong for n, m in found.items() if m.wrong} == {}
    assert faults(found) == []
