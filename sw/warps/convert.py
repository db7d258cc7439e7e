"""Converts a sequential program to warps and keeps its loops (docs/warps.md, "Rolled loops")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.ir.expression import Const
from sw.ir.program import Instruction, Program
from sw.ir.scope import retype
from sw.ir.walk import instructions
from sw.warps.channels import Channels, Shared, share_channels
from sw.warps.choose import choose, world_of
from sw.warps.listing import BoundedRuns, ListedEdge, bounded_runs, rolled_edges
from sw.warps.prune import reduced
from sw.warps.reduce import Reduction
from sw.warps.sites import Gap, Order, SyncSite, insert, spots
from sw.warps.tokens import Demand, Room


@dataclass(frozen=True)
class Conversion:
    """The sequential program with the waits and signals of all warps.

    `bounded` holds the demands, by run. `entries` are the edges with distances; an edge is kept if a channel
    serves it, which `channels` lists by name. `throttle` holds edges that only keep channels from
    overflowing.
    """

    program: Program
    bounded: BoundedRuns
    entries: tuple[ListedEdge, ...]
    channels: Mapping[str, int]
    throttle: tuple[tuple[str, str], ...]
    channel_count: int


def convert(
    program: Program,
    config: MachineConfig,
    reduction: Reduction = Reduction.FULL,
    channels: Channels = Channels.FIFO,
    *,
    values: Sequence[Mapping[str, int]] = ({},),
    reach: int = 1,
    release_early: bool = False,
    name: Callable[[str], str] = str,
) -> Conversion:
    """Inserts waits and signals into a sequential program in which every instruction has a warp.

    Sites are chosen on bounded runs with the parameter `values`; a larger `reach` follows that many times
    more iterations. The result must be checked (`sw.check`). `release_early`: release buffers as soon as
    possible; choose it when the consumer is not the bottleneck. `name` maps instructions to the names that
    are listed. Raises `IRError` for a program that fails for all values, and `InputError` if the machine has
    too few channels, or if these hold too few tokens.
    """
    bounded = bounded_runs(program, reduction, values=values, reach=reach)
    world, demands = world_of(bounded, config.channel_depth)
    full, syncs = reduction is Reduction.FULL, choose(world, demands, release_early)
    few = reduced(world, syncs, demands) if full else syncs
    shared = share_channels(world, few, syncs, demands, channels, config.channels, prune=full)
    count = len(set(shared.channels))
    needed = max(shared.channels, default=-1) + 1
    if needed > config.channels:
        sync = shared.syncs[shared.channels.index(needed - 1)]
        source, sink = map(name, _labels(sync.demands))
        raise InputError(
            f"{source} -> {sink} needs channel {needed - 1}: channels must be at least {needed}, "
            f"not {config.channels}"
        )
    entries, numbers = _listed(program, rolled_edges(bounded), shared, name)
    given = dict(zip((s.warps for s in shared.syncs), shared.channels, strict=True))
    throttle: dict[tuple[str, str], None] = {}
    places = {s.gap: s.instruction.label for s in spots(program)}
    for room in shared.throttle:
        for edge in _throttle_edges(room, places):
            first, last = map(name, edge)
            throttle[first, last] = None
            numbers.setdefault(f"{first}->{last}", given[room.warps])
    return Conversion(emit(program, shared), bounded, entries, numbers, tuple(throttle), count)


def _labels(demands: Sequence[object]) -> tuple[str, str]:
    """The source and sink that a sync serves first."""
    for d in demands:
        if isinstance(d, Demand):
            return d.source.instruction.label, d.sink.instruction.label
    return "", ""


def _listed(
    program: Program, entries: Sequence[ListedEdge], shared: Shared, name: Callable[[str], str]
) -> tuple[tuple[ListedEdge, ...], dict[str, int]]:
    """The edges, kept if a channel serves their warps, and the channel of each."""
    warp = {s.label: s.warp for s in instructions(program)}
    exact: dict[tuple[str, str], int] = {}
    between: dict[tuple[int | None, int | None], int] = {}
    for sync, channel in zip(shared.syncs, shared.channels, strict=True):
        between.setdefault(sync.warps, channel)
        for d in sync.demands:
            if isinstance(d, Demand):
                exact[d.source.instruction.label, d.sink.instruction.label] = channel
    made, numbers = [], {}
    for e in entries:
        sink, at, distance = e.sink.partition("@")
        found = exact.get((e.source, sink), between.get((warp[e.source], warp[sink])))
        kept = e.kept and found is not None
        made.append(ListedEdge(name(e.source), name(sink) + at + distance, e.data, kept))
        if kept and found is not None:
            numbers[made[-1].name] = found
    return tuple(made), numbers


def _throttle_edges(room: Room, places: Mapping[Gap, str]) -> list[tuple[str, str]]:
    """The order that a throttle enforces: from instructions after waits to those before held signals.

    If waits or signals have no adjacent instructions, those that the channel serves first stand for them.
    """
    sinks, sources = ([places.get(gap) for gap in gaps] for gaps in zip(*room.gaps, strict=True))
    found = [(a, b) for a, b in zip(sinks, sources, strict=True) if a is not None and b is not None]
    return found or [_labels(room.demands)[::-1]]


def emit(program: Program, shared: Shared) -> Program:
    """The program with the waits and signals of channels, preceded by the tokens in advance.

    Signals of a warp fire one after the other, and a wait takes a cycle. So at one site, the signals for
    which the other side has the fewest tokens come first, and of tokens in advance the first of each channel.
    Waits that are most likely to succeed at once come first, and waits for data come last.
    """
    additions: defaultdict[Gap, list[tuple[tuple[int, int, int], Instruction]]] = defaultdict(list)
    labels: defaultdict[str, int] = defaultdict(int)

    def instruction(name: str, warp: int, channel: int, site: SyncSite) -> Instruction:
        stem = f"{name}_{warp}"
        labels[stem] += 1
        operands = (("channel", Const(channel)),)
        return Instruction(f"{stem}_{labels[stem] - 1}", name, warp=warp, when=site.when, operands=operands)

    start = Gap((), 0)
    for sync, channel in zip(shared.syncs, shared.channels, strict=True):
        advance = (SyncSite(start, Order.ADVANCE, count=sync.lead),) if sync.lead else ()
        for name, warp, sites in (
            ("signal", sync.warps[0], (*advance, *sync.signals)),
            ("wait", sync.warps[1], sync.waits),
        ):
            for site in sites:
                for n in range(site.count):
                    rank = (site.order, n, -sync.lead if name == "wait" else sync.lead)
                    additions[site.gap].append((rank, instruction(name, warp, channel, site)))
    found = {gap: [i for _, i in sorted(made, key=lambda m: m[0])] for gap, made in additions.items()}
    return retype(insert(program, found))
