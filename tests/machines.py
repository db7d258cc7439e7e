"""Machines whose RTL nearly all tests share, so that `make test` builds few; others are slow.

`docs/tests.md` says which machine tests what.
"""

from __future__ import annotations

from typing import Any

from hw.config import MachineConfig, load
from hw.fabric import Fabric, Link, PEKind, Unit

#: A 4 x 4 array with a CGRA of 4 x 4 PEs; all ports alike.
TEST = load("test")
#: A flat array without CGRA: ports of different widths, one bank of the accumulator.
WIDE = TEST.replace(
    name="wide", cgra=None, rows=2, cols=8, load_a_bytes=4, load_b_bytes=16, store_bytes=16, acc_banks=1
)
#: A fabric in which no two PEs are alike, with links of all directions.
UNLIKE = Fabric(
    "mixed",
    2,
    2,
    (
        PEKind("first", frozenset({Unit.ALU, Unit.MEMORY}), 2),
        PEKind("all", frozenset(Unit) - {Unit.LANES}, 3, 70),
        PEKind("port", frozenset({Unit.ALU, Unit.MEMORY, Unit.MULTIPLIER}), 0),
        PEKind("table", frozenset({Unit.ALU, Unit.TABLE}), 1, 64),
    ),
    tuple(Link(*pair) for pair in ((0, 1), (0, 2), (0, 3), (1, 0), (1, 3), (2, 0), (2, 3), (3, 1), (3, 2))),
    contexts=4,
    stages=4,
)


def machine_of(fabric: Fabric, **changes: Any) -> MachineConfig:
    """The preset `test` with a grid and room for its configurations."""
    return TEST.replace(cgra=fabric, scratch_bytes=8192, out_bytes=1024, **changes)


#: A CGRA in which no two PEs are alike; its RTL is for `make slow`.
MIXED = machine_of(UNLIKE)
