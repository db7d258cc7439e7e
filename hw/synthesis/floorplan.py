"""A floorplan: places block RAMs and multipliers near the part of the design that they belong to.

A placer that starts from nothing finds no good arrangement of large parts: an array of PEs is folded, with
neighbours at opposite ends of the chip, and no later step repairs that. Here the instances of a design are
annealed as units of equal size on a coarse array of slots. Instances with many common nets end up together,
and those with block RAMs and multipliers near sites for them (a quadratic assignment problem). Only the block
RAMs and multipliers are then fixed, each at a site near its connections; the placer is free to arrange
everything else around them.

A placer that only minimises wire length also packs an array of PEs so densely that the router runs out of
wires. Where a die has room, whole rows of tiles are therefore left empty.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hw.synthesis.nets import SCOPE, component
from hw.synthesis.resources import CLOCK_PINS, Resources, groups

Cells = Mapping[str, Mapping[str, Any]]
Floats = npt.NDArray[np.float64]

#: Slots per row and per column of the die, and the fraction of them that is filled.
_SLOTS, _FILLED = (16, 12), 0.96
#: Fraction of all pins above which an instance is split into its own instances.
_SHARE = 1 / 16
#: Nets with more ends than this are ignored.
_ENDS = 12
#: Attraction between units of the same instance, per pin.
_COHESION = 0.4
#: Number of annealing runs (the best one counts), moves per run, and final temperature relative to the first.
_TRIES, _MOVES, _COLD = 4, 20_000_000, 2e-4
#: With empty rows: maximum fraction of LUTs filled in the others, and maximum fraction of empty rows.
_DENSE, _EMPTY = 0.45, 0.5
#: The LUTs of a tile.
_TABLES = tuple(f"SLICE{slice_}.K{k}" for slice_ in "ABCD" for k in (0, 1))
#: Vertical distance counts more than horizontal, because few wires cross a row of special sites.
_VERTICAL = 1.5


@dataclass(frozen=True)
class Die:
    """The special sites of a die of `columns` x `rows` tiles: their positions by cell type and name."""

    columns: int
    rows: int
    sites: Mapping[str, Mapping[str, tuple[int, int]]]


def _die_85() -> Die:
    """LFE5U-85: groups of four block RAMs or multipliers in each of their rows, with a gap in the middle."""
    bases = (*range(4, 59, 9), *range(69, 115, 9))
    memories = {
        f"X{base + 2 * i}/Y{y}/EBR{i}": (base + 2 * i, y)
        for y, base, i in itertools.product((22, 46, 70, 82), bases, range(4))
    }
    multipliers = {
        f"X{base + i}/Y{y}/MULT18_{i}": (base + i, y)
        for y, base, i in itertools.product((10, 34, 58), bases, (0, 1, 4, 5))
    }
    return Die(126, 95, {"DP16KD": memories, "MULT18X18D": multipliers})


#: Dies by their number of LUTs.
DIES = {83_640: _die_85()}


def plan(cells: Cells, die: Die, seed: int) -> dict[str, str]:
    """Chooses sites for the block RAMs and multipliers of a Yosys netlist, by cell name.

    Empty if the die has too few sites, or if the design has no instances or too many. Equal arguments give
    equal plans.
    """
    macros = {kind: [n for n, c in cells.items() if c["type"] == kind] for kind in die.sites}
    if any(len(names) > len(die.sites[kind]) for kind, names in macros.items()) or not any(macros.values()):
        return {}
    owner = _owners(cells)
    ends = _ends(cells, owner)
    joined = _joined(ends)
    owner = {name: joined[instance] for name, instance in owner.items() if instance in joined}
    ends = _ends(cells, owner)
    centre = _annealed(cells, owner, ends, die, seed)
    if not centre:
        return {}
    found: dict[str, str] = {}
    for kind, names in macros.items():
        wanted = np.array([_wanted(cells[n], owner.get(n), ends, centre) for n in names]).reshape(-1, 2)
        found |= _assigned(names, wanted, die.sites[kind])
    return found


def left_empty(die: Die, luts: int) -> list[str]:
    """Sites of LUTs that a design with `luts` LUTs can leave empty, as whole rows of tiles.

    The rows are spread evenly; there are none if the design needs the whole die. Carry chains run along rows,
    so an empty row blocks none.
    """
    special = {y for sites in die.sites.values() for _, y in sites.values()}
    # The rim of a die consists of other tiles.
    rows = [y for y in range(2, die.rows - 1) if y not in special]
    columns = range(2, die.columns - 1)
    needed = luts / (_DENSE * len(_TABLES) * len(rows) * len(columns))
    share = min(max(0.0, 1 - needed), _EMPTY)
    empty = [y for i, y in enumerate(rows) if int((i + 1) * share) > int(i * share)]
    return [f"X{x}/Y{y}/{table}" for y in empty for x in columns for table in _TABLES]


def _bits(cell: Mapping[str, Any]) -> list[int]:
    """The nets of a cell's pins, without clocks."""
    pins = (bits for pin, bits in cell["connections"].items() if pin not in CLOCK_PINS)
    return [bit for bits in pins for bit in bits if isinstance(bit, int)]


