"""Elementwise launches on the RTL: every event in its cycle, and the bytes of the expression's value."""

from __future__ import annotations

import numpy as np
import pytest

from bench.elementwise_program import build
from bench.grid_elementwise import RESULT, measured
from bench.grid_elementwise import cases as expressions
from cosim.backends import simulator
from cosim.session.driver import simulate
from cosim.session.tile_program import prepare
from cosim.settings import MemorySettings
from sw.kernels.choose import Chosen, choose
from sw.kernels.configuration import configure
from sw.kernels.cost import cycles
from sw.kernels.elementwise import make
from tests.budget import cases
from tests.machines import TEST

ROWS, WIDTH = 6, 32


@pytest.mark.drawn
def test_launches_leave_what_their_expressions_mean() -> None:
    programs = []
    names = ("bias, scale per column", "table", "bias, scale per row", "bias per column, residual")
    for name in names[: cases(2, 4)]:
        case = expressions()[name]
        programs.append(build(case[0], choose(*case, RESULT, TEST, multiple=WIDTH), TEST, ROWS, WIDTH))
    settings = MemorySettings.of(TEST)
    prepared = [prepare(p.program, TEST, settings, p.inputs) for p in programs]
    results = simulate(prepared, simulator(TEST, "cpp"))
    for program, result in zip(programs, results, strict=True):
        assert result.divergence is None
        assert result.correct
        assert np.array_equal(result.values["y"].reshape(-1), program.expected)


@pytest.mark.parametrize("mask", [0b11, 0b1110])
@pytest.mark.parametrize("name", ["requantise", "bias per column", "relu"])
def test_cycles_per_element_are_those_of_the_model(name: str, mask: int) -> None:
    case = expressions()[name]
    made = make(*case, RESULT, mask=mask)
    configured = configure(made.kernel, TEST)
    chosen = Chosen(made, configured, cycles(made, configured, TEST))
    few, many = (measured(case, chosen, TEST, rows, WIDTH) for rows in (8, 24))
    assert few[2]
    assert many[2]
    measured_cycles = (many[0] - few[0]) / (16 * WIDTH)
    assert measured_cycles == pytest.approx(chosen.cycles_per_element, rel=0.08), f"{many[1]} frozen"
