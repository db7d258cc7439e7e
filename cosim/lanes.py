"""Events as columns of numbers: slices of warps and engines, tokens of sync channels, stores of the CGRA.

An instruction of a warp lasts from the cycle in which it is ready to the end of its issue cycle, so stalls
are visible. An operation of an engine lasts from the completion of the previous one. Traces, the report's
timeline and the causes of bottlenecks are built from these columns, which hold millions of entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosim.job import Event, EventKind, Job, Outcome
from hw.assembly import Code, decode
from hw.config import ENGINES, MachineConfig

#: Kinds of lanes, in the report's order.
KINDS = ("warp", "engine", "channel", "grid")

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, order=True)
class LaneName:
    """Kind (an index into `KINDS`) and number of a warp, engine, channel or PE."""

    kind: int
    number: int

    def __str__(self) -> str:
        if KINDS[self.kind] == "engine":
            return ENGINES[self.number].replace("_a", " A").replace("_b", " B").replace("_c", " C")
        return f"{('warp', '', 'channel', 'grid PE')[self.kind]} {self.number}"


Lanes = dict[LaneName, Columns]


@dataclass(frozen=True)
class Program:
    """The instructions of a job; those of a warp are contiguous, from `base[warp]` on.

    `codes` holds the decoded words. Each warp's last entry stands for all pcs outside its program, and the
    very last entry for warps without a program. `period` is the number of cycles between turns of a warp.
    """

    base: Mapping[int, int]
    sizes: Mapping[int, int]
    codes: tuple[Code | None, ...]
    period: int

    @classmethod
    def of(cls, job: Job, config: MachineConfig) -> Program:
        """Decode the instructions of all warps."""
        base: dict[int, int] = {}
        codes: list[Code | None] = []
        for warp, words in sorted(job.programs.items()):
            base[warp] = len(codes)
            codes += [*map(decode, words), None]
        sizes = {warp: len(words) for warp, words in job.programs.items()}
        return cls(base, sizes, (*codes, None), config.derived.period)

    def places(self, warps: np.ndarray, pcs: np.ndarray) -> np.ndarray:
        """Indices of instructions by warp and pc (shape (n,))."""
        most = 1 + max(*self.base, int(warps.max(initial=0)), 0, 0)
        base, size = np.full(most, -1), np.zeros(most, np.int64)
        for warp, at in self.base.items():
            base[warp], size[warp] = at, self.sizes[warp]
        inside = (pcs >= 0) & (pcs < size[warps])
        outside = np.where(base[warps] < 0, len(self.codes) - 1, base[warps] + size[warps])
        return np.where(inside, base[warps] + pcs, outside)


def lanes_of(program: Program, outcome: Outcome) -> Lanes:
    """The lanes of one outcome of a job.

    A warp has `start`, `end` and `code` (twice the instruction's index, plus 1 if its predicate is false). An
    engine has the same, plus `issued`, `warp`, and the operation's `ordinal` among those of its warp. A
    channel has its `tokens` from a `cycle` on. A PE has `cycle`, `address` and `value` of its stores.
    """
    cycle, warp, kind, pc = table(outcome.events).T
    code = program.places(warp, pc)
    found: Lanes = {}
    happened = (kind == EventKind.ISSUE) | (kind == EventKind.VOID)
    cost = np.array([1 if c is None else c.spec.turns for c in program.codes]) * program.period
    for number in program.base:
        own = happened & (warp == number)
        void = kind[own] == EventKind.VOID
        after = cycle[own] + np.where(void, program.period, cost[code[own]])
        ready = np.concatenate([[number], after[:-1]])[: len(after)]
        columns = {"start": np.minimum(ready, cycle[own]), "end": cycle[own] + 1}
        found[LaneName(0, number)] = columns | {"code": 2 * code[own] + void}
    _engines(found, program, cycle, warp, kind, code)
    _channels(found, program, cycle, kind, code)
    _stores(found, outcome)
    return found


def table(events: Sequence[Event]) -> np.ndarray:
    """Events as rows of cycle, warp, kind and pc."""
    flat = np.fromiter(itertools.chain.from_iterable(events), np.int64, 4 * len(events))
    return flat.reshape(-1, 4)


def _engines(
    found: Lanes, program: Program, cycle: np.ndarray, warp: np.ndarray, kind: np.ndarray, code: np.ndarray
) -> None:
    """Operations by engine: the n-th operation of a warp to complete is the n-th that it issued."""
    engines = [c.spec.engine if c is not None else None for c in program.codes]
    engine = np.array([-1 if e is None else ENGINES.index(e) for e in engines])[code]
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
        found[LaneName(1, number)] = columns | {"warp": warp[own], "ordinal": ordinal[own]}


def _channels(found: Lanes, program: Program, cycle: np.ndarray, kind: np.ndarray, code: np.ndarray) -> None:
    """Tokens in each channel, one entry per cycle with a change; every channel starts empty."""
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
    """What each PE of the CGRA stored."""
    stored = outcome.stored
    flat = np.fromiter(itertools.chain.from_iterable(stored), np.int64, 4 * len(stored)).reshape(-1, 4)
    for pe in np.unique(flat[:, 1]).tolist():
        own = flat[flat[:, 1] == pe]
        found[LaneName(3, pe)] = {"cycle": own[:, 0], "address": own[:, 2], "value": own[:, 3]}
