"""The routing resources of a fabric as flat arrays: what exists in every context of a configuration.

A register holds one value per context; a register file is written and read through one port each. The same
arrays serve every initiation interval: the time-extended fabric is these resources times the contexts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hw.fabric import Fabric
from sw.cgra.compiled import Array
from sw.cgra.mapping import registers_of

#: Distance between PEs that no path joins.
FAR = 1 << 14
#: Entries of a register file that are used: more hardly help and make every search longer.
MOST_REGISTERS = 8


class Resources(NamedTuple):
    """Registers and ports by number: links, then result registers, register files, write ports, read ports.

    `head` is the PE where a register is read. `out_at[p]:out_at[p + 1]` are the links in `out_links` that
    leave PE p; `file_at` the same for its registers. `distance` counts hops between PEs;
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


@lru_cache(maxsize=32)
def resources(fabric: Fabric) -> Resources:
    """The arrays of a fabric."""
    links, pes = len(fabric.links), fabric.size
    files = [min(kind.registers, MOST_REGISTERS) for kind in fabric.kinds]
    file_at = links + pes + np.concatenate(([0], np.cumsum(files, dtype=np.int64)))
    head = [register.reader(fabric) for register in registers_of(fabric, MOST_REGISTERS)]
    outgoing = fabric.outgoing
    hops = distances(fabric)
    near = [np.flatnonzero((hops[pe] <= 1) | (hops[:, pe] <= 1)) for pe in range(pes)]
    out_at = np.concatenate(([0], np.cumsum([len(o) for o in outgoing], dtype=np.int64)))
    return Resources(
        pes,
        links,
        int(file_at[-1]),
        np.array(head, dtype=np.int64),
        out_at.astype(np.int64),
        np.array([link for out in outgoing for link in out], dtype=np.int64),
        file_at.astype(np.int64),
        hops,
        np.concatenate(([0], np.cumsum([len(n) for n in near]))).astype(np.int64),
        np.concatenate(near).astype(np.int64),
    )


def distances(fabric: Fabric) -> Array:
    """Hops from every PE to every other."""
    found = np.full((fabric.size, fabric.size), FAR, dtype=np.int64)
    after = [[fabric.links[i].target for i in out] for out in fabric.outgoing]
    for start in range(fabric.size):
        row = found[start]
        row[start] = 0
        layer = [start]
        while layer:
            new = []
            for pe in layer:
                for target in after[pe]:
                    if row[target] == FAR:
                        row[target] = row[pe] + 1
                        new.append(target)
            layer = new
    return found
