"""Channels: the worked example's numbers, and the rule applied in a plain way."""

import dataclasses
import itertools
import random

import networkx
import pytest

from cosim.session.warps import Warped, converted
from hw.config import MachineConfig
from hw.errors import InputError
from sw.ir.program import Program
from sw.ir.walk import instructions
from sw.warps.channels import Channels
from sw.warps.reduce import Reduction
from sw.warps.unroll import unrolled
from tests.sw.random_tile_programs import STRAIGHT, random_program
from tests.sw.warps.samples import WORKED, program_of, with_warps

CONFIG = MachineConfig(channels=64)

#: The numbers on the page, with P1 to P3 as P[0] to P[2].
NUMBERS = {
    "P[0]->C[0]": 1,
    "P[1]->C[1]": 2,
    "P[2]->C[2]": 3,
    "P4[0]->C4[0]": 1,
    "P4[1]->C4[1]": 2,
    "P4[2]->C4[2]": 3,
    "P7->C7": 1,
    "C[1]->P4[0]": 4,
    "C[2]->P4[0]": 5,
    "C4[0]->P7": 4,
    "C4[1]->P7": 5,
    "C4[2]->P7": 6,
}


def straight(program: Program) -> Program:
    """The program with instances as instructions, named P1 to P7 and C1 to C7."""
    made = unrolled(program).program
    counts: dict[int | None, int] = {}
    body = []
    for s in instructions(made):
        counts[s.warp] = counts.get(s.warp, 0) + 1
        body.append(dataclasses.replace(s, label=f"{'PC'[s.warp or 0]}{counts[s.warp]}"))
    return dataclasses.replace(made, body=tuple(body))


def test_the_worked_example_has_the_channels_of_the_page() -> None:
    made = converted(program_of(WORKED), CONFIG, Reduction.OBTAINED, Channels.UNIQUE, unroll=True)
    assert made.channels == NUMBERS
    assert made.channel_count == 6
    assert [e.name for e in made.entries if not e.kept] == ["C[0]->P7", "C[1]->P7"]


def test_the_worked_example_as_a_straight_line() -> None:
    made = converted(straight(program_of(WORKED)), CONFIG, Reduction.OBTAINED, Channels.UNIQUE, unroll=True)
    wanted = {f"P{n}->C{n}": c for n, c in zip(range(1, 8), (1, 2, 3, 1, 2, 3, 1), strict=True)}
    wanted |= {"C2->P4": 4, "C3->P4": 5, "C4->P7": 4, "C5->P7": 5, "C6->P7": 6}
    assert made.channels == wanted
    assert [e.name for e in made.entries if not e.kept] == ["C1->P7", "C2->P7"]


def test_the_worked_example_needs_two_channels_first_in_first_out() -> None:
    made = converted(program_of(WORKED), CONFIG, unroll=True)
    kept = [e for e in made.entries if e.kept]
    assert sum(e.data for e in kept) == 7
    assert [e.name for e in kept if not e.data] == ["C[2]->P4[0]", "C4[2]->P7"]
    assert made.channel_count == 2
    assert {n for e, n in made.channels.items() if e[0] == "P"} == {0}


def by_hand(program: Program, made: Warped) -> dict[str, int]:
    """The rule of the page, with reachability instead of clocks."""
    nodes = [s.label for s in instructions(unrolled(program).program)]
    warps = {s.label: s.warp for s in instructions(unrolled(program).program)}
    graph = networkx.DiGraph()
    graph.add_nodes_from(nodes)
    for warp in set(warps.values()):
        own = [n for n in nodes if warps[n] == warp]
        graph.add_edges_from(itertools.pairwise(own))
    graph.add_edges_from((e.source, e.sink) for e in made.entries)
    edges = [e for e in made.entries if e.kept]
    edges.sort(key=lambda e: (nodes.index(e.source), nodes.index(e.sink)))
    latest: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    chosen: list[int] = []
    for e in edges:
        pool = latest[e.data]
        ends = warps[e.source], warps[e.sink]
        free = (
            n
            for n, (x, y) in enumerate(pool)
            if (warps[x], warps[y]) == ends and (y == e.source or networkx.has_path(graph, y, e.source))
        )
        number = next(free, len(pool))
        if number == len(pool):
            pool.append((e.source, e.sink))
        pool[number] = (e.source, e.sink)
        chosen.append(number)
    first = {True: 1, False: 1 + len(latest[True])}
    return {e.name: n + first[e.data] for e, n in zip(edges, chosen, strict=True)}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("reduction", list(Reduction))
def test_random_programs_follow_the_rule(seed: int, reduction: Reduction) -> None:
    rng = random.Random(seed)
    program = with_warps(rng, random_program(rng, STRAIGHT, instructions=16), 4)
    made = converted(program, CONFIG, reduction, Channels.UNIQUE, unroll=True)
    assert made.channels == by_hand(program, made)


def test_a_third_warp_does_not_take_the_channel_of_others() -> None:
    text = """
        @program
        def p():
            a: Buffer[8]
            b: Buffer[8]
            P1 = f(write=a, warp=0)
            C1 = g(read=a, write=b, warp=1)
            D1 = h(read=b, warp=2)
            P2 = f(read=b, write=a, warp=0)
            C2 = g(read=a, warp=1)
    """
    made = converted(program_of(text), CONFIG, Reduction.FULL, Channels.UNIQUE, unroll=True)
    assert made.channels["P1->C1"] == made.channels["P2->C2"] == 1
    assert made.channels["C1->D1"] != made.channels["C1->P2"]
    assert 1 not in (made.channels["C1->D1"], made.channels["C1->P2"])


def test_more_channels_than_the_machine_has() -> None:
    config = CONFIG.replace(channels=6)
    wanted = r"C4\[2\] -> P7 needs channel 6: channels must be at least 7, not 6"
    with pytest.raises(InputError, match=wanted):
        converted(program_of(WORKED), config, Reduction.OBTAINED, Channels.UNIQUE, unroll=True)
