"""Shared by all tests: properties have no deadline, as the machine may be busy; garbage collection waits."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("heald", deadline=None)
settings.load_profile("heald")


def pytest_sessionstart(session: pytest.Session) -> None:
    """The mapper's loops are compiled once: workers that start together would all do it, 15 seconds each."""
    if session.config.getoption("numprocesses", None) and not hasattr(session.config, "workerinput"):
        from heald import map_loop

        map_loop(_copy)


def _copy(n: int, x: list[int], y: list[int]) -> None:
    for i in range(n):
        y[i] = x[i]


@pytest.fixture
def no_plugins_after() -> Iterator[None]:
    """What files of `--plugin` register in a test is gone after it."""
    from sw import plugins
    from sw.operators.registry import HANDLERS

    before = dict(HANDLERS)
    yield
    HANDLERS.clear()
    HANDLERS.update(before)
    plugins.LOADED.clear()


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
