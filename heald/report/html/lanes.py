"""What happened as columns of numbers: slices of warps and engines, tokens of channels, stores of the grid.

The meaning is that of `cosim.trace`: an instruction of a warp lasts from when it was ready to the end of its
issue cycle, an operation of an engine from when the one before it completed. Columns hold millions of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cosim.job import Event, EventKind, Job, Outcome
from cosim.models.cycle.program import ENGINE, NOP, SIGNAL, WAIT, decode
from cosim.models.cycle.warp import Stop, Warp
from heald.report.html.data import OperatorRow, ProgramTimeline
from hw import isa
from hw.assembly import Code, disassemble_words
from hw.assembly import decode as decode_word
from hw.config import ENGINES, MachineConfig


@dataclass(frozen=True)
class Program:
    """The instructions of a run from `first` on in the table of all; those of a warp follow each other.

    `codes` holds what each word means, the last of each warp stands for every pc outside. `base` is the place
    of each warp's pc 0, relative to `first`.
    """

    first: int
    base: Mapping[int, int]
    sizes: Mapping[int, int]
    codes: tuple[Code | None, ...]
    texts: tuple[str, ...]
    owners: tuple[int, ...]

    def places(self, warps: np.ndarray, pcs: np.ndarray) -> np.ndarray:
        """Places relative to `first` of instructions by warp and pc (shape (n,))."""
        most = 1 + max(*self.base, int(warps.max(initial=0)), 0, 0)
        base, size = np.full(most, -1), np.zeros(most, np.int64)
        for warp, at in self.base.items():
            base[warp], size[warp] = at, self.sizes[warp]
        inside = (pcs >= 0) & (pcs < size[warps])
        outside = np.where(base[warps] < 0, len(self.codes) - 1, base[warps] + size[warps])
        return np.where(inside, base[warps] + pcs, outside)


def program_of(run: ProgramTimeline, first: int) -> Program:
    """The table of a run's instructions."""
    base: dict[int, int] = {}
    codes: list[Code | None] = []
    texts: list[str] = []
    owners: list[int] = []
    for warp, words in sorted(run.job.programs.items()):
        base[warp] = len(codes)
        codes += [decode_word(word) for word in words]
        texts += disassemble_words(words)
        for pc in range(len(words)):
            owner = run.owners.get((warp, pc), run.owner)
            owners.append(-1 if owner is None else owner)
        codes.append(None)
        texts.append("outside the program")
        owners.append(-1)
    codes.append(None)
    texts.append("of a warp without a program")
    owners.append(-1)
    sizes = {warp: len(words) for warp, words in run.job.programs.items()}
    return Program(first, base, sizes, tuple(codes), tuple(texts), tuple(owners))


@dataclass
class Operands:
    """Operand values of the engine operations of each warp, in the order of issue.

    `values[warp]` has shape (n, 4), `parameters[warp]` (n,) are numbers in `table` of parameter values.
    """

    values: dict[int, np.ndarray] = field(default_factory=dict)
    parameters: dict[int, np.ndarray] = field(default_factory=dict)


def operands_of(config: MachineConfig, run: ProgramTimeline, table: dict[tuple[int, ...], int]) -> Operands:
    """What the registers and parameters hold whenever an engine operation issues.

    They depend on the program of the warp alone, so each is executed without its waits and signals.
    """
    counts: dict[int, int] = {}
    for outcome in (run.predicted, run.observed):
        issues: dict[int, int] = {}
        for event in outcome.events:
            if event.kind is EventKind.ISSUE:
                issues[event.warp] = issues.get(event.warp, 0) + 1
        counts = {w: max(counts.get(w, 0), issues.get(w, 0)) for w in {*counts, *issues}}
    found = Operands()
    for warp in run.job.programs:
        rows, numbers = _execute(config, run.job, warp, counts.get(warp, 0), table)
        found.values[warp] = np.array(rows, np.int64).reshape(-1, 4)
        found.parameters[warp] = np.array(numbers, np.int64)
    return found


