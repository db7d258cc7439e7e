"""What a launch does to memory, step by step, and how long each step takes where nobody else is in its way.

Values do not depend on time: a step takes as long as its accesses need, and nothing else changes. So a launch
is executed as soon as it issues, and its cycles follow when those of storer and array are known (`grid`).
Source: docs/cgra.md, "Memory ports and freezing".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosim.models.functional.cgra import launch
from cosim.models.functional.cgra_code import Code
from hw.config import MachineConfig
from hw.fabric.bitstream import ACC, ELEMENT_BYTES, OUT, SCRATCH, Configuration
from hw.semantics import MASK

#: Bits of spaces, of banks of any of them, and of lines (`hw.config` has the greatest sizes).
SPACE_BITS, BANK_BITS, LINE_BITS = 2, 5, 20

Numbers = npt.NDArray[np.int64]


class Access(NamedTuple):
    """An access in a step: `line` is the word or, of the accumulator, the row that a bank serves at once."""

    pe: int
    stores: bool
    space: int
    bank: int
    line: int


class Resource(NamedTuple):
    """What others may be reading: a whole buffer (bank 0), or a bank of the accumulator."""

    space: int
    bank: int


def resource(access: Access) -> Resource:
    """What a load shares with storer and array."""
    return Resource(access.space, access.bank if access.space == ACC else 0)


@dataclass
class Work:
    """All accesses of a launch, by step and PE, and what comes of them where nobody else reads.

    `steps` are executed; `failed` when the one after them has an error. `duration` has the cycles of every
    step. The others have an element per access; `offset` is, of a store, the cycle in which it is served,
    counted from the first of its step, `value` what is stored.
    """

    steps: int
    failed: bool
    duration: Numbers
    step: Numbers
    pe: Numbers
    stores: npt.NDArray[np.bool_]
    space: Numbers
    bank: Numbers
    line: Numbers
    address: Numbers
    value: Numbers
    offset: Numbers

    @cached_property
    def resources(self) -> frozenset[Resource]:
        """What the loads of all steps read."""
        places = self.space << BANK_BITS | np.where(self.space == ACC, self.bank, 0)
        found = np.unique(places[~self.stores]).tolist()
        return frozenset(Resource(*divmod(place, 1 << BANK_BITS)) for place in found)

    def again(self) -> Work:
        """The same for another launch."""
        made = replace(self, offset=self.offset.copy())
        made.__dict__["resources"] = self.resources
        return made

    def accesses(self, step: int) -> tuple[int, list[Access]]:
        """The accesses of a step, and the number of the first of them."""
        low, high = np.searchsorted(self.step, [step, step + 1]).tolist()
        columns = (self.pe, self.stores, self.space, self.bank, self.line)
        return low, [Access(*row) for row in zip(*(c[low:high].tolist() for c in columns), strict=True)]


def play(accesses: Sequence[Access], begin: int, busy: Callable[[Resource, int], bool]) -> list[int]:
    """The cycles in which the accesses of a step that begins in `begin` are served.

    `busy` says in which cycles others read.
    """
    served = [-1] * len(accesses)
    cycle = begin
    while -1 in served:
        lines: dict[tuple[int, int], int] = {}
        waits = {a.line for a, at in zip(accesses, served, strict=True) if at < 0 and a[1:3] == (False, OUT)}
        for i, access in enumerate(accesses):
            if served[i] < 0 and not access.stores and not busy(resource(access), cycle):
                bank = access.space, access.bank
                if lines.setdefault(bank, access.line) == access.line:
                    served[i] = cycle
        written: set[int] = set()
        for i, access in enumerate(accesses):
            if served[i] < 0 and access.stores and access.bank not in written:
                written.add(access.bank)
                if access.line not in waits:
                    served[i] = cycle
        cycle += 1
    return served


def execute(
    config: MachineConfig,
    configuration: Configuration,
    code: Code,
    state: list[int],
    spaces: Mapping[int, memoryview],
    iterations: int,
) -> Work:
    """Execute a launch (see `launch`), and find how long its steps take where nobody else reads."""
    done = launch(configuration, code, state, spaces, iterations)
    parts: list[Numbers] = []
    for site, noted, stored in zip(code.sites, done.indices, done.values, strict=True):
        array, found = configuration.arrays[site.array], np.array(noted, np.int64)
        address = array.base + (found & MASK) * ELEMENT_BYTES[array.element]
        if array.space == ACC:
            line = address // config.derived.acc_word_bytes
            bank = line // config.derived.acc_bank_words
        else:
            line = address // 4
            bank = line % banks(config, array.space)
        value = np.array(stored, np.int64) if stored else np.zeros_like(found)
        value &= MASK if ELEMENT_BYTES[array.element] == 4 else 0xFF
        same = (np.full(len(found), x) for x in (site.pe, site.stores, array.space))
        parts.append(np.stack([found >> 32, *same, bank, line, address, value]))
    table = np.concatenate(parts, axis=1) if parts else np.zeros((8, 0), np.int64)
    table = table[:, np.lexsort((table[1], table[0]))]
    step, pe, stores, space, bank, line, address, value = table
    made = Work(
        done.steps,
        done.failed is not None,
        np.ones(done.steps, np.int64),
        step,
        pe,
        stores.astype(np.bool_),
        space,
        bank,
        line,
        address,
        value,
        np.zeros_like(step),
    )
    _undisturbed(made)
    return made


def banks(config: MachineConfig, space: int) -> int:
    """How many banks the grid sees in a buffer."""
    shape = config.derived.scratch if space == SCRATCH else config.derived.out
    return max(1, shape.banks // 4)


def _undisturbed(work: Work) -> None:
    """Set `duration` and `offset` of a launch that nobody disturbs."""
    reads, stores = np.flatnonzero(~work.stores), np.flatnonzero(work.stores)
    # A bank serves one line per cycle for reading: as many cycles as it has lines.
    key = work.step[reads]
    for column, bits in ((work.space, SPACE_BITS), (work.bank, BANK_BITS), (work.line, LINE_BITS)):
        key = key << bits | column[reads]
    groups, counts = np.unique(np.unique(key) >> LINE_BITS, return_counts=True)
    np.maximum.at(work.duration, groups >> BANK_BITS + SPACE_BITS, counts)
    # And one store: the n-th of a bank in the n-th cycle.
    order = stores[np.lexsort((work.pe[stores], work.bank[stores], work.step[stores]))]
    if order.size:
        group = np.stack([work.step[order], work.bank[order]])
        fresh = np.flatnonzero(np.r_[True, np.any(group[:, 1:] != group[:, :-1], axis=0)])
        length = np.diff(np.r_[fresh, order.size])
        work.offset[order] = np.arange(order.size) - np.repeat(fresh, length)
        np.maximum.at(work.duration, work.step[order], work.offset[order] + 1)
    # Stores wait for loads of the same word.
    out = reads[work.space[reads] == OUT]
    loaded, stored = (work.step[x] << 32 | work.line[x] for x in (out, stores))
    for step in np.unique(np.intersect1d(loaded, stored) >> 32).tolist():
        low, accesses = work.accesses(step)
        served = play(accesses, 0, lambda _resource, _cycle: False)
        work.offset[low : low + len(served)] = served
        work.duration[step] = max(served) + 1
