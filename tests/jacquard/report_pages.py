"""Runs for tests of the report: products with a simulator that is quick, spoiled where a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cosim.job import Outcome
from cosim.settings import MemorySettings
from hw.config import load
from jacquard.execute import Task, execute
from jacquard.report.html.data import RunReport
from jacquard.report.html.from_results import run_report
from jacquard.results import Report
from sw.problem import Product
from tests.jacquard.conftest import Quick

SHAPES = ((12, 16, 20), (5, 40, 9))


def same(outcome: Outcome) -> Outcome:
    """Nothing spoiled."""
    return outcome


def late(outcome: Outcome) -> Outcome:
    """The second half of the events, and the end, three cycles late."""
    events = outcome.events
    half = len(events) // 2
    moved = [event._replace(cycle=event.cycle + 3) for event in events[half:]]
    return replace(outcome, events=[*events[:half], *moved], cycles=outcome.cycles + 3)


def results(
    spoil: Callable[[Outcome], Outcome] = same, shapes: tuple[tuple[int, int, int], ...] = SHAPES
) -> tuple[Report, MemorySettings]:
    """A run of products; `spoil` changes the outcome of the last."""
    config = load("test")
    settings = MemorySettings.of(config)
    rng = np.random.default_rng(0)
    tasks = []
    for i, shape in enumerate(shapes):
        problem = Product(*shape)
        tasks.append(Task(f"product_{i}", problem, *problem.random(rng)))
    seen = 0

    def spoiled(outcome: Outcome) -> Outcome:
        nonlocal seen
        seen += 1
        return spoil(outcome) if seen == len(shapes) else outcome

    return execute(tasks, config, settings, lambda: Quick(config, spoil=spoiled)), settings


def report(spoil: Callable[[Outcome], Outcome] = same, title: str = "two products") -> RunReport:
    """The report of such a run."""
    found, settings = results(spoil)
    return run_report(found, title, settings)