def _execute(
    config: MachineConfig, job: Job, number: int, most: int, table: dict[tuple[int, ...], int]
) -> tuple[list[list[int]], list[int]]:
    """Operand values and parameters of at most so many operations of a warp."""
    code = [
        (NOP, guard, sense, 0, 0, 0, cycles, None) if kind in (WAIT, SIGNAL)
        else (kind, guard, sense, a, b, c, cycles, extra)
        for kind, guard, sense, a, b, c, cycles, extra in decode(config, job.programs[number])
    ]  # fmt: skip
    warp = Warp(number, config, code, lambda warp: None, [])
    rows: list[list[int]] = []
    numbers: list[int] = []
    warp.start()
    while warp.stop in (Stop.HELD, Stop.TURN) and len(warp.issues.pcs) < most:
        if warp.stop is Stop.TURN:
            warp.start()
            continue
        if warp.held[0] == ENGINE:
            _, name, registers, _ = warp.held[-1]
            rows.append([warp.registers[r] & 0xFFFFFFFF for r in registers])
            own = tuple(warp.parameters[isa.PARAMETERS[p].index] for p in isa.INSTRUCTIONS[name].parameters)
            numbers.append(table.setdefault(own, len(table)))
        elif not warp.set_parameter():
            break
        warp.stop = warp.issue(warp.ready)
    warp.close()
    return rows, numbers


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


def joined(runs: Sequence[Lanes]) -> Lanes:
    """Lanes of runs one after the other."""
    parts: dict[LaneName, list[Columns]] = {}
    for name, columns in ((name, columns) for lanes in runs for name, columns in lanes.items()):
        parts.setdefault(name, []).append(columns)
    return {
        name: {key: np.concatenate([part[key] for part in own]) for key in own[0]}
        for name, own in sorted(parts.items())
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
    return one is not None and other is not None and not different(one, other)


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


#: What a cycle can go to, in the order of the picture, and what that means.
LOSSES = {
    "useful": "array at its peak",
    "partial": "array busy, not full: edges of tiles, start and end of blocks",
    "grid": "grid busy, array idle",
    "fill": "only loading, before the first operation of array or grid",
    "loads": "only loading, array and grid wait",
    "store": "only storing",
    "idle": "no engine busy: latencies and synchronisation",
}
#: Engines of one class; a cycle counts for the first class that is busy in it.
_CLASSES = (("gemm",), ("cgra",), ("load_a", "load_b", "load_c"), ("store",))


@dataclass(frozen=True)
class Busy:
    """Cycles of each class (the last: of none) up to borders, between which nothing changes."""

    borders: np.ndarray
    sums: np.ndarray

    def between(self, start: float, end: float) -> np.ndarray:
        """Cycles of each class from `start` to `end`, shape (5,)."""
        ends = [np.interp([start, end], self.borders, total) for total in self.sums]
        found: np.ndarray = np.array([b - a for a, b in ends])
        return found

    def first(self, start: float, end: float) -> float:
        """The first cycle from `start` on, up to `end`, in which array or grid is busy."""
        work = self.sums[0] + self.sums[1]
        done = float(np.interp(start, self.borders, work))
        # The last border up to which no work was done.
        at = int(np.searchsorted(work, done, "right")) - 1
        return min(max(start, float(self.borders[at])), end)


def busy(lanes: Lanes, cycles: int) -> Busy:
    """What is busy when, on an axis of so many cycles."""
    lists = {ENGINES[n.number]: lane for n, lane in lanes.items() if KINDS[n.kind] == "engine"}
    edges = [lane[key] for lane in lists.values() for key in ("start", "end")]
    borders = np.unique(np.concatenate([*edges, np.array([0, cycles])]))
    lengths = np.diff(borders)
    free = np.ones(len(lengths), bool)
    sums = []
    for engines in _CLASSES:
        on = np.zeros(len(lengths), bool)
        for engine in engines:
            if engine in lists:
                # Slices of an engine do not overlap: in one if more began than ended.
                began = np.searchsorted(lists[engine]["start"], borders[:-1], "right")
                ended = np.searchsorted(lists[engine]["end"], borders[:-1], "right")
                on |= began > ended
        sums.append(np.where(on & free, lengths, 0))
        free &= ~on
    sums.append(np.where(free, lengths, 0))
    totals = [np.concatenate([[0], np.cumsum(part)]) for part in sums]
    return Busy(borders.astype(np.float64), np.array(totals, np.float64))


def losses(found: Busy, operator: OperatorRow, macs_per_cycle: int) -> dict[str, int]:
    """Cycles of an operator by what they went to (keys of `LOSSES`); their sum are its cycles."""
    array, grid, loads, store, idle = found.between(operator.start, operator.end).round().astype(int).tolist()
    useful = min(-(-operator.macs // macs_per_cycle), array)
    begin = found.first(operator.start, operator.end)
    fill = min(round(float(found.between(operator.start, begin)[2])), loads)
    return {
        "useful": useful,
        "partial": array - useful,
        "grid": grid,
        "fill": fill,
        "loads": loads - fill,
        "store": store,
        "idle": idle,
    }
