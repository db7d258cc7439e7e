"""Pruning removes all redundant waits and signals, and nothing else."""

from __future__ import annotations

import pytest

from hw.config import load
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.scope import retype
from sw.warps.channels import Channels, share_channels
from sw.warps.choose import choose, world_of
from sw.warps.convert import convert
from sw.warps.listing import bounded_runs
from sw.warps.prune import reduced
from sw.warps.tokens import Demand, Sync, World, room_of, unmet
from tests.budget import cases
from tests.sw.warps.random_programs import drawn
from tests.sw.warps.samples import values_of

CONFIG = load("default")
CASES = [
    (kind, seed) for kind in ("nests", "control", "everything", "pipelines") for seed in range(cases(6, 8))
]


def prepared(program: Program) -> tuple[World, list[Demand], list[Sync]]:
    """The runs of a program, what must be ordered, and places for it."""
    world, demands = world_of(bounded_runs(program, values=values_of(program)), CONFIG.channel_depth)
    return world, demands, choose(world, demands)


@pytest.mark.drawn
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_no_sync_that_is_left_can_go_and_those_that_went_were_needless(kind: str, seed: int) -> None:
    world, demands, syncs = prepared(drawn(kind, seed))
    left = reduced(world, syncs, demands)
    missing = list(unmet(world, syncs, demands))
    assert list(unmet(world, left, demands)) == missing
    for sync in left:
        assert len(list(unmet(world, [s for s in left if s is not sync], demands))) > len(missing)


@pytest.mark.drawn
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_all_is_ordered_and_no_channel_overflows_after_pruning(kind: str, seed: int) -> None:
    world, demands, syncs = prepared(drawn(kind, seed))
    found = reduced(world, syncs, demands)
    made = share_channels(world, found, found, demands, Channels.FIFO, 16, prune=True).syncs
    # The last tokens that nobody takes went behind the pruning, which changes no order.
    assert not list(unmet(world, made, [*demands, *(room_of(world, s) for s in made)]))


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
