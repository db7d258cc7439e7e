"""Reads that nothing feeds: a program that reads what no instruction has written (docs/warps.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sw.check.dependences import accesses_of
from sw.check.trace import Trace
from sw.ir.errors import IRError
from sw.ir.expression import evaluate
from sw.ir.intrinsics import effects
from sw.ir.program import Region, print_access

_NEVER = np.iinfo(np.int64).max


def unfed(runs: Sequence[Trace]) -> IRError | None:
    """The error of the first read that is fed in no run and no iteration; None where there is none.

    A read is fed where an instruction has written any part of its region before. A buffer in memory brings
    its contents along, and so does one of no stated space that no instruction writes.
    """
    fed: set[tuple[int, int]] = set()
    starved: set[tuple[int, int]] = set()
    for run in runs:
        written = {a.buffer if isinstance(a, Region) else None for a in _writes(run)}
        for b in run.program.buffers:
            if b.space == "memory" or (b.space is None and not written & {b.name, None}):
                continue
            accesses = accesses_of(run, b.name, [evaluate(size, run.values) for size in b.shape])
            # The first write of any cell that an access touches.
            first = np.full(accesses.time.size, _NEVER)
            for index, cell in accesses.cells():
                numbers, place = np.unique(cell, return_inverse=True)
                earliest = np.full(numbers.size, _NEVER)
                write = accesses.write[index]
                np.minimum.at(earliest, place[write], accesses.time[index[write]])
                np.minimum.at(first, index, earliest[place])
            after = first < accesses.time
            for known, chosen in ((fed, after), (starved, ~after)):
                reads = np.unique(accesses.place[:, chosen & ~accesses.write], axis=1)
                known.update((row, number) for row, number in reads.T.tolist())
    for row, number in sorted(starved - fed):
        i = runs[0].rows[row].instruction
        region = print_access(effects(i)[0][number])
        found = f"{i.label}, which reads {region} that no instruction writes before it"
        return IRError(i.where, found, "a producer that feeds it, or a buffer in memory")
    return None


def _writes(run: Trace) -> list[object]:
    return [a for rows in run.rows for a in effects(rows.instruction)[1]]
