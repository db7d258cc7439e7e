"""Two warps that have no channel of their own tell each other through a third one.

A machine has fewer channels than six warps have ordered pairs. What one warp tells another through a third
arrives a little later and holds up the third as well, so it is done only where channels do not suffice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sw.warps.candidates import sites
from sw.warps.compose import fit
from sw.warps.tokens import Demand, Leg, Sync, World, onwards


def relayed(world: World, sync: Sync, third: int) -> list[Sync] | None:
    """What a sync does, through a third warp; None where it is also there for room in a channel.

    The third warp takes and gives a token right in front of where the sink's warp waits.
    """
    made: list[Sync] = []
    for demand in sync.demands:
        if type(demand) is not Demand:
            return None
        first, last = demand.warps
        (given, _), (taken, _) = (found[0] for found in sites(demand.source, demand.sink))
        fields = demand.source, demand.sink, demand.pairs, demand.data
        ways = (
            (Leg(*fields, (first, third)), given, taken),
            (Leg(*fields, (third, last), taken), *onwards(taken)),
        )
        world.add(site for _, *ends in ways for site in ends)
        for leg, signal, wait in ways:
            found = fit(world, leg.warps, (signal,), (wait,), (leg,))
            if found is None:
                return None
            made.append(found)
    return made


def detours(syncs: Sequence[Sync]) -> Iterator[tuple[Sync, int]]:
    """Syncs, and third warps that both sides have channels to; those that the least depends on first."""
    pairs = {s.warps for s in syncs}
    thirds = sorted({w for pair in pairs for w in pair})
    for sync in sorted(syncs, key=lambda s: (len(s.demands), s.warps)):
        first, last = sync.warps
        yield from ((sync, w) for w in thirds if {(first, w), (w, last)} <= pairs)
