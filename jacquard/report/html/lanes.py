"""What happened as columns of numbers: slices of warps and engines, tokens of channels, stores of the grid.

The meaning is that of `cosim.trace`: an instruction of a warp lasts from when it was ready to the end of its
issue cycle, an operation of an engine from when the one before it completed. Columns hold millions of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cosim.job import Event, EventKind, Outcome
from hw.config import ENGINES
from jacquard.report.html.instructions import Operands, Program

#: Columns of a lane by its kind.
COLUMNS = {
    "warp": ("start", "end", "code"),
    "engine": ("start", "end", "code", "issued", "value0", "value1", "value2", "value3", "parameters"),
    "channel": ("cycle", "tokens"),
    "grid": ("cycle", "address", "value"),
}
#: Order of kinds on the page.
KINDS = tuple(COLUMNS)

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, order=True)
class LaneName:
    """Kind (by its place in `KINDS`) and number of a warp, engine, channel or PE."""

    kind: int
    number: int

    def __str__(self) -> str:
        if KINDS[self.kind] == "engine":
            return ENGINES[self.number].replace("_a", " A").replace("_b", " B").replace("_c", " C")
        return f"{('warp', '', 'channel', 'grid PE')[self.kind]} {self.number}"


Lanes = dict[LaneName, Columns]


@dataclass
class Joined:
    """Lanes of runs one after the other."""

    parts: dict[LaneName, list[Columns]] = field(default_factory=dict)

    def add(self, lanes: Lanes) -> None:
        """Append the lanes of a run."""
        for name, columns in lanes.items():
            self.parts.setdefault(name, []).append(columns)

    def lanes(self) -> Lanes:
        """All as one."""
        return {
            name: {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
            for name, parts in sorted(self.parts.items())
        }


def lanes_of(program: Program, operands: Operands, outcome: Outcome, start: int) -> Lanes:
    """The lanes of one outcome of a run whose cycle 0 is cycle `start` of the axis."""
    table = _table(outcome.events)
    cycle, warp, kind, pc = table.T
    code = program.places(warp, pc)
    found: Lanes = {}
    happened = (kind == EventKind.ISSUE) | (kind == EventKind.VOID)
    cost = np.array([1 if c is None else c.spec.cycles for c in program.codes])
    for number in program.base:
        own = happened & (warp == number)
        void = kind[own] == EventKind.VOID
        found[LaneName(0, number)] = _warp(cycle[own], code[own], void, cost)
    _engines(found, program, operands, cycle, warp, kind, code)
    _channels(found, program, cycle, kind, code)
    _stores(found, outcome)
    for columns in found.values():
        for key in ("start", "end", "cycle", "issued"):
            if key in columns:
                columns[key] = columns[key] + start
        if "code" in columns:
            columns["code"] = columns["code"] + 2 * program.first
    return found


def _table(events: Sequence[Event]) -> np.ndarray:
    """Events as rows of cycle, warp, kind and pc."""
    flat = np.fromiter(itertools.chain.from_iterable(events), np.int64, 4 * len(events))
    return flat.reshape(-1, 4)


def _warp(cycle: np.ndarray, code: np.ndarray, void: np.ndarray, cost: np.ndarray) -> Columns:
    """Instructions of a warp; `code` is twice the place in the table, plus 1 where the predicate is false."""
    after = cycle + np.where(void, 1, cost[code])
    ready = np.concatenate([np.zeros(1, np.int64), after[:-1]])[: len(cycle)]
    return {"start": np.minimum(ready, cycle), "end": cycle + 1, "code": 2 * code + void}


def _engines(
    found: Lanes,
    program: Program,
    operands: Operands,
    cycle: np.ndarray,
    warp: np.ndarray,
    kind: np.ndarray,
    code: np.ndarray,
) -> None:
    """Operations by engine: the n-th to complete of a warp is the n-th that it issued."""
    engine = np.array([_engine(c) for c in program.codes])[code]
    issued = np.full(len(cycle), -1)
    ordinal = np.full(len(cycle), -1)
    for number in program.base:
        own = (warp == number) & (engine >= 0)
        begins = cycle[own & (kind == EventKind.ISSUE)]
        ends = np.flatnonzero(own & (kind == EventKind.COMPLETE))[: len(begins)]
        issued[ends] = begins[: len(ends)]
        ordinal[ends] = np.arange(len(ends))
    for number in range(len(ENGINES)):
        own = np.flatnonzero((engine == number) & (issued >= 0))
        if not len(own):
            continue
        end = cycle[own] + 1
        free = np.concatenate([np.zeros(1, np.int64), end[:-1]])
        start = np.minimum(np.maximum(issued[own] + 1, free), cycle[own])
        columns = {"start": start, "end": end, "code": 2 * code[own], "issued": issued[own]}
        columns |= _operands(operands, warp[own], ordinal[own])
        found[LaneName(1, number)] = columns


def _engine(code: object) -> int:
    """The number of the engine that executes an instruction, or -1."""
    engine = getattr(getattr(code, "spec", None), "engine", None)
    return -1 if engine is None else ENGINES.index(engine)


def _operands(operands: Operands, warp: np.ndarray, ordinal: np.ndarray) -> Columns:
    """Operand values of operations; -1 as the number of parameters where there is none."""
    values = np.zeros((len(warp), 4), np.int64)
    parameters = np.full(len(warp), -1)
    for number, rows in operands.values.items():
        own = np.flatnonzero((warp == number) & (ordinal < len(rows)))
        values[own] = rows[ordinal[own]]
        parameters[own] = operands.parameters[number][ordinal[own]]
    return {f"value{i}": values[:, i] for i in range(4)} | {"parameters": parameters}


def _channels(found: Lanes, program: Program, cycle: np.ndarray, kind: np.ndarray, code: np.ndarray) -> None:
    """Tokens in each channel from a cycle on, where the number changes; each starts with none."""
    given = [-1 if c is None or "channel" not in c.fields else c.fields["channel"] for c in program.codes]
    taken = np.array([c is not None and c.name == "wait" for c in program.codes])[code]
    channel = np.array(given)[code]
    change = np.where(kind == EventKind.SIGNAL, 1, np.where((kind == EventKind.ISSUE) & taken, -1, 0))
    for number in np.unique(channel[(channel >= 0) & (change != 0)]).tolist():
        own = (channel == number) & (change != 0)
        at, place = np.unique(cycle[own] + 1, return_inverse=True)
        total = np.cumsum(np.bincount(place, change[own]).astype(np.int64))
        columns = {"cycle": np.concatenate([[0], at]), "tokens": np.concatenate([[0], total])}
        found[LaneName(2, number)] = columns


def _stores(found: Lanes, outcome: Outcome) -> None:
    """What each PE of the grid stored."""
    stored = outcome.stored
    flat = np.fromiter(itertools.chain.from_iterable(stored), np.int64, 4 * len(stored)).reshape(-1, 4)
    for pe in np.unique(flat[:, 1]).tolist():
        own = flat[flat[:, 1] == pe]
        found[LaneName(3, pe)] = {"cycle": own[:, 0], "address": own[:, 2], "value": own[:, 3]}


def equal(one: Columns | None, other: Columns | None) -> bool:
    """Whether two lanes hold the same."""
    if one is None or other is None:
        return False
    return all(np.array_equal(one[key], other[key]) for key in one)


def different(one: Columns | None, other: Columns | None) -> int:
    """How many of two lanes' entries differ, the n-th compared with the n-th."""
    if one is None or other is None:
        return sum(len(next(iter(lane.values()))) for lane in (one, other) if lane is not None)
    counts = [len(next(iter(lane.values()))) for lane in (one, other)]
    both = min(counts)
    wrong = np.zeros(both, bool)
    for key in one:
        wrong |= one[key][:both] != other[key][:both]
    return int(wrong.sum()) + max(counts) - both


def names(sides: Iterable[Lanes]) -> list[LaneName]:
    """All lanes of model and RTL in the order of the page."""
    return sorted({name for side in sides for name in side})
