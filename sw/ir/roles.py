"""The role of each warp of an emitted program, by its number."""

from __future__ import annotations

import enum


class WarpRole(enum.IntEnum):
    """A warp by the engine that it drives."""

    LOAD_A = 0
    LOAD_B = 1
    GEMM = 2
    STORE = 3
    LOAD_SCRATCH = 4
    CGRA = 5

    @property
    def title(self) -> str:
        """The name as messages and stages print it."""
        return _TITLES[self]


#: By number.
_TITLES = ("load A", "load B", "gemm", "store", "load C", "grid")
