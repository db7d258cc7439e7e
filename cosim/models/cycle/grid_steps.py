"""The accesses of a launch of the CGRA in each step, and the length of each step without conflicts.

Values do not depend on time: a step takes as long as its accesses need, and nothing else changes. So a launch
is executed as soon as it issues, and its cycles follow once those of storer and array are known (`grid`).
Source: docs/cgra.md, "Memory ports and freezing".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosim.job import Output
from cosim.models.functional.cgra import launch
from cosim.models.functional.cgra_code import Code
from hw.config import MachineConfig
from hw.fabric.bitstream import ACC, ELEMENT_BYTES, OUT, SCRATCH, Configuration
from hw.semantics import MASK

#: Bits of a space, of a bank in it, and of a line (`hw.config` has the largest sizes).
SPACE_BITS, BANK_BITS, LINE_BITS = 2, 5, 20

Numbers = npt.NDArray[np.int64]


class Access(NamedTuple):
    """An access in a step to `banks` adjacent banks from `bank` on; `line` is the line it needs of each.

    A line is what a bank serves at once: a row of the accumulator, or a word of another space.
    """

    pe: int
    stores: bool
    space: int
    bank: int
    line: int
    banks: int

    @property
    def places(self) -> list[tuple[int, int]]:
        """All (space, bank) pairs of the access."""
        return [(self.space, bank) for bank in range(self.bank, self.bank + self.banks)]


class Resource(NamedTuple):
    """What other engines may be reading: a whole buffer (bank 0), or a bank of the accumulator."""

    space: int
    bank: int


def resource(access: Access) -> Resource:
    """The resource that a load shares with storer and array."""
    return Resource(access.space, access.bank if access.space == ACC else 0)


@dataclass
class Work:
    """All accesses of a launch, by step and PE, and their timing if no other engine reads.

    `steps` steps are executed; `failed` says that the next one has an error. `duration` has the cycles of
    each step. The other fields have one element per access; `space` to `banks` are those of `Access`. For a
    store, `offset` is the cycle in which it is served, counted from the step's first cycle; `address` is the
    address in lane 0; `size` is the bytes of an element; `value` has what each lane stores; `mask` has a bit
    for each lane that stores.
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
    banks: Numbers
    address: Numbers
    size: Numbers
    mask: Numbers
    value: Numbers
    offset: Numbers

    @cached_property
    def resources(self) -> frozenset[Resource]:
        """The resources that the loads of all steps read."""
        places = self.space << BANK_BITS | np.where(self.space == ACC, self.bank, 0)
        found = np.unique(places[~self.stores]).tolist()
        return frozenset(Resource(*divmod(place, 1 << BANK_BITS)) for place in found)

    def again(self) -> Work:
        """A copy for another launch."""
        made = replace(self, offset=self.offset.copy())
        made.__dict__["resources"] = self.resources
        return made

    def outputs(self, known: npt.NDArray[np.intp], cycles: Numbers) -> Iterator[Output]:
        """The outputs of the stores with numbers `known`, served in `cycles`; one per storing lane."""
        mask, value = self.mask[known], self.value[known]
        for lane in range(value.shape[1]):
            own = np.flatnonzero(mask >> lane & 1)
            address = self.address[known][own] + lane * self.size[known][own]
            columns = (cycles[own], self.pe[known][own], address, value[own, lane])
            yield from map(Output._make, zip(*(column.tolist() for column in columns), strict=True))

    def accesses(self, step: int) -> tuple[int, list[Access]]:
        """The number of a step's first access, and all its accesses."""
        low, high = np.searchsorted(self.step, [step, step + 1]).tolist()
        columns = (self.pe, self.stores, self.space, self.bank, self.line, self.banks)
        return low, [Access(*row) for row in zip(*(c[low:high].tolist() for c in columns), strict=True)]


