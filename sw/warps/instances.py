"""The conversion of an unrolled program: its edges, channels, throttles, and the text of every warp."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.ir.program import If, Instruction, Program, Statement
from sw.ir.split import warps
from sw.ir.walk import instructions
from sw.warps.listing import Entry, Graph, instance_edges, make_graph
from sw.warps.reduce import Reduction
from sw.warps.straight import Sync, reduced, syncs_of, with_syncs
from sw.warps.text import warp_assembly
from sw.warps.throttle import DepthError, runs_of, throttled
from sw.warps.unique import Channels, Use, fifo_channels, unique_channels
from sw.warps.unroll import Unrolled, unrolled


@dataclass(frozen=True)
class Conversion:
    """Warps of an unrolled program.

    `program` is the unrolled program with waits and signals, of the instructions `source`; `graph` has its
    graphs by run. `entries` are its edges by printed names, `channels` the channel of every kept one and of
    every throttle, `programs` the texts by warp.
    """

    source: Unrolled
    program: Program
    graph: Graph
    entries: tuple[Entry, ...]
    throttle: tuple[tuple[str, str], ...]
    channels: dict[str, int]
    programs: dict[int, str]

    @property
    def channel_count(self) -> int:
        """How many channels are in use."""
        return len(set(self.channels.values()))


def convert_instances(
    program: Program,
    config: MachineConfig,
    reduction: Reduction = Reduction.FULL,
    channels: Channels = Channels.FIFO,
    also: Sequence[Mapping[str, int]] = (),
) -> Conversion:
    """Unroll a program whose instructions all have warps, and convert it.

    Edges are those of all runs, or of some where parameters allow too many, those with the values `also`
    among them.

    Raises `IRError` for a program that cannot be unrolled, `InputError` where the machine has too few
    channels or instruction words, or channels that hold too few tokens.
    """
    source = unrolled(program)
    graph = make_graph(source.program, reduction, also=also)
    entries = instance_edges(graph)
    syncs = reduced(syncs_of(source.program, entries), reduction)
    _fits(source, syncs, config)
    values = [run.sample.values for run in graph.runs]
    if channels is Channels.FIFO:
        try:
            syncs = throttled(source.program, syncs, values, config.channel_depth, reduction)
        except DepthError as error:
            first, last = (source.name(label) for label in error.edge)
            raise DepthError((first, last), error.depth) from None
        by_pair = fifo_channels(s.warps for s in syncs)
        numbers = [by_pair[s.warps] for s in syncs]
    else:
        uses = [Use(s.data, s.warps) for s in syncs]
        numbers = unique_channels(uses, runs_of(source.program, syncs, values))
    named = {
        (source.name(a), source.name(b)): n for s, n in zip(syncs, numbers, strict=True) for a, b in s.edges
    }
    over = [(n, pair) for pair, n in named.items() if n >= config.channels]
    if over:
        most, (first, last) = max(over)
        raise InputError(
            f"{first}->{last} needs channel {most}: channels must be at least {most + 1}, "
            f"not {config.channels}"
        )
    printed = [
        dataclasses.replace(e, source=source.name(e.source), sink=source.name(e.sink)) for e in entries
    ]
    left = {e for s in syncs if not s.throttle for e in s.edges}
    kept = [(e.source, e.sink) in left for e in entries]
    made = with_syncs(source.program, syncs, numbers)
    text = dataclasses.replace(made, body=_labelled(made.body, source))
    return Conversion(
        source,
        made,
        graph,
        tuple(dataclasses.replace(e, kept=k) for e, k in zip(printed, kept, strict=True)),
        tuple((source.name(a), source.name(b)) for s in syncs if s.throttle for a, b in s.edges),
        {f"{a}->{b}": n for (a, b), n in named.items()},
        {w: warp_assembly(text, w, config, f"warp {w}") for w in warps(made)},
    )


def _fits(source: Unrolled, syncs: list[Sync], config: MachineConfig) -> None:
    """Raise `InputError` where operations, waits and signals alone need more words than a warp has."""
    found = instructions(source.program)
    words = Counter(s.warp for s in found)
    words.update(warp for s in syncs for warp in s.warps)
    for warp, count in words.items():
        if count + 1 > config.imem_words:
            own = [source.name(s.label) for s in found if s.warp == warp]
            raise InputError(
                f"warp {warp}, {own[0]} to {own[-1]}: imem_words must be at least {count + 1}, "
                f"not {config.imem_words}"
            )


def _labelled(body: tuple[Statement, ...], source: Unrolled) -> tuple[Statement, ...]:
    """The statements with instructions named as in the source, of which texts name the next instance."""
    made: list[Statement] = []
    for s in body:
        if isinstance(s, Instruction) and s.label in source.instances:
            s = dataclasses.replace(s, label=source.instances[s.label].label)
        elif isinstance(s, If):
            s = dataclasses.replace(s, body=_labelled(s.body, source), orelse=_labelled(s.orelse, source))
        made.append(s)
    return tuple(made)
