"""The GEMM array: fixed durations once taken, and the cycles in which it reads accumulator banks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cosim.model.checks import NEVER, Fault, block_outside, engine_fault
from hw.config import ENGINES, MachineConfig
from hw.isa import PARAMETERS, TIMING, Cause

M, N = PARAMETERS["gemm_m"].index, PARAMETERS["gemm_n"].index
A_PITCH, B_PITCH, C_PITCH = (PARAMETERS[f"gemm_{x}_pitch"].index for x in "abc")


class BankReads:
    """Accumulator reads of an operation in cycles from the first of them, in banks `low` to `high`.

    `grid` is block rows and columns, `rows` those of a block and of a block in the last block row,
    `words` the first accumulator word and the pitch of rows.
    """

    __slots__ = ("_by_bank", "_shape", "high", "low")

    def __init__(
        self, k: int, grid: tuple[int, int], rows: tuple[int, int], words: tuple[int, int], bank_words: int
    ):
        word, pitch = words
        last_row = (grid[0] - 1) * rows[0] + rows[1] - 1
        self.low = word // bank_words
        self.high = (word + last_row * pitch + grid[1] - 1) // bank_words
        self._shape = (k, grid, rows, words, bank_words)
        self._by_bank: dict[int, tuple[list[int], list[int]]] = {}

    def intervals(self, bank: int) -> tuple[list[int], list[int]]:
        """Starts and ends (exclusive) of the reads of one bank, in order."""
        if bank not in self._by_bank:
            self._by_bank[bank] = self._find(bank)
        return self._by_bank[bank]

    def _find(self, bank: int) -> tuple[list[int], list[int]]:
        k, (down, right), (full, rest), (word, pitch), bank_words = self._shape
        i, j = np.divmod(np.arange(down * right, dtype=np.int64), right)
        rows = np.where(i == down - 1, rest, full)
        start = i * right * max(k, full) + j * np.where(i == down - 1, max(k, rest), max(k, full))
        base = word + i * full * pitch + j
        if pitch:
            low = np.clip(-((base - bank * bank_words) // pitch), 0, rows)
            high = np.clip(-((base - (bank + 1) * bank_words) // pitch), 0, rows)
        else:
            inside = base // bank_words == bank
            low, high = np.zeros_like(rows), np.where(inside, rows, 0)
        hit = np.flatnonzero(high > low)
        return (start + low)[hit].tolist(), (start + high)[hit].tolist()


class Drain(NamedTuple):
    """Accumulator reads from cycle `first` to cycle `last`."""

    first: int
    last: int
    reads: BankReads


class Drains:
    """All accumulator reads known so far, in order of time."""

    def __init__(self) -> None:
        self._drains: list[Drain] = []
        self._lasts: list[int] = []

    def add(self, drain: Drain) -> None:
        """Append the reads of an operation; operations do not overlap in time."""
        self._drains.append(drain)
        self._lasts.append(drain.last)

    def next_block(self, bank: int, cycle: int) -> tuple[int, int] | None:
        """The first interval (start, end) of reads of `bank` that ends after `cycle`."""
        for n in range(bisect_left(self._lasts, cycle), len(self._drains)):
            first, _, reads = self._drains[n]
            if reads.low <= bank <= reads.high:
                starts, ends = reads.intervals(bank)
                at = bisect_right(ends, cycle - first)
                if at < len(ends):
                    return first + starts[at], first + ends[at]
        return None


class Plan(NamedTuple):
    """What an operation does, in cycles from its first read: all of it is fixed by its operands.

    `last` is when the last block starts to read; `bad` when a block that must not be executed would.
    """

    wrong: bool
    bad: int | None
    last: int
    rest: int
    blocks: int
    reads: BankReads | None


class Gemm:
    """The schedule of the array: `starts` and `completions` hold s and c of each operation.

    `issue` appends to `drains`; `busy` counts cycles that read columns.
    """

    def __init__(self, config: MachineConfig, drains: Drains):
        self.config, self.drains = config, drains
        self.number = ENGINES.index("gemm")
        self.starts: list[int] = []
        self.completions: list[int] = []
        self.fault: Fault | None = None
        self.issued_at = -1
        self.busy = self.stall_memory = self.stall_bank = 0
        self._last_read = 0
        self._turn = 0  # f' + k' + rows' + gemm_turn of the last block so far
        self._plans: dict[tuple[object, ...], Plan] = {}  # operations repeat

    def issue(
        self, t: int, warp: int, pc: int, _name: str, operands: Sequence[int], params: Sequence[int]
    ) -> Drain | None:
        """Add the operation that issues in cycle `t`; returns its accumulator reads unless it fails."""
        self.issued_at = t
        start, done, drain = NEVER, NEVER, None
        if self.fault is None:
            start = max(t + 1, self._last_read)
            drain = self._execute(start, warp, pc, operands, params)
        if drain is not None:
            self.drains.add(drain)
            done = drain.last + TIMING.acc_write
        self.starts.append(start)
        self.completions.append(done)
        return drain

    def _execute(
        self, s: int, warp: int, pc: int, operands: Sequence[int], params: Sequence[int]
    ) -> Drain | None:
        """Move the array through an operation taken in `s`; None when it fails."""
        key = (*operands, *(params[x] for x in (M, N, A_PITCH, B_PITCH, C_PITCH)))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(operands, params)
        if plan.wrong:
            self.fault = engine_fault(s, self.number, Cause.OPERAND, warp, pc)
            return None
        k = operands[3]
        first = max(s + TIMING.gemm_first, self._turn - k)
        if plan.bad is not None:
            self.fault = engine_fault(first + plan.bad, self.number, Cause.BUFFER_RANGE, warp, pc)
            return None
        last = first + plan.last
        self._last_read = last + k - 1
        self._turn = last + k + plan.rest + TIMING.gemm_turn
        self.busy += plan.blocks * k
        drain_first = first + k + TIMING.gemm_drain
        assert plan.reads is not None
        return Drain(drain_first, drain_first + plan.last + plan.rest - 1, plan.reads)

    def _plan(self, operands: Sequence[int], params: Sequence[int]) -> Plan:
        """What an operation does; `wrong` when an operand is zero."""
        a, b, c, k = operands
        m, n, pitch = params[M], params[N], params[C_PITCH]
        if m == 0 or n == 0 or k == 0:
            return Plan(True, None, 0, 0, 0, None)
        sizes, height = self.config.derived, self.config.rows
        down, right = -(-m // height), -(-n // self.config.cols)
        rest = m - height * (down - 1)
        full = height if down > 1 else rest
        step, last_step = max(k, full), max(k, rest)
        outside = block_outside(
            (a + k - 1, params[A_PITCH], sizes.buffer_a.columns),
            (b + k - 1, params[B_PITCH], sizes.buffer_b.columns),
            (c, pitch, sizes.acc_words),
            (full, rest),
            (down, right),
        )
        bad = None
        if outside is not None:
            i, j = outside
            bad = i * right * step + j * (last_step if i == down - 1 else step)
        last = (down - 1) * right * step + (right - 1) * last_step
        reads = BankReads(k, (down, right), (full, rest), (c, pitch), sizes.acc_bank_words)
        return Plan(False, bad, last, rest, down * right, reads)
