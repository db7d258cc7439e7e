"""What is left out of waits and signals: as much as by looking at everything, every time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hw.config import load
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.scope import retype
from sw.warps.channels import Channels, share_channels
from sw.warps.choose import choose, reduced, world_of
from sw.warps.convert import convert
from sw.warps.listing import bounded_runs
from sw.warps.tokens import Demand, Sync, World, known, unmet
from sw.warps.wait_clocks import WaitClocks, room_of
from tests.sw.warps.random_programs import drawn
from tests.sw.warps.samples import values_of

CONFIG = load("default")
CASES = [(kind, seed) for kind in ("nests", "control", "everything", "pipelines") for seed in range(6)]


def prepared(program: Program) -> tuple[World, list[Demand], list[Sync]]:
    """The runs of a program, what must be ordered, and places for it."""
    world, demands = world_of(bounded_runs(program, values=values_of(program)), CONFIG.channel_depth)
    return world, demands, choose(world, demands)


def plainly_reduced(world: World, syncs: Sequence[Sync], demands: Sequence[Demand]) -> list[Sync]:
    """As `reduced`, looking at all demands for every sync."""
    left = list(syncs)
    missing = set(map(id, unmet(world, left, demands)))
    wanted = [d for d in demands if id(d) not in missing]
    for sync in sorted(syncs, key=world.events, reverse=True):
        rest = [s for s in left if s is not sync]
        if not unmet(world, rest, wanted):
            left = rest
    return left


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_syncs_that_go_are_those_that_go_when_everything_is_looked_at(kind: str, seed: int) -> None:
    world, demands, syncs = prepared(drawn(kind, seed))
    assert reduced(world, syncs, demands) == plainly_reduced(world, syncs, demands)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_all_is_ordered_and_no_channel_overflows_after_pruning(kind: str, seed: int) -> None:
    world, demands, syncs = prepared(drawn(kind, seed))
    found = reduced(world, syncs, demands)
    made = share_channels(world, found, demands, Channels.FIFO, 16, prune=True).syncs
    # The last tokens that nobody takes went behind the pruning, which changes no order.
    assert not unmet(world, made, demands)
    for sync in made:
        room = room_of(world, sync)
        taken, given = room.times(world)
        complete = known(world, made, sync.warps[0], given).get(sync.warps[1])
        assert not given.size or (complete is not None and (complete >= taken).all())


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_following_a_change_says_what_following_everything_says(kind: str, seed: int) -> None:
    world, demands, syncs = prepared(drawn(kind, seed))
    for n, sync in enumerate(syncs):
        knowledge = WaitClocks(world, syncs, demands, rooms=False)
        without = [s for s in syncs if s is not sync]
        gone = dict.fromkeys(knowledge.events[n].tolist(), -1)
        assert knowledge.change(n, gone, {}) == (not unmet(world, without, knowledge.demands))


def test_parts_that_are_alike_get_the_same_number_of_waits() -> None:
    """What is pruned in one part does not depend on how many others there are."""

    def waits(count: int) -> int:
        lines = ["@program", "def parts():", "    a: Buffer[40]", "    b: Buffer[40]"]
        for n in range(count):
            lines += [
                "    for i in range(6):",
                f"        P{n} = produce(write=a[(i % 2)*10 : (i % 2)*10 + 10], warp=0)",
                f"        Q{n} = change(read=a[(i % 2)*10 : (i % 2)*10 + 10], write=b[0:10], warp=1)",
                f"        C{n} = consume(read=b[0:10], warp=2)",
            ]
        program = retype(parse_program("\n".join(lines) + "\n"))
        return str(convert(program, CONFIG).program).count("wait(")

    few, more, most = waits(3), waits(5), waits(9)
    assert most - more == 2 * (more - few)
