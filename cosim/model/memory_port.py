"""When a memory port accepts requests: the n-th available cycle by arithmetic or by table lookup."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cosim.settings import MemorySettings

PAGE_BITS = 10


class Port(Protocol):
    """The available cycles of one memory port."""

    latency: int

    def after(self, cycle: int, n: int) -> int:
        """The n-th (from 1) available cycle at or after `cycle`."""
        ...

    def count(self, start: int, end: int) -> int:
        """Number of available cycles in [start, end)."""
        ...


class AlwaysPort:
    """A port that accepts a request in every cycle."""

    def __init__(self, latency: int):
        self.latency = latency

    def after(self, cycle: int, n: int) -> int:
        """The n-th (from 1) available cycle at or after `cycle`."""
        return cycle + n - 1

    def count(self, start: int, end: int) -> int:
        """Number of available cycles in [start, end)."""
        return max(0, end - start)


class BandwidthPort:
    """A port of `bandwidth` bytes per cycle for words of `width`: cycle t when t*b mod width < b.

    That holds where floor(t*b / width) steps up, so both directions are a division.
    """

    def __init__(self, latency: int, bandwidth: int, width: int):
        self.latency, self.bandwidth, self.width = latency, bandwidth, width

    def _before(self, cycle: int) -> int:
        return (cycle - 1) * self.bandwidth // self.width + 1 if cycle > 0 else 0

    def after(self, cycle: int, n: int) -> int:
        """The n-th (from 1) available cycle at or after `cycle`."""
        return -(-(self._before(cycle) + n - 1) * self.width // self.bandwidth)

    def count(self, start: int, end: int) -> int:
        """Number of available cycles in [start, end)."""
        return max(0, self._before(end) - self._before(start))


class TablePort:
    """A port with a stall pattern: a sorted table of available cycles for each page of time in use."""

    def __init__(self, latency: int, settings: MemorySettings, name: str):
        self.latency = latency
        self._settings, self._name = settings, name
        self._pages: dict[int, np.ndarray] = {}

    def _page(self, number: int) -> np.ndarray:
        page = self._pages.get(number)
        if page is None:
            cycles = np.arange(number << PAGE_BITS, (number + 1) << PAGE_BITS, dtype=np.int64)
            page = self._pages[number] = cycles[self._settings.available(self._name, cycles)]
        return page

    def after(self, cycle: int, n: int) -> int:
        """The n-th (from 1) available cycle at or after `cycle`."""
        number = cycle >> PAGE_BITS
        page = self._page(number)
        at = int(page.searchsorted(cycle)) + n - 1
        while at >= len(page):
            at -= len(page)
            number += 1
            page = self._page(number)
        return int(page[at])

    def count(self, start: int, end: int) -> int:
        """Number of available cycles in [start, end)."""
        if end <= start:
            return 0
        number, last = start >> PAGE_BITS, end >> PAGE_BITS
        found = -int(self._page(number).searchsorted(start))
        while number < last:
            found += len(self._page(number))
            number += 1
        return found + int(self._page(last).searchsorted(end))


def port_of(settings: MemorySettings, name: str) -> Port:
    """The port of that name in a run, in the cheapest form that its settings permit."""
    p = settings.ports[name]
    if settings.always_available(name):
        return AlwaysPort(p.latency)
    if settings.stall_rate == 0:
        return BandwidthPort(p.latency, p.bandwidth, p.width)
    return TablePort(p.latency, settings, name)
