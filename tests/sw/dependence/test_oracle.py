"""Random programs against the interpreter: no dependence of a run is ever missing."""

from __future__ import annotations

import random

import pytest

from sw.dependence.walk import WalkBudget
from tests.budget import cases
from tests.sw.dependence.oracle import compare
from tests.sw.random_tile_programs import NESTS, STRAIGHT, Knobs, random_program

KNOBS = {
    "all": Knobs(),
    "small": Knobs(instructions=6),
    "exact": Knobs(inexact=0, unknown=0),
    "branches": Knobs(branches=0.4, loops=0.1),
    "predicates": Knobs(predicates=0.6, unknown=0),
    "loops": Knobs(instructions=8, loops=0.5, unknown=0, whiles=0.2),
    "one": Knobs(dimensions=1, buffers=1),
    "nests": NESTS,
}


@pytest.mark.drawn
@pytest.mark.parametrize("name", list(KNOBS))
def test_nothing_is_missing(name: str) -> None:
    for seed in range(cases(5, 60)):
        rng = random.Random(f"{name} {seed}")
        program = random_program(rng, KNOBS[name])
        assert compare(program, rng, runs=2, steps=500).missing == [], f"seed {seed}\n{program}"


@pytest.mark.drawn
@pytest.mark.parametrize("least", [0, 4, 20, 100])
def test_nothing_is_missing_where_walks_end_early(least: int) -> None:
    names = list(KNOBS)
    for seed in range(cases(12, 100)):
        rng = random.Random(f"symbolic {least} {seed}")
        program = random_program(rng, KNOBS[names[seed % len(names)]])
        found = compare(program, rng, runs=2, steps=500, budget=WalkBudget(least, least))
        assert found.missing == [], f"seed {seed}\n{program}"


def test_straight_programs_with_exact_bounds_are_equal() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        program = random_program(rng, STRAIGHT)
        found = compare(program, rng, runs=1)
        assert found.missing == []
        assert found.edges == found.real, f"seed {seed}\n{program}"


def test_nests_with_known_bounds_are_equal() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        program = random_program(rng, NESTS)
        found = compare(program, rng, runs=1)
        if found.runs:
            assert (found.edges, found.distances) == (found.real, found.real_distances), f"{seed}\n{program}"
