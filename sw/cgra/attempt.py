"""One attempt to map a graph with a given II: place, route, repair, and report the obstacles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sw.cgra.compiled import generator
from sw.cgra.congestion import congestion, spread
from sw.cgra.mapping import Mapping, registers_of
from sw.cgra.place import Spots, short, spare, start
from sw.cgra.problem import Problem
from sw.cgra.repair import before, settle
from sw.cgra.resources import MOST_REGISTERS
from sw.cgra.route import Routes, routes, scratch

#: Start and end temperatures: placement; moves with routing; these once more.
PLACE_HEAT = (3.0, 0.2)
REPAIR_HEAT = (4.0, 1.0)
AGAIN_HEAT = (2.0, 1.0)
#: Proposals and moves between two checks of the time limit.
SLICE, REPAIR_SLICE = 1_000_000, 4_000
#: Most missing steps after placement for which moves with routing still have a chance.
MOST_SHORT = 3
#: Operations for which a graph is allowed `MOST_SHORT` missing steps; and the most uses left for which moves
#: with routing are repeated.
LARGE, FEW = 100, 4
#: Most items named in a failure.
_NAMED = 4


@dataclass(frozen=True)
class Effort:
    """Work of an attempt: proposals per operation, rounds of the router, moves with routes."""

    proposals: int
    rounds: int
    moves: int


@dataclass(frozen=True)
class Try:
    """The outcome of an attempt after `moves` moves with routing.

    `left` counts missing steps, unrouted values, and excess uses of resources at the end.
    """

    mapping: Mapping | None
    left: int
    why: str = ""
    moves: int = 0


def place_flat(
    problem: Problem, seed: tuple[int, ...], effort: Effort, late: Callable[[], bool]
) -> tuple[Spots, int]:
    """Steps and PEs by annealing, and the number of proposals; raises `NoPlaceError`."""
    spots = start(problem, seed)
    return spots, cool(problem, spots, seed, effort.proposals * problem.size, PLACE_HEAT, late)


def cool(
    problem: Problem,
    spots: Spots,
    seed: tuple[int, ...],
    proposals: int,
    heat: tuple[float, float],
    late: Callable[[], bool],
) -> int:
    """Anneals in slices, so that the time can be checked in between; returns the number of proposals."""
    rng, made, ways = generator(seed), 0, congestion(problem)
    for count, hot, cold in slices(proposals, SLICE, heat):
        if late():
            break
        spread(problem.arrays, rng, spots, ways, count, hot, cold)
        made += count
    return made


def slices(total: int, size: int, heat: tuple[float, float]) -> list[tuple[int, float, float]]:
    """A cooling schedule in slices of about equal work: counts, and temperatures at both ends."""
    pieces = max(1, -(-total // size))
    hot, cold = (math.log(h) for h in heat)
    ends = [math.exp(hot + (cold - hot) * i / pieces) for i in range(pieces + 1)]
    counts = [total * (i + 1) // pieces - total * i // pieces for i in range(pieces)]
    return list(zip(counts, ends, ends[1:], strict=False))


def finish(
    problem: Problem, spots: Spots, seed: tuple[int, ...], effort: Effort, late: Callable[[], bool]
) -> Try:
    """Routes a placement, and repairs it if routing fails."""
    large = max(1, problem.size // LARGE)
    lacking = short(problem, spots)
    found, work = routes(problem), scratch(problem)
    rest, rng = before(problem, found), generator((*seed, 1))
    moves = effort.moves if lacking <= MOST_SHORT * large else 0
    pieces = slices(moves, REPAIR_SLICE, REPAIR_HEAT)
    again = slices(moves, REPAIR_SLICE, AGAIN_HEAT)
    rounds, made, least = effort.rounds, 0, FEW
    for turn in range(large):
        for count, hot, cold in again if turn else pieces:
            result = settle(problem.arrays, rng, found, work, rest, spots, rounds, count, hot, cold)
            if result >= 0:
                return Try(to_mapping(problem, spots, found), 0, "", made + result)
            rounds, made, least = 0, made + count, -1 - result
            if late():
                break
        if late() or least > FEW or not moves:
            break
    left, why = obstacles(problem, spots, found)
    return Try(None, left, why, made)


def obstacles(problem: Problem, spots: Spots, found: Routes) -> tuple[int, str]:
    """The obstacles as a number and in words: short dependences, unrouted values, overuse."""
    graph, fabric = problem.graph, problem.fabric
    named: list[str] = []
    left = 0
    for e, edge in enumerate(graph.dependences):
        u, v = problem.arrays.source[e], problem.arrays.target[e]
        lacks = -spare(problem.arrays, e, spots)
        if lacks > 0:
            named.append(f"{edge.source} -> {edge.target} lacks {lacks} step{'s' * (lacks > 1)}")
        elif edge.routed and not found.length[e]:
            steps = int(spots.step[v] - spots.step[u] + problem.arrays.wait[e])
            way = f"PE {fabric.at(int(spots.pe[u]))} to PE {fabric.at(int(spots.pe[v]))}"
            named.append(
                f"no route arrives in time: {edge.source} -> {edge.target}, {steps} steps from {way}"
            )
        left += max(lacks, 0) or int(edge.routed and not found.length[e])
    names = [f"link {fabric.at(link.source)} to {fabric.at(link.target)}" for link in fabric.links]
    held = registers_of(fabric, MOST_REGISTERS)[len(names) :]
    names += [f"{register.kind} of PE {fabric.at(register.pe)}" for register in held]
    names += [f"{port} port of PE {fabric.at(pe)}" for port in ("write", "read") for pe in range(fabric.size)]
    for x, context in np.argwhere(found.used > 1):
        excess = int(found.used[x, context]) - 1
        named.append(f"{names[x]} in context {context} overused by {excess}")
        left += excess
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return left, "; ".join(named[:_NAMED]) + more


def to_mapping(problem: Problem, spots: Spots, routes: Routes) -> Mapping:
    """Converts spots and routes to a mapping."""
    names = registers_of(problem.fabric, MOST_REGISTERS)
    paths = {
        int(e): [names[x] for x in routes.path[e, 1 : routes.length[e] + 1]]
        for e in np.flatnonzero(problem.arrays.routed)
    }
    return problem.mapping(spots.pe.tolist(), spots.step.tolist(), paths)
