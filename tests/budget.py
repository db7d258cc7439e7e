"""How many cases the tests that draw them take: a part in `make test`, all of them in `make slow`."""

from __future__ import annotations

import os

#: Set to `all` by `make slow`; tests that ask here are marked `drawn`, so that it runs them as well.
VARIABLE = "JACQUARD_CASES"


def cases(part: int, every: int) -> int:
    """The number of cases to draw: `part`, or `every` one where all are wanted."""
    return every if os.environ.get(VARIABLE) == "all" else part
