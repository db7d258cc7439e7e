"""The instructions of all runs in one table, and the values that engine operations were issued with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cosim.job import EventKind, Job
from cosim.models.cycle.program import ENGINE, NOP, SIGNAL, WAIT, decode
from cosim.models.cycle.warp import Stop, Warp
from hw import isa
from hw.assembly import Code, disassemble_words
from hw.assembly import decode as decode_word
from hw.config import MachineConfig
from jacquard.report.html.data import Run


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


def program_of(run: Run, first: int) -> Program:
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


def operands_of(config: MachineConfig, run: Run, table: dict[tuple[int, ...], int]) -> Operands:
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