def _owners(cells: Cells) -> dict[str, str]:
    """The instance to which each cell belongs; large instances are split into their own instances."""
    paths = frozenset(name for name, cell in cells.items() if cell["type"] == SCOPE)
    own = {name: component(name, paths) for name, cell in cells.items() if cell["type"] != SCOPE}
    pins = Counter[str]()
    for name, path in own.items():
        pins[path] += len(_bits(cells[name]))
    # Wires are the scarce resource, so the size of a part is its number of pins.
    group = groups({path: Resources(luts=count) for path, count in pins.items()}, _SHARE)
    # Logic of the top itself may lie anywhere between its instances.
    return {name: group[path] for name, path in own.items() if path}


def _ends(cells: Cells, owner: Mapping[str, str]) -> dict[int, Counter[str]]:
    """For each net, the number of its ends in each instance."""
    ends: dict[int, Counter[str]] = {}
    for name, instance in owner.items():
        for bit in _bits(cells[name]):
            ends.setdefault(bit, Counter())[instance] += 1
    return ends


def _joined(ends: Mapping[int, Counter[str]]) -> dict[str, str]:
    """Maps an instance to itself or, if it fills less than half a slot, to one with many common nets."""
    pins, names = _sizes(ends)
    common, size = _common(names, ends), np.array([pins[name] for name in names], float)
    least = size.sum() / (_SLOTS[0] * _SLOTS[1]) / 2
    joined = list(range(len(names)))
    while len(alive := np.flatnonzero(size)) > 1 and size[small := alive[size[alive].argmin()]] < least:
        np.fill_diagonal(common, 0)
        near = int(common[small].argmax()) if common[small].any() else int(alive[size[alive].argmax()])
        common[near] += common[small]
        common[:, near] += common[:, small]
        common[small] = common[:, small] = 0
        size[near] += size[small]
        size[small] = 0
        joined = [near if j == small else j for j in joined]
    return {name: names[j] for name, j in zip(names, joined, strict=True)}


def _sizes(ends: Mapping[int, Counter[str]]) -> tuple[Counter[str], list[str]]:
    """Number of pins by instance, and the instances in a fixed order."""
    pins = Counter[str]()
    for counts in ends.values():
        pins.update(counts)
    return pins, sorted(pins)


def _common(names: list[str], ends: Mapping[int, Counter[str]]) -> Floats:
    """Number of nets shared by each pair of instances; a net of several counts partly for each pair."""
    index = {name: i for i, name in enumerate(names)}
    common = np.zeros((len(names), len(names)))
    for counts in ends.values():
        if 2 <= len(counts) <= _ENDS:
            some = [index[name] for name in counts]
            common[np.ix_(some, some)] += 1 / (len(some) - 1)
    return common


