"""Role of each warp of a generated program, by warp number."""

from __future__ import annotations

import enum


class WarpRole(enum.IntEnum):
    """A warp, named after the engine it drives."""

    LOAD_A = 0
    LOAD_B = 1
    GEMM = 2
    STORE = 3
    LOAD_SCRATCH = 4
    CGRA = 5

    @property
    def title(self) -> str:
        """The name printed in messages and reports."""
        return _TITLES[self]


#: Indexed by warp number.
_TITLES = ("load A", "load B", "gemm", "store", "load C", "grid")
