"""The routing resources of a fabric as flat arrays: what exists in every context of a configuration.

A register holds one value per context; a register file has one write port and one read port. The same arrays
serve every initiation interval: the time-extended fabric is these resources times the contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hw.fabric import Fabric
from sw.cgra.compiled import Array
from sw.cgra.mapping import registers_of

#: Distance between PEs without a path.
FAR = 1 << 14
#: Entries used of a register file: more help little and slow down every search.
MOST_REGISTERS = 8


class Resources(NamedTuple):
    """Registers and ports by number: links, then result registers, register files, write ports, read ports.

    `head` is the PE where a register is read. `out_at[p]:out_at[p + 1]` are the links in `out_links` that
    leave PE p; `file_at` the same for its registers. `distance[0]` counts hops between PEs, `distance[1]`,
    which is there only if some PEs have one lane and some more, those through PEs of several lanes alone.
    `near[near_at[p]:near_at[p + 1]]` are PE p and those one hop from or to it.
    """

    pes: int
    links: int
    registers: int
    head: Array
    out_at: Array
    out_links: Array
    file_at: Array
    distance: Array
    near_at: Array
    near: Array

    @property
    def total(self) -> int:
        """All resources."""
        return self.registers + 2 * self.pes


def offsets(lists: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """The start of each list when lists are concatenated, and the concatenated contents."""
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return starts, np.array([i for items in lists for i in items], dtype=np.int64)


@lru_cache(maxsize=32)
def resources(fabric: Fabric) -> Resources:
    """The arrays of a fabric."""
    links, pes = len(fabric.links), fabric.size
    files = [range(min(kind.registers, MOST_REGISTERS)) for kind in fabric.kinds]
    file_at = links + pes + offsets(files)[0]
    head = [register.reader(fabric) for register in registers_of(fabric, MOST_REGISTERS)]
    several = [pe for pe, kind in enumerate(fabric.kinds) if kind.lanes > 1]
    ways = [range(pes), several] if 0 < len(several) < pes else [range(pes)]
    every = np.stack([distances(fabric, through) for through in ways])
    hops = every[0]
    near = [np.flatnonzero((hops[pe] <= 1) | (hops[:, pe] <= 1)).tolist() for pe in range(pes)]
    return Resources(
        pes,
        links,
        int(file_at[-1]),
        np.array(head, dtype=np.int64),
        *offsets(fabric.outgoing),
        file_at,
        every,
        *offsets(near),
    )


def distances(fabric: Fabric, pes: Sequence[int]) -> Array:
    """Hops between PEs, through more and more PEs in between (R. W. Floyd, 1962)."""
    found = np.full((fabric.size, fabric.size), FAR, dtype=np.int64)
    found[pes, pes] = 0
    for link in fabric.links:
        if found[link.source, link.source] == found[link.target, link.target] == 0:
            found[link.source, link.target] = 1
    for between in pes:
        found = np.minimum(found, found[:, between, None] + found[between])
    return found
