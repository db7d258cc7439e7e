"""Compare what each warp executes with its instances of the sequential program, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sw.check.streams import Stream
from sw.check.trace import Trace, columns_of, stated_operands

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Difference:
    """The first operation of a warp that is not the expected one.

    `event` is the place in the warp's stream, that of its end where operations are missing; `time` is the
    expected instance, None where none is left. `value` tells an operand that differs.
    """

    warp: int
    event: int
    time: int | None
    value: str = ""


def difference(made: Trace, streams: Mapping[int, Stream]) -> Difference | None:
    """The first difference of the lowest warp that has one, None where all warps do what they shall."""
    none = np.empty(0, np.int64)
    for w, s in sorted(streams.items()):
        times, found = made.by_warp.get(w, none), s.operations
        both = min(times.size, found.size)
        rows, sites = made.row[times[:both]], s.events[found[:both]]
        first: tuple[int, str] = (both, "")
        together = rows.astype(np.int64) * len(s.sites) + sites
        for pair in np.flatnonzero(np.bincount(together)).tolist():
            row, number = divmod(pair, len(s.sites))
            site, instruction = s.sites[number], made.rows[row].instruction
            here = np.flatnonzero(together == pair)
            if site.name != (instruction.label if site.generic else instruction.name):
                first = min(first, (int(here[0]), ""))
            elif not site.generic:
                columns = list(stated_operands(instruction))
                given = s.values[number][np.searchsorted(np.flatnonzero(s.events == number), found[here])]
                expected = made.rows[row].operands[:, np.searchsorted(made.rows[row].time, times[here])].T
                wrong = np.argwhere(given[:, columns] != expected)
                if wrong.size:
                    n, k = wrong[0].tolist()
                    name = columns_of(instruction.name)[columns[k]]
                    text = f"{name} = {given[n, columns[k]]}, not {expected[n, k]}"
                    first = min(first, (int(here[n]), text))
        at, value = first
        if at < max(times.size, found.size):
            event = int(found[at]) if at < found.size else s.events.size
            return Difference(w, event, int(times[at]) if at < times.size else None, value)
    return None
