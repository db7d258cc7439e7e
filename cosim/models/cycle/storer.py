"""The storer: a schedule that is revised as the array's accumulator reads become known.

Beats without conflicts have a closed form: once the output is never empty, beat i leaves the read stage when
beat i-3 is accepted, and acceptances are successive available cycles of the port. Beats are computed one by
one only at the start of an operation, and where the array reads the same bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosim.job import Window
from cosim.models.cycle.checks import NEVER, first_above, permitted, row_outside_windows
from cosim.models.cycle.engine import EngineModel
from cosim.models.cycle.gemm import Drain, Drains
from cosim.models.cycle.memory_port import Port
from cosim.models.cycle.rows import RowBeats
from cosim.models.cycle.sharing import Operation
from hw.config import MachineConfig
from hw.fabric.bitstream import ACC, OUT, SCRATCH
from hw.isa import PARAMETERS, TIMING, Cause
from hw.semantics import MASK

STRIDE, PITCH = PARAMETERS["store_stride"].index, PARAMETERS["store_pitch"].index
#: The space that each operation reads.
SPACES = {"store": ACC, "store_scratch": SCRATCH, "store_out": OUT}


class StorerState(NamedTuple):
    """The pipeline after a beat: g of that beat, o and w of it and the two before it, and the counters."""

    g: int = -3
    o: int = -1
    w: int = -1
    o_1: int = -2
    w_1: int = -2
    o_2: int = -3
    w_2: int = -3
    stall_memory: int = 0
    stall_bank: int = 0


EMPTY = StorerState()


class BankRun(NamedTuple):
    """Successive beats, up to beat `end`, that read one accumulator bank (-1: none)."""

    end: int
    bank: int


class Leaves(NamedTuple):
    """Successive beats, from `beat` on, leave the read stage in the cycles `first`, then as the port accepts.

    They read accumulator bank `bank`, or another space (-1).
    """

    beat: int
    beats: int
    first: tuple[int, ...]
    bank: int


class StorePlan(NamedTuple):
    """What an operation does, apart from its windows: beats, chunks per row, banks that it reads.

    `limit` is the number of beats that may be executed, and `cause` the error if it is less than all. `space`
    is the space read: 0 accumulator, 1 scratchpad, 2 output buffer.
    """

    limit: int
    cause: Cause
    stride: int
    beats: RowBeats
    chunks: int
    runs: tuple[BankRun, ...]
    banks: tuple[int, int] | None
    space: int

    @property
    def fails(self) -> bool:
        """Whether operands or the end of a buffer make it fail, whatever else happens."""
        return self.limit < self.beats.total


class Reads(NamedTuple):
    """Cycles in which an operation reads, ascending, and the accumulator bank (-1: none) in each."""

    cycles: npt.NDArray[np.int64]
    banks: npt.NDArray[np.int64]


@dataclass(slots=True)
class Store:
    """One operation: what it does (fixed at issue), and when (revised with new accumulator reads)."""

    issued: int
    warp: int
    pc: int
    plan: StorePlan
    limit: int
    cause: Cause
    start: int = 0
    g_last: int = 0
    before: StorerState = EMPTY
    leaves: list[Leaves] = field(default_factory=list)
    reads: Reads | None = None


class StorerModel(EngineModel):
    """The schedule of the storer.

    Cycles before the latest event are final; later ones may change with `revise`. `reads` covers operations
    that were scheduled while `observed` was set.
    """

    def __init__(self, config: MachineConfig, port: Port, windows: Sequence[Window], drains: Drains):
        super().__init__("store", config)
        self.port, self.drains = port, drains
        self.windows = permitted(windows, write=True)
        self.width = config.store_bytes
        self.chunks_per_word = config.derived.acc_word_bytes // config.store_bytes
        self.observed = False
        self.stores: list[Store] = []
        self.stall_memory = self.stall_bank = 0
        self._state = EMPTY
        self._plans: dict[tuple[object, ...], StorePlan | None] = {}  # operations repeat, at other addresses

    @property
    def busy(self) -> int:
        """Number of beats accepted."""
        return sum(s.limit for s, c in zip(self.stores, self.completions, strict=True) if c < NEVER)

    words = busy  # each accepted beat is one word of memory

    def plan(self, operation: Operation, fetched: Sequence[int], params: Sequence[int]) -> StorePlan | None:
        """Plan an operation from its operands and the warp's parameters; None if an operand is too large."""
        memory, source, rows, size = fetched
        stride, pitch = params[STRIDE], params[PITCH]
        key = (operation.name, memory % self.width, source, rows, size, stride, pitch)
        try:
            return self._plans[key]
        except KeyError:
            operands = operation.operands(fetched)
            plan = None if operands is None else self._plan(operation.name, operands, stride, pitch)
            self._plans[key] = plan
            return plan

    def issue(self, t: int, warp: int, pc: int, plan: StorePlan, fetched: Sequence[int]) -> None:
        """Add the operation that issues in cycle `t`."""
        memory, _, rows, size = fetched
        limit, cause = plan.limit, plan.cause
        if cause is not Cause.OPERAND:
            outside = row_outside_windows(self.windows, memory & MASK, plan.stride, size, rows)
            if outside is not None and plan.beats.start(outside) <= limit:
                limit, cause = plan.beats.start(outside), Cause.WINDOW
        self.stores.append(Store(t, warp, pc, plan, limit, cause))
        self._schedule(len(self.stores) - 1)

    def revise(self, drain: Drain) -> bool:
        """Revise the schedule for new accumulator reads; returns whether they meet a store in progress."""
        first = len(self.stores)
        while first and self.stores[first - 1].g_last >= drain.first:
            first -= 1
        for n in range(first, len(self.stores)):
            if self.starts[n] == NEVER:
                return False  # after a fault
            banks = self.stores[n].plan.banks
            if banks is not None and banks[0] <= drain.reads.high and drain.reads.low <= banks[1]:
                self._state = self.stores[n].before
                self.fault = None
                del self.starts[n:], self.completions[n:]
                for later in range(n, len(self.stores)):
                    self._schedule(later)
                return True
        return False

    def reads(self, first: int, last: int) -> Iterator[tuple[int, Reads]]:
        """The reads in cycles `first` to `last`: for each operation with any, the space and its reads."""
        for store in reversed(self.stores):
            if store.start == NEVER or store.start >= last:
                continue
            if store.g_last < first:
                break
            if store.reads is None:
                store.reads = self._reads(store)
            cycles, banks = store.reads
            low, high = np.searchsorted(cycles, [first, last + 1])
            yield store.plan.space, Reads(cycles[low:high], banks[low:high])

    def _reads(self, store: Store) -> Reads:
        cycles: list[int] = []
        banks: list[int] = []
        locate, chunks, after = store.plan.beats.locate, store.plan.chunks, self.port.after
        for beat, beats, first, bank in store.leaves:
            for n in range(beats):
                if locate(beat + n)[1] < chunks:
                    ahead = n - len(first)
                    cycles.append(first[n] if ahead < 0 else after(first[-1] + 1, ahead + 1))
                    banks.append(bank)
        return Reads(np.array(cycles, np.int64), np.array(banks, np.int64))

    def _plan(self, name: str, operands: Sequence[int], stride: int, pitch: int) -> StorePlan:
        """Find an operation's beats, the banks that they read, and where it must stop."""
        memory, source, rows, size = operands
        aligned = name == "store" or (source % self.width == 0 and pitch % self.width == 0)
        space = SPACES[name]
        if rows == 0 or size == 0 or not aligned:
            return StorePlan(0, Cause.OPERAND, stride, RowBeats(0, 0, 1, 1, self.width), 1, (), None, space)
        beats = RowBeats(memory, stride, size, rows, self.width)
        chunks = -(-size // self.width)
        sizes = self.config.derived
        if name == "store":
            last, capacity = (chunks - 1) // self.chunks_per_word, sizes.acc_words
        else:
            shape = sizes.scratch if name == "store_scratch" else sizes.out
            last, capacity = (chunks - 1) * self.width, shape.columns
        limit, cause = beats.total, Cause.NONE
        row = first_above(source + last, pitch, capacity)
        if row < rows:
            part = max(0, capacity - source - row * pitch)
            chunk = part * self.chunks_per_word if name == "store" else part // self.width
            limit, cause = beats.start(row) + chunk, Cause.BUFFER_RANGE
        if name != "store":
            return StorePlan(limit, cause, stride, beats, chunks, (BankRun(beats.total, -1),), None, space)
        bank_words = sizes.acc_bank_words
        banks = source // bank_words, (source + (rows - 1) * pitch + last) // bank_words
        runs = tuple(self._bank_runs(beats, limit, source, pitch, last))
        return StorePlan(limit, cause, stride, beats, chunks, runs, banks, space)

    def _bank_runs(
        self, beats: RowBeats, limit: int, source: int, pitch: int, last: int
    ) -> Iterator[BankRun]:
        """Runs of beats whose chunks lie in one bank; beats that read nothing count with those before them.

        The last word of a row is `source + row*pitch + last`.
        """
        bank_words = self.config.derived.acc_bank_words
        row = 0
        while row < beats.rows and beats.start(row) < limit:
            word = source + row * pitch
            bank = word // bank_words
            border = (bank + 1) * bank_words
            if word + last < border:
                row = min(beats.rows, first_above(source + last, pitch, border))
                yield BankRun(beats.start(row), bank)
                continue
            while border <= word + last:
                yield BankRun(beats.start(row) + (border - word) * self.chunks_per_word, bank)
                bank, border = bank + 1, border + bank_words
            row += 1
            yield BankRun(beats.start(row), bank)

    def _schedule(self, n: int) -> None:
        """Schedule operation n after those before it: append its s and c, and set `fault` if it has one."""
        store = self.stores[n]
        store.before, store.reads = self._state, None
        store.leaves.clear()
        if self.fault is not None:
            store.start = store.g_last = NEVER
            self.starts.append(NEVER)
            self.completions.append(NEVER)
            return
        start = max(store.issued + TIMING.enqueue + TIMING.store_take, self._state.g)
        if n:
            start = max(start, self.starts[n - 1] + TIMING.next_offer + TIMING.store_take)
        if n >= TIMING.in_flight:
            start = max(start, self.completions[n - TIMING.in_flight] + 1)
        store.start, done = start, NEVER
        self._state = self._flow(store)
        store.g_last = self._state.g
        if store.cause is Cause.NONE:
            done = self._state.w + self.port.latency + TIMING.store_response
        else:
            self.fail(max(start, store.g_last) + 1, store.cause, store.warp, store.pc)
        self.stall_memory, self.stall_bank = self._state.stall_memory, self._state.stall_bank
        self.starts.append(start)
        self.completions.append(done)

    def _flow(self, store: Store) -> StorerState:
        """The state after the last beat of an operation."""
        state, beat = self._state, 0
        for run_end, bank in store.plan.runs:
            end = min(run_end, store.limit)
            while beat < end:
                ahead = 0
                if beat:
                    g, o, _, o_1, w_1, o_2, w_2, _, _ = state
                    if o_2 <= g + 1 <= w_2 and o_1 == w_2 + 1 and o == w_1 + 1:
                        ahead = self._free_beats(state, bank, end - beat)
                if ahead:
                    if self.observed:
                        store.leaves.append(Leaves(beat, ahead, (state.w_2, state.w_1, state.w), bank))
                    state = self._advance(state, ahead)
                    beat += ahead
                else:
                    state = self._step(state, store, beat, bank)
                    if self.observed:
                        store.leaves.append(Leaves(beat, 1, (state.g,), bank))
                    beat += 1
        return state

    def _free_beats(self, state: StorerState, bank: int, most: int) -> int:
        """How many of the next `most` beats of a full pipeline leave the read stage before a conflict.

        The next three leave it in `w_2`, `w_1` and `w`, those after them in successive available cycles.
        """
        block = self.drains.next_block(bank, state.g + 1) if bank >= 0 else None
        if block is None:
            return most
        conflict = block[0]
        if conflict <= state.w:
            return min(most, (state.w_2 < conflict) + (state.w_1 < conflict))
        return min(most, 3 + self.port.count(state.w + 1, conflict))

    def _advance(self, state: StorerState, n: int) -> StorerState:
        """The state n beats later, in a full pipeline without conflicts."""

        def accepted(i: int) -> int:
            """The cycle in which the i-th beat after the current one is accepted."""
            return self.port.after(state.w + 1, i) if i > 0 else (state.w, state.w_1, state.w_2)[-i]

        w_3, w_2, w_1, w = (accepted(n - i) for i in (3, 2, 1, 0))
        stalled = state.stall_memory + w - state.w - n
        return StorerState(w_3, w_1 + 1, w, w_2 + 1, w_1, w_3 + 1, w_2, stalled, state.stall_bank)

    def _step(self, state: StorerState, store: Store, beat: int, bank: int) -> StorerState:
        """The state after the next beat, by the recurrence itself."""
        g, o, w, o_1, w_1, o_2, w_2, stall_memory, stall_bank = state
        stalls = (o_2, w_2), (o_1, w_1), (o, w)
        z = max(g, store.start) + 1
        while True:
            z = _moving(z, stalls)
            block = self.drains.next_block(bank, z) if bank >= 0 else None
            if block is None or block[0] > z:
                break
            if store.plan.beats.locate(beat)[1] >= store.plan.chunks:
                break  # the beat reads nothing
            end = block[1]
            standing = sum(max(0, min(end, last) - max(z, first)) for first, last in stalls)
            stall_bank += end - z - standing
            z = end
        o_next = _moving(_moving(z + 1, stalls) + 1, stalls) + 1
        w_next = self.port.after(o_next, 1)
        stall_memory += w_next - o_next
        return StorerState(z, o_next, w_next, o, w, o_1, w_1, stall_memory, stall_bank)


def _moving(cycle: int, stalls: tuple[tuple[int, int], ...]) -> int:
    """The first cycle from `cycle` on in none of the stalls, which are in time order."""
    for first, end in stalls:
        if first <= cycle < end:
            cycle = end
    return cycle