def play(accesses: Sequence[Access], begin: int, busy: Callable[[Resource, int], bool]) -> list[int]:
    """The cycles in which the accesses of a step that begins in `begin` are served.

    `busy` says in which cycles other engines read.
    """
    served = [-1] * len(accesses)
    cycle = begin
    while -1 in served:
        lines: dict[tuple[int, int], int] = {}
        waits = {
            (place, a.line)
            for a, at in zip(accesses, served, strict=True)
            if at < 0 and not a.stores
            for place in a.places
        }
        for i, access in enumerate(accesses):
            if served[i] < 0 and not access.stores and not busy(resource(access), cycle):
                found = [lines.setdefault(place, access.line) for place in access.places]
                if found == [access.line] * access.banks:
                    served[i] = cycle
        written: set[tuple[int, int]] = set()
        for i, access in enumerate(accesses):
            if served[i] < 0 and access.stores:
                free = written.isdisjoint(access.places)
                written.update(access.places)
                if free and waits.isdisjoint((place, access.line) for place in access.places):
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
    """Execute a launch (see `launch`), and compute the length of its steps if no other engine reads."""
    done = launch(configuration, code, state, spaces, iterations)
    lanes = configuration.fabric.lanes
    parts: list[Numbers] = []
    values: list[Numbers] = []
    for number, site in enumerate(code.sites):
        noted, stored = done.indices[number], np.array(done.values[number] if site.stores else [], np.int64)
        array, found = configuration.arrays[site.array], np.array(noted, np.int64)
        size = ELEMENT_BYTES[array.element]
        address = array.base + (found & MASK) * size
        if array.space == ACC:
            line = address // config.derived.acc_word_bytes
            bank, count = line // config.derived.acc_bank_words, 1
        else:
            # The banks of an access are adjacent, and the same line of all banks forms a row of words.
            line, bank = np.divmod(address // 4, banks(config, array.space))
            count = max(1, site.lanes * size // 4)
        mask = done.masks(number, site)
        same = (np.full(len(found), x) for x in (site.pe, site.stores, array.space))
        others = (np.full(len(found), x) for x in (count, size))
        parts.append(np.stack([found >> 32, *same, bank, line, address, mask, *others]))
        values.append(np.zeros((len(found), lanes), np.int64))
        if len(stored):
            rows = stored.reshape(len(found), -1)[:, -site.lanes :]
            values[-1][:, : site.lanes] = rows & (MASK if size == 4 else 0xFF)
    table = np.concatenate(parts, axis=1) if parts else np.zeros((10, 0), np.int64)
    order = np.lexsort((table[1], table[0]))
    step, pe, stores, space, bank, line, address, mask, count, size = table[:, order]
    made = Work(
        steps=done.steps,
        failed=done.failed is not None,
        duration=np.ones(done.steps, np.int64),
        step=step,
        pe=pe,
        stores=stores.astype(np.bool_),
        space=space,
        bank=bank,
        line=line,
        banks=count,
        address=address,
        size=size,
        mask=mask,
        value=np.concatenate(values)[order] if values else np.zeros((0, lanes), np.int64),
        offset=np.zeros_like(step),
    )
    _undisturbed(made)
    return made


def banks(config: MachineConfig, space: int) -> int:
    """Number of banks of a buffer, as the CGRA sees it."""
    shape = config.derived.scratch if space == SCRATCH else config.derived.out
    return max(1, shape.banks // 4)


def _undisturbed(work: Work) -> None:
    """Set `duration` and `offset` of an undisturbed launch."""
    # Each access, repeated for each of its banks.
    each = np.repeat(np.arange(len(work.step)), work.banks)
    step, space, line = (x[each] for x in (work.step, work.space, work.line))
    bank = work.bank[each] + np.arange(len(each)) - np.repeat(np.cumsum(work.banks) - work.banks, work.banks)
    reads, stores = np.flatnonzero(~work.stores[each]), np.flatnonzero(work.stores[each])
    # A bank serves loads of one line per cycle, so it needs as many cycles as there are lines.
    key: Numbers = step[reads]
    for column, bits in ((space, SPACE_BITS), (bank, BANK_BITS), (line, LINE_BITS)):
        key = key << bits | column[reads]
    lines: Numbers = np.unique(key)
    groups, counts = np.unique(lines >> LINE_BITS, return_counts=True)
    np.maximum.at(work.duration, groups >> BANK_BITS + SPACE_BITS, counts)
    # A bank serves one store per cycle: its n-th store in the n-th cycle.
    order = stores[np.lexsort((each[stores], bank[stores], step[stores]))]
    if order.size:
        group = np.stack([step[order], bank[order]])
        fresh = np.flatnonzero(np.r_[True, np.any(group[:, 1:] != group[:, :-1], axis=0)])
        number = np.arange(order.size) - np.repeat(fresh, np.diff(np.r_[fresh, order.size]))
        work.offset[each[order]] = number
        np.maximum.at(work.duration, step[order], number + 1)
    # Stores wait for loads of the same word, and accesses to several banks wait for all of them.
    out = reads[space[reads] == OUT]
    loaded, written = (step[x] << 32 | line[x] << BANK_BITS | bank[x] for x in (out, stores))
    several = np.unique(work.step[work.banks > 1])
    both: Numbers = np.intersect1d(loaded, written)
    mixed = np.unique(both >> 32)
    for number in np.union1d(mixed, several[work.duration[several] > 1]).tolist():
        low, accesses = work.accesses(number)
        served = play(accesses, 0, lambda _resource, _cycle: False)
        work.offset[low : low + len(served)] = served
        work.duration[number] = max(served) + 1
