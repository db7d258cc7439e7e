"""Empties the caches of a process, for tests of the caches on disk."""

from __future__ import annotations

from sw.kernels import configuration


def forget_configurations() -> None:
    """Forget what this process configured and mapped."""
    for known in (configuration.configure, configuration.mapped):
        known.cache_clear()
