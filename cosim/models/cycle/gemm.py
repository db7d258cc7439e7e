"""The GEMM array: an operation's durations are fixed once it is taken, and so are its accumulator reads."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from cosim.job import OperationWork
from cosim.models.cycle.checks import NEVER, block_outside, word_outside
from cosim.models.cycle.engine import EngineModel
from cosim.models.cycle.sharing import Operation
from hw.config import MachineConfig
from hw.isa import PARAMETERS, TIMING, Cause

M, N = PARAMETERS["gemm_m"].index, PARAMETERS["gemm_n"].index
A_PITCH, B_PITCH, C_PITCH = (PARAMETERS[f"gemm_{x}_pitch"].index for x in "abc")


_KEY = itemgetter(M, N, A_PITCH, B_PITCH, C_PITCH)


class BankReads:
    """Accumulator reads of an operation, counted in cycles from its first, in banks `low` to `high`.

    `grid` holds block rows and columns. `rows` holds the rows of a block, and of a block in the last block
    row. `words` holds the first accumulator word and the pitch of rows. Words after the last of `banks` do
    not count.
    """

    __slots__ = ("_by_bank", "_shape", "high", "low")

    def __init__(
        self,
        k: int,
        grid: tuple[int, int],
        rows: tuple[int, int],
        words: tuple[int, int],
        bank_words: int,
        banks: int,
    ):
        word, pitch = words
        last_row = (grid[0] - 1) * rows[0] + rows[1] - 1
        self.low = word // bank_words
        self.high = min(banks - 1, (word + last_row * pitch + grid[1] - 1) // bank_words)
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


_LAST = attrgetter("last")


class Drains:
    """All accumulator reads known so far, in time order."""

    def __init__(self) -> None:
        self._by_bank: defaultdict[int, list[Drain]] = defaultdict(list)

    def add(self, drain: Drain) -> None:
        """Append the reads of an operation; operations do not overlap in time."""
        reads = drain.reads
        for bank in range(reads.low, reads.high + 1):
            self._by_bank[bank].append(drain)

    def next_block(self, bank: int, cycle: int) -> tuple[int, int] | None:
        """The first interval (start, end) of reads of `bank` that ends after `cycle`."""
        drains = self._by_bank[bank]
        if not drains or drains[-1].last < cycle:
            return None
        for n in range(bisect_left(drains, cycle, key=_LAST), len(drains)):
            first, _, reads = drains[n]
            starts, ends = reads.intervals(bank)
            at = bisect_right(ends, cycle - first)
            if at < len(ends):
                return first + starts[at], first + ends[at]
        return None


class GemmPlan(NamedTuple):
    """Timing of an operation in cycles from its first column read; its operands determine all of it.

    In cycle `last`, the last block starts to read. In `bad`, a block with columns outside a buffer would
    start, and in `beyond`, a row would be drained outside the accumulator. Whichever comes first happens.
    """

    wrong: bool
    bad: int | None
    beyond: int | None
    last: int
    rest: int
    work: OperationWork
    reads: BankReads | None

    @property
    def fails(self) -> bool:
        """Whether operands or the end of a buffer make it fail, whatever else happens."""
        return self.wrong or self.bad is not None or self.beyond is not None


class GemmModel(EngineModel):
    """The schedule of the array: `issue` appends to `drains`; `busy` counts cycles that read columns."""

    def __init__(self, config: MachineConfig, drains: Drains):
        super().__init__("gemm", config)
        self.drains = drains
        self.busy = self.stall_memory = self.stall_bank = self.words = 0
        self._over = False  # after a fault of a read, no operation is taken
        self._last_read = 0
        self._turn = 0  # f' + k' + rows' + gemm_turn of the last block so far
        self._plans: dict[tuple[object, ...], GemmPlan | None] = {}  # operations repeat

    def plan(self, operation: Operation, fetched: Sequence[int], params: Sequence[int]) -> GemmPlan | None:
        """Plan an operation from its operands and the warp's parameters; None if an operand is too large."""
        key = (*fetched, *_KEY(params))
        try:
            return self._plans[key]
        except KeyError:
            operands = operation.operands(fetched)
            plan = self._plans[key] = None if operands is None else self._plan(operands, params)
            return plan

    def issue(self, t: int, warp: int, pc: int, plan: GemmPlan, fetched: Sequence[int]) -> Drain | None:
        """Add the operation that issues in cycle `t`; returns its accumulator reads, or None if it has none.

        An operation that fails in a later block or row makes the reads of a good one until it fails, as the
        machine stops before the rest would come.
        """
        wrong, bad, beyond, plan_last, rest, work, reads = plan
        start, done, drain = NEVER, NEVER, None
        if not self._over:
            k = fetched[3]
            start = t + TIMING.enqueue
            if self.starts and start < self.starts[-1] + TIMING.next_offer:
                start = self.starts[-1] + TIMING.next_offer
            if start < self._last_read:
                start = self._last_read
            first = start + TIMING.gemm_first
            if first < self._turn - k:
                first = self._turn - k
            if wrong or reads is None:
                self.fail(first, Cause.OPERAND, warp, pc)
                self._over = True
            else:
                end = first + plan_last + k
                last = end + TIMING.gemm_drain + rest - 1
                if beyond is not None:
                    # Rows drain after their reads, so a later block may fail before this row does. In the
                    # same cycle, the row's error counts.
                    last = first + beyond
                    self.fail(last, Cause.BUFFER_RANGE, warp, pc)
                if bad is not None:
                    last = first + bad
                    self.fail(last, Cause.BUFFER_RANGE, warp, pc)
                    self._over = True
                else:
                    self._last_read = end - 1
                    self._turn = end + rest + TIMING.gemm_turn
                    self.busy += work.busy
                    if self.fault is None:
                        done = last + TIMING.acc_write
                begin = first + k + TIMING.gemm_drain
                if begin <= last:
                    drain = Drain(begin, last, reads)
                    self.drains.add(drain)
        self.starts.append(start)
        self.completions.append(done)
        return drain

    def _plan(self, operands: Sequence[int], params: Sequence[int]) -> GemmPlan:
        """Plan an operation; `wrong` if an operand is zero."""
        a, b, c, k = operands
        m, n, pitch = params[M], params[N], params[C_PITCH]
        if m == 0 or n == 0 or k == 0:
            return GemmPlan(True, None, None, 0, 0, OperationWork(0, 0), None)
        sizes, height = self.config.derived, self.config.rows
        down, right = -(-m // height), -(-n // self.config.cols)
        rest = m - height * (down - 1)
        full = height if down > 1 else rest
        step, last_step = max(k, full), max(k, rest)
        grid = down, right

        def begins(i: int, j: int) -> int:
            return i * right * step + j * (last_step if i == down - 1 else step)

        outside = block_outside(
            (a + k - 1, params[A_PITCH], sizes.buffer_a.columns),
            (b + k - 1, params[B_PITCH], sizes.buffer_b.columns),
            grid,
        )
        row = word_outside((c, pitch, sizes.acc_words), (full, rest), grid)
        bad = None if outside is None else begins(*outside)
        beyond = None if row is None else begins(*row[:2]) + k + TIMING.gemm_drain + row[2]
        if outside is not None and row is not None and outside <= row[:2]:
            beyond = None  # that block is never executed
        # Block rows after the first failure never read the accumulator.
        reached = min([down, *(at[0] + 1 for at in (outside, row) if at is not None)])
        rows = (full, rest if reached == down else full)
        last = begins(down - 1, right - 1)
        reads = BankReads(k, (reached, right), rows, (c, pitch), sizes.acc_bank_words, self.config.acc_banks)
        work = OperationWork(down * right * k, -(-m * n * k // self.config.macs_per_cycle))
        return GemmPlan(False, bad, beyond, last, rest, work, reads)
