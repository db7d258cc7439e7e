"""Random programs against the interpreter: nothing that a run read is ever missing."""

from __future__ import annotations

import random

import pytest

import sw.dependence.frames
import sw.dependence.plan
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


@pytest.mark.parametrize("name", list(KNOBS))
def test_nothing_is_missing(name: str) -> None:
    for seed in range(60):
        rng = random.Random(f"{name} {seed}")
        program = random_program(rng, KNOBS[name])
        assert compare(program, rng, runs=2, steps=500).missing == [], f"seed {seed}\n{program}"


@pytest.mark.parametrize("per_instruction", [0.3, 1, 4, 30])
def test_nothing_is_missing_where_one_iteration_stands_for_all(
    per_instruction: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_INSTANCES", "_CELLS", "_CELLS_PER_INSTRUCTION"):
        monkeypatch.setattr(sw.dependence.plan, name, 0)
    monkeypatch.setattr(sw.dependence.plan, "_PER_INSTRUCTION", per_instruction)
    names = list(KNOBS)
    for seed in range(70):
        rng = random.Random(f"symbolic {per_instruction} {seed}")
        program = random_program(rng, KNOBS[names[seed % len(names)]])
        assert compare(program, rng, runs=2, steps=500).missing == [], f"seed {seed}\n{program}"


@pytest.mark.parametrize("limits", [{}, {"_FEW": 0}, {"_MIN_CELLS": 20, "_CELLS": 1, "_MOST_STEPS": 2}])
def test_nothing_is_missing_in_frames(limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WORK", "_WORK_PER_INSTRUCTION", "_CELLS", "_CELLS_PER_INSTRUCTION"):
        monkeypatch.setattr(sw.dependence.plan, name, 0)
    for name, value in limits.items():
        monkeypatch.setattr(sw.dependence.frames, name, value)
    names = list(KNOBS)
    for seed in range(100):
        rng = random.Random(f"frames {limits} {seed}")
        program = random_program(rng, KNOBS[names[seed % len(names)]])
        assert compare(program, rng, runs=2, steps=500).missing == [], f"seed {seed}\n{program}"


def test_straight_programs_with_exact_bounds_are_equal() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        program = random_program(rng, STRAIGHT)
        found = compare(program, rng, runs=1)
        assert found.missing == []
        assert found.edges == found.real, f"seed {seed}\n{program}"


@pytest.mark.parametrize("cells", [1_000_000, 0])
def test_nests_with_known_bounds_are_equal(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sw.dependence.plan, "_CELLS", cells)
    monkeypatch.setattr(sw.dependence.plan, "_CELLS_PER_INSTRUCTION", 0)
    for seed in range(60):
        rng = random.Random(seed)
        program = random_program(rng, NESTS)
        found = compare(program, rng, runs=1)
        if found.runs:
            assert (found.edges, found.distances) == (found.real, found.real_distances), f"{seed}\n{program}"
