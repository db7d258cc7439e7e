"""Regular links of a grid: mesh, torus, diagonals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from hw.fabric.fabric import Fabric, Link

_NEIGHBOURS = ((0, 1), (1, 0), (0, -1), (-1, 0))
_DIAGONALS = ((1, 1), (1, -1), (-1, 1), (-1, -1))


def mesh(rows: int, cols: int) -> set[Link]:
    """Both directions between neighbours in a row or a column."""
    return _steps(rows, cols, _NEIGHBOURS, wrap=False)


def torus(rows: int, cols: int) -> set[Link]:
    """The mesh, and both directions between the ends of every row and column."""
    return _steps(rows, cols, _NEIGHBOURS, wrap=True)


def diagonal(rows: int, cols: int) -> set[Link]:
    """Both directions between diagonal neighbours."""
    return _steps(rows, cols, _DIAGONALS, wrap=False)


#: The regular links by name.
STYLES: dict[str, Callable[[int, int], set[Link]]] = {"mesh": mesh, "torus": torus, "diagonal": diagonal}


def _steps(rows: int, cols: int, steps: Iterable[tuple[int, int]], wrap: bool) -> set[Link]:
    found = set()
    for row, col, (down, right) in itertools.product(range(rows), range(cols), steps):
        to = row + down, col + right
        if wrap:
            to = to[0] % rows, to[1] % cols
        if 0 <= to[0] < rows and 0 <= to[1] < cols and to != (row, col):
            found.add(Link(row * cols + col, to[0] * cols + to[1]))
    return found


def nearest(fabric: Fabric) -> tuple[tuple[str, ...], list[Link], list[Link]]:
    """The regular links that come nearest to those of a fabric, then what it has beside them, and lacks."""
    own = set(fabric.links)
    best: tuple[tuple[str, ...], list[Link], list[Link]] = ((), sorted(own), [])
    for styles in ((), ("mesh",), ("torus",), ("diagonal",), ("mesh", "diagonal"), ("torus", "diagonal")):
        regular = {link for name in styles for link in STYLES[name](fabric.rows, fabric.cols)}
        extra, missing = sorted(own - regular), sorted(regular - own)
        if len(extra) + len(missing) < len(best[1]) + len(best[2]):
            best = styles, extra, missing
    return best
