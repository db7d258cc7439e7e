"""Which instance of the design a cell of the flattened netlist belongs to.

Yosys names a cell after the nearest signal of the source, with the path of its instance in front
(`warp0.multiply.sum_LUT4_Z`), and keeps the path of every instance that was flattened as a `$scopeinfo` cell.
Logic between two instances counts where the signal it was named after lies: sums are exact, borders are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hw.synthesis.resources import Resources

SCOPE = "$scopeinfo"
#: Pins of cells that take a clock.
CLOCK_PINS = frozenset({"CLK", "WCK", "CLKA", "CLKB", "CLK0", "CLK1", "CLK2", "CLK3"})


def by_component(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Numbers of cells by type, for each path of an instance; the top's own path is ""."""
    paths = frozenset(name for name, cell in cells.items() if cell["type"] == SCOPE)
    found: dict[str, Counter[str]] = {}
    for name, cell in cells.items():
        if cell["type"] != SCOPE:
            found.setdefault(component(name, paths), Counter())[cell["type"]] += 1
    for path in paths:
        found.setdefault(path, Counter())
    return found


def component(name: str, paths: Iterable[str]) -> str:
    """The longest path of an instance that a cell's or a net's name begins with, "" for the top."""
    known = paths if isinstance(paths, frozenset) else frozenset(paths)
    end = len(name)
    while (end := name.rfind(".", 0, end)) > 0:
        if name[:end] in known:
            return name[:end]
    return ""


def grouped(components: Mapping[str, Resources], share: float = 0.5) -> dict[str, Resources]:
    """The sums over the groups of `groups`, largest first."""
    sums: dict[str, Resources] = {}
    for path, group in groups(components, share).items():
        sums[group] = sums.get(group, Resources()) + components[path]
    return dict(sorted(sums.items(), key=lambda item: (-item[1].luts, item[0])))


def groups(components: Mapping[str, Resources], share: float) -> dict[str, str]:
    """The group of each path of an instance: the top's instance that it lies in.

    An instance with more than `share` of all LUTs is told by its own instances; its name then stands for its
    own cells alone.
    """
    total = sum(resources.luts for resources in components.values())
    level = dict.fromkeys(components, 1)  # how many parts of each path its group's name has
    while True:
        members: dict[str, list[str]] = {}
        for path in components:
            members.setdefault(".".join(path.split(".")[: level[path]]), []).append(path)
        large = [
            paths
            for paths in members.values()
            if len(paths) > 1 and sum(components[path].luts for path in paths) > share * total
        ]
        if not large:
            return {path: group for group, paths in members.items() for path in paths}
        for paths in large:
            for path in paths:
                level[path] += 1
