"""Warps of an unrolled program: waits in front of sinks and signals behind sources, in blocks without loops.

Both ends of a sync stand in the innermost block around source and sink, so that control passes either both or
none of them: what a branch leaves out is awaited by nobody.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sw.ir.expression import Const
from sw.ir.program import Instruction, Program
from sw.warps.candidates import meeting
from sw.warps.listing import Entry
from sw.warps.reduce import Reduction, reduce
from sw.warps.sites import Gap, Path, insert, spots
from sw.warps.unique import Pair


@dataclass(frozen=True)
class Sync:
    """A signal behind statement `source` and a wait in front of statement `sink` of a block.

    `edges` are those that it stands for, as (source, sink) labels of instructions. One of a throttle may go
    back in the text: it holds the source of later tokens. In one and the same branch it may signal in front
    of it (`early`), behind the waits there, or wait behind it (`late`), in front of the signals there.
    """

    block: Path
    source: int
    sink: int
    warps: Pair
    data: bool
    edges: tuple[tuple[str, str], ...]
    throttle: bool = False
    early: bool = False
    late: bool = False

    @property
    def order(self) -> tuple[object, ...]:
        """What sorts syncs by source, then by sink."""
        return self.block, self.source, self.sink, self.warps


def syncs_of(program: Program, entries: Iterable[Entry]) -> list[Sync]:
    """The syncs for the edges of a program without loops that are kept; equal ones are joined."""
    places = {s.instruction.label: s for s in spots(program)}
    found: defaultdict[tuple[Path, int, int, Pair], list[Entry]] = defaultdict(list)
    for e in entries:
        if e.kept:
            source, sink = places[e.source], places[e.sink]
            warps = source.instruction.warp, sink.instruction.warp
            assert warps[0] is not None
            assert warps[1] is not None
            around = meeting(source, sink)
            ends = source.ancestor(around).position, sink.ancestor(around).position
            found[source.gap.block[:around], *ends, (warps[0], warps[1])].append(e)
    made = [
        Sync(*key, any(e.data for e in joined), tuple((e.source, e.sink) for e in joined))
        for key, joined in found.items()
    ]
    return sorted(made, key=lambda s: s.order)


def reduced(syncs: Sequence[Sync], reduction: Reduction) -> list[Sync]:
    """The syncs without those that others of the same block imply; those that go back in the text stay."""
    blocks: defaultdict[Path, list[Sync]] = defaultdict(list)
    for s in syncs:
        blocks[s.block].append(s)
    left: list[Sync] = []
    for found in blocks.values():
        forward = [s for s in found if s.source < s.sink]
        left += [s for s in found if s.source >= s.sink]
        nodes = sorted({n for s in forward for n in ((s.source, s.warps[0]), (s.sink, s.warps[1]))})
        number = {node: n for n, node in enumerate(nodes)}
        pairs = [(number[s.source, s.warps[0]], number[s.sink, s.warps[1]]) for s in forward]
        warps = np.array([warp for _, warp in nodes], np.int64)
        kept = reduce(np.array(pairs, np.int64).reshape(-1, 2), warps, reduction)
        left += [s for s, keep in zip(forward, kept.tolist(), strict=True) if keep]
    return sorted(left, key=lambda s: s.order)


def in_order(syncs: Sequence[Sync], reduction: Reduction) -> list[Sync]:
    """The syncs such that of one ordered pair of warps the n-th wait is that of the n-th signal.

    In one block `reduced` leaves nothing that crosses: a token that is given earlier and taken later than
    another is implied by it. Where a branch in between has tokens of its own, the wait moves in front of it.
    """
    inside: defaultdict[tuple[Path, Pair], set[int]] = defaultdict(set)
    for s in syncs:
        for depth, (position, _) in enumerate(s.block):
            inside[s.block[:depth], s.warps].add(position)
    moved = []
    for s in syncs:
        between = [p for p in inside[s.block, s.warps] if s.source < p < s.sink]
        moved.append(dataclasses.replace(s, sink=min(between)) if between else s)
    return reduced(moved, reduction)


def wait_order(sync: Sync) -> tuple[object, ...]:
    """What sorts the waits in one place: throttles last, so that those that are not needed show."""
    return sync.throttle, sync.order


def with_syncs(program: Program, syncs: Sequence[Sync], channels: Sequence[int]) -> Program:
    """The program with signals behind sources and waits in front of sinks, on these channels."""
    additions: defaultdict[Gap, list[Instruction]] = defaultdict(list)
    numbers = {s: n for n, s in enumerate(syncs)}

    def add(gap: Gap, name: str, sync: Sync) -> None:
        n = numbers[sync]
        warp, channel = sync.warps[name == "wait"], Const(channels[n])
        operation = Instruction(f"{name} {n}", name, warp=warp, operands=(("channel", channel),))
        additions[gap].append(operation)

    signals, waits = sorted(syncs, key=lambda s: s.order), sorted(syncs, key=wait_order)
    for sync in (s for s in waits if s.late):
        add(Gap(sync.block, sync.sink + 1), "wait", sync)
    for sync in (s for s in signals if not s.early):
        add(Gap(sync.block, sync.source + 1), "signal", sync)
    for sync in (s for s in waits if not s.late):
        add(Gap(sync.block, sync.sink), "wait", sync)
    for sync in (s for s in signals if s.early):
        add(Gap(sync.block, sync.source), "signal", sync)
    return insert(program, additions)
