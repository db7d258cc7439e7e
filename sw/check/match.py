"""Compare what each warp executes with its instances of the sequential program, in their order."""

from __future__ import annotations

import numpy as np

from sw.check.schedule import Narrator
from sw.check.trace import columns_of, stated_operands


def difference(narrator: Narrator) -> str | None:
    """Where the lowest warp that does not do what it shall first differs, in one sentence."""
    made = narrator.made
    none = np.empty(0, np.int64)
    for w, s in sorted(narrator.streams.items()):
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
            return narrator.unlike(w, at, value)
    return None
