"""Sweeps and random cases: some of them in `make test`, all of them in `make slow`."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import Any

import pytest

#: Set to `all` by `make slow`; tests that ask here are marked `drawn`, so that it runs them as well.
VARIABLE = "HEALD_CASES"


def cases(part: int, every: int) -> int:
    """The number of cases to draw: `part`, or `every` one where all are wanted."""
    return every if os.environ.get(VARIABLE) == "all" else part


def sweep(values: Iterable[Any], kept: Container[Any]) -> list[Any]:
    """Parameters of a test: those that `make test` keeps, and the others, which are marked slow."""
    return [v if v in kept else pytest.param(v, marks=pytest.mark.slow) for v in values]