def _annealed(
    cells: Cells, owner: Mapping[str, str], ends: Mapping[int, Counter[str]], die: Die, seed: int
) -> dict[str, Floats]:
    """The centre of each instance on the die; empty if there are no instances, or more than slots."""
    pins, names = _sizes(ends)
    slots = _SLOTS[0] * _SLOTS[1]
    if not 0 < len(names) <= slots:
        return {}
    size = np.array([pins[name] for name in names], float)
    most = size.sum() / (_FILLED * slots)
    while (count := np.maximum(1, np.rint(size / most)).astype(int)).sum() > slots:
        most *= 1.01
    units = np.repeat(np.arange(len(names)), count)
    pull = np.zeros((slots, slots))
    pull[: len(units), : len(units)] = _pull(names, ends, size, count)[np.ix_(units, units)]
    np.fill_diagonal(pull, 0)
    width, height = die.columns / _SLOTS[0], die.rows / _SLOTS[1]
    rows, columns = np.divmod(np.arange(slots), _SLOTS[0])
    places = np.stack([(columns + 0.5) * width, (rows + 0.5) * height], axis=1)
    distance = np.abs(places[:, None] - places[None]).sum(2)
    away = np.zeros((slots, slots))
    away[: len(units)] = (_away(names, cells, owner, die, places) / count[:, None])[units]

    def cost(at: npt.NDArray[np.int64]) -> float:
        return float((pull * distance[np.ix_(at, at)]).sum() / 2 + away[np.arange(slots), at].sum())

    tries = [
        _anneal(pull, distance, away, len(units), _MOVES, _COLD, seed * _TRIES + i) for i in range(_TRIES)
    ]
    at = min(tries, key=cost)[: len(units)]
    return {name: places[at[units == i]].mean(0) for i, name in enumerate(names)}


def _away(names: list[str], cells: Cells, owner: Mapping[str, str], die: Die, places: Floats) -> Floats:
    """Cost of each instance at each place: pins of its special cells times the distance to their sites."""
    index = {name: i for i, name in enumerate(names)}
    pins = {kind: np.zeros(len(names)) for kind in die.sites}
    for name, instance in owner.items():
        if (kind := cells[name]["type"]) in pins:
            pins[kind][index[instance]] += len(_bits(cells[name]))
    cost = np.zeros((len(names), len(places)))
    for kind, sites in die.sites.items():
        nearest = np.abs(places[:, None] - np.array(list(sites.values()), float)[None]).sum(2).min(1)
        cost += np.outer(pins[kind], nearest)
    return cost


def _pull(
    names: list[str], ends: Mapping[int, Counter[str]], size: Floats, count: npt.NDArray[np.int64]
) -> Floats:
    """Attraction between units of two instances, and between units of the same instance."""
    pull = _common(names, ends) / np.outer(count, count)
    np.fill_diagonal(pull, _COHESION * size / count**2)
    return pull


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _anneal(
    pull: Floats, distance: Floats, away: Floats, units: int, moves: int, cold: float, seed: int
) -> npt.NDArray[np.int64]:
    """Assigns units to slots so that the sum of pull times distance, plus that of `away`, is small."""
    np.random.seed(seed)
    slots = len(pull)
    at = np.random.permutation(slots)
    total = 0.0
    for i in range(units):
        for j in range(units):
            total += pull[i, j] * distance[at[i], at[j]]
    hot = total / 2 / units * 0.25
    for move in range(moves):
        i, j = np.random.randint(units), np.random.randint(slots)
        if i == j:
            continue
        a, b = at[i], at[j]
        change = 0.0
        for k in range(units):
            if k != i and k != j:
                change += (pull[i, k] - pull[j, k]) * (distance[b, at[k]] - distance[a, at[k]])
        change += away[i, b] - away[i, a] + away[j, a] - away[j, b]
        heat = hot * cold ** (move / moves)
        if change <= 0 or np.random.random() < np.exp(-change / heat):
            at[i], at[j] = b, a
    return at


def _wanted(
    cell: Mapping[str, Any], own: str | None, ends: Mapping[int, Counter[str]], centre: Mapping[str, Floats]
) -> Floats:
    """The preferred position of a cell: the centre of what its nets connect to."""
    place, weight = np.zeros(2), 0.0
    for bit in _bits(cell):
        counts = ends.get(bit, Counter[str]())
        if len(counts) <= _ENDS:
            for name, number in counts.items():
                share = min(number, 4) / len(counts)
                place, weight = place + share * centre[name], weight + share
    if weight:
        return place / weight
    return centre[own] if own is not None else np.mean(list(centre.values()), axis=0)


def _assigned(names: list[str], wanted: Floats, sites: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Assigns a site to each cell, minimising total distance; long distances count more than linearly."""
    from scipy.optimize import linear_sum_assignment

    away = np.abs(wanted[:, None] - np.array(list(sites.values()), float)[None])
    cost = (away[:, :, 0] + _VERTICAL * away[:, :, 1]) ** 1.3
    chosen = list(sites)
    return {names[i]: chosen[j] for i, j in zip(*linear_sum_assignment(cost), strict=True)}
