"""Grids of processing elements as values of a parameter: by name, with their sizes as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hw.config import NO_GRID
from hw.fabric import Fabric
from hw.fabric import toml as fabrics

#: Names that formulas have besides the fields of a machine.
SIZES: Mapping[str, str] = {
    "cgra_rows": "rows of the grid, 0 without one",
    "cgra_cols": "columns of the grid, 0 without one",
    "cgra_pes": "processing elements of the grid, 0 without one",
}


def grid(name: str, folder: Path) -> Fabric | None:
    """The grid of a name or of a file seen from a folder, None for `none`.

    Raises `InputError` for what is no grid.
    """
    if name == NO_GRID:
        return None
    return fabrics.load(str(folder / name) if "/" in name or name.endswith(".toml") else name)


def sizes(fabric: Fabric | None) -> dict[str, int]:
    """Rows, columns and PEs of a grid."""
    rows, cols = (fabric.rows, fabric.cols) if fabric is not None else (0, 0)
    return dict(zip(SIZES, (rows, cols, rows * cols), strict=True))
