"""What all tests share: properties have no deadline, because the machine may be busy; garbage waits."""

from __future__ import annotations

import gc

from hypothesis import settings

settings.register_profile("heald", deadline=None)
settings.load_profile("heald")


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
