"""Sync channels for the edges of an unrolled program.

`unique` gives every edge a channel of its own as long as its token is under way; `fifo` gives every ordered
pair of warps one, in which tokens are taken in the order in which they are given (docs/warps.md).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

#: An ordered pair of warps: who signals, who waits.
Pair = tuple[int, int]


class Channels(enum.Enum):
    """How channels are given to edges."""

    UNIQUE = "unique"
    FIFO = "fifo"


@dataclass(frozen=True)
class Use:
    """An edge that needs a channel: of which pool, and who signals and waits."""

    data: bool
    warps: Pair


class Happening(Protocol):
    """A run of the program, as far as edges' tokens go."""

    def happens(self, edge: int) -> bool:
        """Whether the token of that edge is given in the run at all."""
        ...

    def over(self, earlier: int, later: int) -> bool:
        """Whether the token of the one is known to be taken before that of the other is given."""
        ...


@dataclass
class _Channel:
    """A channel: by run its latest use."""

    warps: Pair
    uses: dict[int, int] = field(default_factory=dict)


def unique_channels(uses: Sequence[Use], runs: Sequence[Happening]) -> list[int]:
    """A channel for every edge, which are in sequential order of their sources, then of their sinks.

    There are two pools, of data and of other edges. An edge takes the lowest-numbered channel of its pool
    that is unused, or whose latest use had the same signalling and waiting warps and is over. Numbers start
    at 1, those of the second pool after the last of the first.
    """
    pools: dict[bool, list[_Channel]] = {True: [], False: []}
    found: list[int] = []
    for edge, use in enumerate(uses):
        pool = pools[use.data]
        here = [n for n, run in enumerate(runs) if run.happens(edge)]
        free = (
            number
            for number, channel in enumerate(pool)
            if channel.warps == use.warps
            and all(runs[n].over(channel.uses[n], edge) for n in here if n in channel.uses)
        )
        number = next(free, len(pool))
        if number == len(pool):
            pool.append(_Channel(use.warps))
        pool[number].uses.update(dict.fromkeys(here, edge))
        found.append(number)
    return [n + 1 + (0 if use.data else len(pools[True])) for n, use in zip(found, uses, strict=True)]


def fifo_channels(pairs: Iterable[Pair]) -> dict[Pair, int]:
    """A channel for every ordered pair of warps, numbered from 0 in their order."""
    return {pair: n for n, pair in enumerate(sorted(set(pairs)))}
