"""When a memory port accepts requests: the n-th free cycle, by arithmetic or table look-up."""

from __future__ import annotations

from bisect import bisect_left
from math import gcd
from typing import NamedTuple

import numpy as np

from cosim.settings import MemorySettings

PAGE_BITS = 12


class RequestRun(NamedTuple):
    """Requests in `turns` groups of `size`, each presented some cycles after the previous one was accepted.

    That is `gap` cycles within a group, and `turn` cycles from one group to the next.
    """

    gap: int
    size: int
    turn: int
    turns: int


class BandwidthPort:
    """A port of `bandwidth` bytes per cycle for words of `width`: accepts in cycle t if t*b mod width < b.

    These are the cycles in which floor(t*b / width) steps up, so both directions are a division. The pattern
    repeats after `period` cycles; 1 means that the port accepts a request in every cycle.
    """

    def __init__(self, latency: int, bandwidth: int, width: int):
        self.latency, self.bandwidth, self.width = latency, bandwidth, width
        self.period = width // gcd(bandwidth, width)
        self._runs: dict[RequestRun, list[int]] = {}

    def _before(self, cycle: int) -> int:
        return (cycle - 1) * self.bandwidth // self.width + 1 if cycle > 0 else 0

    def after(self, cycle: int, n: int) -> int:
        """The n-th (from 1) available cycle at or after `cycle`."""
        return -(-(self._before(cycle) + n - 1) * self.width // self.bandwidth)

    def count(self, start: int, end: int) -> int:
        """Number of available cycles in [start, end)."""
        return max(0, self._before(end) - self._before(start))

    def run(self, cycle: int, run: RequestRun) -> int:
        """The cycle in which a run's last request is accepted, if its first is presented in `cycle`."""
        if run not in self._runs:
            self._runs[run] = self._durations(run)
        return cycle + self._runs[run][cycle % self.period]

    def _durations(self, run: RequestRun) -> list[int]:
        """Cycles from a run's first presentation to its last acceptance, by phase in the period."""
        period = self.period
        phases = np.arange(period)
        wait = np.array([self.after(phase, 1) - phase for phase in range(period)])

        def then(first: np.ndarray, second: np.ndarray) -> np.ndarray:
            both: np.ndarray = first + second[(phases + first) % period]
            return both

        def times(n: int, once: np.ndarray) -> np.ndarray:
            whole = np.zeros_like(once)
            while n:
                if n & 1:
                    whole = then(whole, once)
                once, n = then(once, once), n >> 1
            return whole

        to_last = times(run.size - 1, wait + run.gap)
        before = times(run.turns - 1, then(to_last, wait + run.turn))
        durations: list[int] = then(before, then(to_last, wait)).tolist()
        return durations


class TablePort:
    """A port with a stall pattern, without `period`: a sorted table of available cycles for each page.

    A second table, for runs, has the next available cycle for each cycle of a page.
    """

    period = 0

    def __init__(self, latency: int, settings: MemorySettings, name: str):
        self.latency = latency
        self._settings, self._name = settings, name
        self._pages: dict[int, memoryview] = {}  # views of arrays: fastest at giving Python integers
        self._next_pages: dict[int, memoryview] = {}

    def _page(self, number: int) -> memoryview:
        page = self._pages.get(number)
        if page is None:
            first = number << PAGE_BITS
            free = self._settings.available_from(self._name, first, 1 << PAGE_BITS)
            page = self._pages[number] = (free.nonzero()[0] + first).data
        return page

    def after(self, cycle: int, n: int) -> int:
        """The n-th (from 1) available cycle at or after `cycle`."""
        number = cycle >> PAGE_BITS
        page = self._page(number)
        at = bisect_left(page, cycle) + n - 1
        while at >= len(page):
            at -= len(page)
            number += 1
            page = self._page(number)
        found: int = page[at]
        return found

    def count(self, start: int, end: int) -> int:
        """Number of available cycles in [start, end)."""
        if end <= start:
            return 0
        number, last = start >> PAGE_BITS, end >> PAGE_BITS
        found = -bisect_left(self._page(number), start)
        while number < last:
            found += len(self._page(number))
            number += 1
        return found + bisect_left(self._page(last), end)

    def _next_page(self, number: int) -> memoryview:
        page = self._next_pages.get(number)
        if page is None:
            first, free = number << PAGE_BITS, np.asarray(self._page(number))
            places = np.searchsorted(free, np.arange(first, first + (1 << PAGE_BITS)))
            behind = self.after(first + (1 << PAGE_BITS), 1)
            page = self._next_pages[number] = np.append(free, behind)[places].data
        return page

    def run(self, cycle: int, run: RequestRun) -> int:
        """The cycle in which a run's last request is accepted, if its first is presented in `cycle`."""
        gap, size, turn, turns = run
        mask, accepted, number, page = (1 << PAGE_BITS) - 1, cycle, -1, memoryview(b"")
        for _ in range(turns):
            for _ in range(size):
                if cycle >> PAGE_BITS != number:
                    number = cycle >> PAGE_BITS
                    page = self._next_page(number)
                accepted = page[cycle & mask]
                cycle = accepted + gap
            cycle = accepted + turn
        return accepted


Port = BandwidthPort | TablePort


def port_of(settings: MemorySettings, name: str) -> Port:
    """The port with this name in a run."""
    p = settings.ports[name]
    if settings.stall_rate == 0:
        return BandwidthPort(p.latency, p.bandwidth, p.width)
    return TablePort(p.latency, settings, name)
