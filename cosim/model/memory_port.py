"""When a memory port accepts requests: the n-th available cycle by arithmetic or by table lookup."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

from cosim.settings import MemorySettings

PAGE_BITS = 12


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
        self._pages: dict[int, memoryview] = {}  # of an array: its elements come quickest as whole numbers

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


def port_of(settings: MemorySettings, name: str) -> Port:
    """The port of that name in a run, in the cheapest form that its settings permit."""
    p = settings.ports[name]
    if settings.always_available(name):
        return AlwaysPort(p.latency)
    if settings.stall_rate == 0:
        return BandwidthPort(p.latency, p.bandwidth, p.width)
    return TablePort(p.latency, settings, name)
