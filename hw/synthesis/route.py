"""Routing with nextpnr-ecp5 of a design that is placed, for a clock that the router can reach."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from hw.errors import InputError
from hw.synthesis.tools import Progress

#: The router that ends on a device that is nearly full. Without --tmg-ripup it leaves single nets on detours
#: of some nanoseconds; with it, it routes late paths again: one placement of `tiny` reached 100 MHz, not 90.
_ROUTER = ("--router", "router2")
_TIMED = "--tmg-ripup"
#: The parts of the wanted frequency that are tried: the router goes on for ever if a path stays late. First a
#: little more than is wanted: where the router finds that nothing is late, some paths are, by 2 %.
_SHARES = (1.03, 1.0, 0.96, 0.92, 0.88)
#: How far routing may come beyond nextpnr's estimate for a placement. Found: 1.17 to 1.39 times.
_BEYOND = 1.5
#: Rounds without progress after which a routing is given up: as long as wires are used twice, and then.
_PATIENCE, _LATE = 100, 50
#: A round of the router: its number, the wires that are used twice, the connections that are late.
_ROUND = re.compile(r"Info:\s+iter=(\d+) wires=\d+ overused=(\d+) overuse=\d+(?: tmgfail=(\d+))?")
_ESTIMATE = re.compile(r"(?:Info|Warning): Max frequency for clock\s+'.*': ([\d.]+) MHz")


class StuckError(InputError):
    """A routing makes no progress."""


class _Rounds:
    """Looks at the rounds of a routing; raises `StuckError` where they make no progress."""

    def __init__(self, device: str):
        self._device = device
        self._fewest: tuple[float, float] = math.inf, math.inf
        self._reached = 0

    def line(self, text: str) -> None:
        """Take a line of nextpnr's log."""
        if not (match := _ROUND.match(text)):
            return
        number, crowded, late = (int(found or 0) for found in match.groups())
        # While wires are used twice, what is late means little.
        now = (crowded, late if crowded == 0 else math.inf)
        if now < self._fewest:
            self._fewest, self._reached = now, number
        elif number >= self._reached + (_PATIENCE if self._fewest[0] else _LATE):
            raise StuckError(
                f"{self._device}: routing does not end, {self._fewest[0]:,} wires or more are used twice "
                f"after {number:,} rounds; another seed, a larger device or a smaller machine may do "
                "(--synth-only tells resources alone)"
            )


def route(
    nextpnr: Callable[[list[str], Progress], None],
    device: str,
    frequency: float,
    shares: Sequence[float],
    progress: Callable[[float | None], Progress],
) -> float:
    """Route until an attempt ends; returns the part of `frequency` that it aimed at.

    `shares` of the frequency are tried, and at last 1.0 without regard to time. `nextpnr` runs the tool with
    more arguments and shows each line of its log. `progress` makes what takes the lines of an attempt for a
    frequency, None for the last one. Raises `InputError` if that does not end either.
    """

    def attempt(aimed: float, *timed: str) -> None:
        rounds, shown = _Rounds(device), progress(aimed if timed else None)

        def line(text: str) -> None:
            shown(text)
            rounds.line(text)

        nextpnr([*_ROUTER, *timed, "--freq", f"{aimed:g}"], line)

    for share in shares:
        with contextlib.suppress(StuckError):
            attempt(share * frequency, _TIMED)
            return share
    attempt(frequency)
    return 1.0


def shares(log: Path, frequency: float) -> list[float]:
    """The parts of a wanted frequency to try with a placement, by its log.

    Where all are beyond what may be reached, the same steps down from there.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    estimates = [float(found) for found in _ESTIMATE.findall(text)]
    most = _BEYOND * max(estimates, default=math.inf) / frequency
    return [share for share in _SHARES if share <= most] or [share * most for share in _SHARES[1:]]
