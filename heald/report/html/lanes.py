"""The lanes of the timeline: those of `cosim.lanes`, plus operands of engine operations, on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cosim.job import EventKind, Job, Outcome
from cosim.lanes import KINDS, Columns, LaneName, Lanes, Program, lanes_of
from cosim.models.cycle.program import NOP, SIGNAL, WAIT, decode
from cosim.models.cycle.warp import Stop, Warp
from heald.report.html.data import ProgramTimeline
from hw import isa
from hw.config import MachineConfig


@dataclass
class Operands:
    """Operand values of each warp's engine operations, in issue order.

    `values[warp]` has shape (n, 4); `parameters[warp]` (n,) are indices into `table` of parameter values.
    """

    values: dict[int, np.ndarray] = field(default_factory=dict)
    parameters: dict[int, np.ndarray] = field(default_factory=dict)


def operands_of(config: MachineConfig, run: ProgramTimeline, table: dict[tuple[int, ...], int]) -> Operands:
    """Values of registers and parameters at each issue of an engine operation.

    They depend only on the warp's own program, so each is executed without its waits and signals.
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
    """Operand values and parameters of at most `most` operations of a warp."""
    code = [
        (NOP, guard, sense, 0, 0, 0, turns, None) if kind in (WAIT, SIGNAL)
        else (kind, guard, sense, a, b, c, turns, extra)
        for kind, guard, sense, a, b, c, turns, extra in decode(config, job.programs[number])
    ]  # fmt: skip
    warp = Warp(number, config, code, lambda warp: None, [])
    rows: list[list[int]] = []
    numbers: list[int] = []
    warp.start()
    while warp.stop in (Stop.HELD, Stop.TURN) and len(warp.issues.pcs) < most:
        if warp.stop is Stop.TURN:
            warp.start()
            continue
        # Only engine operations hold it: waits and signals were removed.
        _, name, registers, _ = warp.held[-1]
        rows.append([warp.registers[r] & 0xFFFFFFFF for r in registers])
        own = tuple(warp.parameters[isa.PARAMETERS[p].index] for p in isa.INSTRUCTIONS[name].parameters)
        numbers.append(table.setdefault(own, len(table)))
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


def joined(runs: Sequence[Lanes]) -> Lanes:
    """The lanes of successive runs, joined."""
    parts: dict[LaneName, list[Columns]] = {}
    for name, columns in ((name, columns) for lanes in runs for name, columns in lanes.items()):
        parts.setdefault(name, []).append(columns)
    return {
        name: {key: np.concatenate([part[key] for part in own]) for key in own[0]}
        for name, own in sorted(parts.items())
    }


def run_lanes(program: Program, operands: Operands, outcome: Outcome, start: int, first: int) -> Lanes:
    """The lanes of one outcome, with cycle 0 at `start` on the axis, and with operands of operations.

    `first` is where its program begins in the table of all instructions.
    """
    found = lanes_of(program, outcome)
    for name, columns in found.items():
        if KINDS[name.kind] == "engine":
            columns |= _operands(operands, columns.pop("warp"), columns.pop("ordinal"))
        for key in ("start", "end", "cycle", "issued"):
            if key in columns:
                columns[key] = columns[key] + start
        if "code" in columns:
            columns["code"] = columns["code"] + 2 * first
    return found


def _operands(operands: Operands, warp: np.ndarray, ordinal: np.ndarray) -> Columns:
    """Operand values of operations; the parameters' index is -1 if there are none."""
    values = np.zeros((len(warp), 4), np.int64)
    parameters = np.full(len(warp), -1)
    for number, rows in operands.values.items():
        own = np.flatnonzero((warp == number) & (ordinal < len(rows)))
        values[own] = rows[ordinal[own]]
        parameters[own] = operands.parameters[number][ordinal[own]]
    return {f"value{i}": values[:, i] for i in range(4)} | {"parameters": parameters}


def equal(one: Columns | None, other: Columns | None) -> bool:
    """Whether two lanes are equal."""
    return one is not None and other is not None and not different(one, other)


def different(one: Columns | None, other: Columns | None) -> int:
    """Number of differing entries of two lanes, compared in order."""
    if one is None or other is None:
        return sum(len(next(iter(lane.values()))) for lane in (one, other) if lane is not None)
    counts = [len(next(iter(lane.values()))) for lane in (one, other)]
    both = min(counts)
    wrong = np.zeros(both, bool)
    for key in one:
        wrong |= one[key][:both] != other[key][:both]
    return int(wrong.sum()) + max(counts) - both
