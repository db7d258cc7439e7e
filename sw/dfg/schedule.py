"""Modulo scheduling: a control step for every node, such that iterations can start every II steps.

Sources: B. R. Rau, "Iterative modulo scheduling", 1994: by height; where nothing is free, an operation takes
the place of others, which are scheduled again. R. A. Huff, "Lifetime-sensitive modulo scheduling", 1993: by
slack, near what operations take their operands from.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.dfg.graph import Edge, Graph, NodeId
from sw.dfg.recurrence import MII, Resources, mii, positive_cycle

#: Placements per operation after which an II is given up.
BUDGET = 12
#: Seeds that are tried for every II.
ATTEMPTS = 4
#: No step.
_NONE = -(1 << 40)


@dataclass(frozen=True)
class Schedule:
    """Control steps from 0 by node; step modulo `ii` is where the resources are taken."""

    ii: int
    steps: Mapping[NodeId, int]

    @property
    def length(self) -> int:
        """Steps from the first to the last start of one iteration, both counted."""
        return max(self.steps.values(), default=-1) + 1


@dataclass(frozen=True)
class Window:
    """The steps that a node may have without regard to resources."""

    earliest: int
    latest: int

    @property
    def slack(self) -> int:
        """By how much it can move."""
        return self.latest - self.earliest


def windows(graph: Graph, ii: int, length: int | None = None) -> dict[NodeId, Window]:
    """As soon and as late as possible, for an iteration of `length` steps (default: the shortest possible).

    Raises `InputError` where a recurrence does not allow the II, or the length is too short.
    """
    cycle = positive_cycle(graph, graph.dependences, Fraction(ii))
    if cycle:
        shown = " -> ".join(str(e.source) for e in cycle)
        raise InputError(f"graph {graph.name!r}: the recurrence {shown} needs more than II {ii}")
    forwards = _longest(graph, ii, [(e.source, e.target, e) for e in graph.dependences])
    backwards = _longest(graph, ii, [(e.target, e.source, e) for e in graph.dependences])
    shortest = max((forwards[n] + backwards[n] for n in forwards), default=-1) + 1
    length = shortest if length is None else length
    if length < shortest:
        raise InputError(
            f"graph {graph.name!r}: the length must be at least {shortest} at II {ii}, not {length}"
        )
    return {n: Window(forwards[n], length - 1 - backwards[n]) for n in forwards}


def _longest(graph: Graph, ii: int, edges: list[tuple[NodeId, NodeId, Edge]]) -> dict[NodeId, int]:
    """The longest paths to all nodes where no cycle is positive."""
    found = dict.fromkeys((n.id for n in graph.nodes), 0)
    changed = True
    while changed:
        changed = False
        for source, target, edge in edges:
            least = found[source] + graph.delay(edge) - ii * edge.distance
            if least > found[target]:
                found[target] = least
                changed = True
    return found


def violations(graph: Graph, resources: Resources, schedule: Schedule) -> list[str]:
    """What is wrong with a schedule: dependences that are too short, resources that are taken too often."""
    found: list[str] = []
    for edge in graph.dependences:
        ready = schedule.steps[edge.source] + graph.delay(edge) - schedule.ii * edge.distance
        if schedule.steps[edge.target] < ready:
            steps = f"step {schedule.steps[edge.target]}, not before {ready}"
            found.append(f"{edge.source} -> {edge.target} ({edge.operand}): {steps}")
    taken: dict[tuple[str, int], int] = defaultdict(int)
    for node in graph.nodes:
        for name in resources.classes(graph, node):
            taken[name, schedule.steps[node.id] % schedule.ii] += 1
    for (name, slot), count in sorted(taken.items()):
        if count > resources.counts[name]:
            found.append(
                f"{count} operations on {resources.counts[name]} {name} in step {slot} modulo {schedule.ii}"
            )
    return found


def modulo_schedule(
    graph: Graph, resources: Resources, ii: int, seed: int = 0, budget: int = BUDGET
) -> Schedule | None:
    """A schedule with this II, or None: not possible, or not found within `budget` placements per node.

    Even seeds take the node with the least slack first, which suits tight recurrences; odd ones the node with
    the longest way to the end, which suits scarce resources. Seed 0 breaks ties by the order of the nodes,
    others at random; equal seeds give equal schedules.
    """
    if ii < mii(graph, resources).value:
        return None
    return _Scheduler(graph, resources, ii, seed).run(budget * len(graph.nodes))


class _Scheduler:
    """Steps and resources that are taken so far; nodes are numbers here."""

    def __init__(self, graph: Graph, resources: Resources, ii: int, seed: int):
        self.graph, self.ii, self.by_slack = graph, ii, seed % 2 == 0
        self.classes = [resources.classes(graph, n) for n in graph.nodes]
        self.counts = resources.counts
        number = {node.id: i for i, node in enumerate(graph.nodes)}
        self.apart = _apart(graph, ii, number)
        size = len(graph.nodes)
        joined = [(number[e.source], number[e.target]) for e in graph.dependences]
        self.before: list[list[int]] = [[] for _ in range(size)]
        for source, target in joined:
            self.before[target].append(source)
        self.earliest = np.maximum(self.apart.max(axis=0, initial=0), 0)
        self.tail = tail = np.maximum(self.apart.max(axis=1, initial=0), 0)
        # For the order only: where resources are short, an iteration may be longer.
        self.latest = (self.earliest + tail).max(initial=0) - tail
        rng = random.Random(seed)
        self.ties = np.array([rng.random() if seed else -i / (size + 1) for i in range(size)])
        self.steps = np.full(size, _NONE, dtype=np.int64)
        self.tried = np.full(size, _NONE, dtype=np.int64)
        self.slots: dict[tuple[str, int], list[int]] = defaultdict(list)

    def run(self, budget: int) -> Schedule | None:
        """Schedule the node with the least slack of those that have no step, until all have one."""
        while (open_ := np.flatnonzero(self.steps == _NONE)).size:
            if budget == 0:
                return None
            budget -= 1
            placed = np.flatnonzero(self.steps != _NONE)
            earliest, latest = self.earliest[open_], np.full(open_.size, -_NONE)
            if placed.size:
                steps = self.steps[placed]
                earliest = np.maximum(
                    earliest, (self.apart[np.ix_(placed, open_)] + steps[:, None]).max(axis=0)
                )
                if self.by_slack:
                    latest = np.minimum(
                        latest, (steps[None, :] - self.apart[np.ix_(open_, placed)]).min(axis=1)
                    )
            slack = np.minimum(latest, self.latest[open_]) - earliest
            first_key = slack if self.by_slack else -self.tail[open_]
            least = int(np.lexsort((self.ties[open_], earliest, first_key))[0])
            self.place(int(open_[least]), int(earliest[least]), int(latest[least]))
        first = int(self.steps.min(initial=0)) if self.steps.size else 0
        return Schedule(
            self.ii, {n.id: int(s) - first for n, s in zip(self.graph.nodes, self.steps, strict=True)}
        )

    def place(self, node: int, earliest: int, latest: int) -> None:
        """Give a node a step; those that are in its way lose theirs."""
        window = range(earliest, min(latest, earliest + self.ii - 1) + 1)
        if latest < -_NONE // 4 and not any(self.steps[p] != _NONE for p in self.before[node]):
            # Close to the users, where there is nothing before to be close to.
            window = range(latest, max(earliest, latest - self.ii + 1) - 1, -1)
        step = next((s for s in window if self.fits(node, s)), None)
        if step is None:
            # Later than the last time, so that two nodes do not drive each other out forever.
            step = max(earliest, int(self.tried[node]) + 1)
            self.free(node, step)
        self.make_way(node, step)
        self.tried[node] = step
        self.steps[node] = step
        for name in self.classes[node]:
            self.slots[name, step % self.ii].append(node)

    def fits(self, node: int, step: int) -> bool:
        """Whether the resources are there."""
        return all(len(self.slots[n, step % self.ii]) < self.counts[n] for n in self.classes[node])

    def free(self, node: int, step: int) -> None:
        """Take their steps from nodes that hold what this one needs."""
        for name in self.classes[node]:
            holders = self.slots[name, step % self.ii]
            if len(holders) >= self.counts[name]:
                self.remove(max(holders, key=lambda n: (self.latest[n] - self.earliest[n], n)))

    def make_way(self, node: int, step: int) -> None:
        """Take their steps from nodes that are too close to this one."""
        placed = np.flatnonzero(self.steps != _NONE)
        steps = self.steps[placed]
        close = (steps < step + self.apart[node, placed]) | (steps + self.apart[placed, node] > step)
        for other in placed[close]:
            self.remove(int(other))

    def remove(self, node: int) -> None:
        """Take a node's step away."""
        step = int(self.steps[node])
        self.steps[node] = _NONE
        for name in self.classes[node]:
            self.slots[name, step % self.ii].remove(node)


def _apart(graph: Graph, ii: int, number: Mapping[NodeId, int]) -> npt.NDArray[np.int64]:
    """The least steps from every node to every other that dependences ask for, far below 0 where none do."""
    size = len(number)
    found = np.full((size, size), _NONE // 2, dtype=np.int64)
    np.fill_diagonal(found, 0)
    for edge in graph.dependences:
        ends = number[edge.source], number[edge.target]
        found[ends] = max(found[ends], graph.delay(edge) - ii * edge.distance)
    for middle in range(size):
        np.maximum(found, found[:, middle, None] + found[None, middle, :], out=found)
        np.maximum(found, _NONE // 2, out=found)
    return found


def schedule(
    graph: Graph, resources: Resources, highest: int | None = None, seed: int = 0
) -> tuple[Schedule, MII]:
    """The first schedule from the least II upwards, and the bound; every II is tried with several seeds.

    Raises `InputError` where none is found up to `highest` (default: what always suffices).
    """
    bound = mii(graph, resources)
    # One node after the other always fits, with every recurrence inside of one iteration.
    enough = sum(graph.latency(n.id) for n in graph.nodes) + len(graph.nodes)
    last = max(bound.value, enough) if highest is None else highest
    for ii in range(bound.value, last + 1):
        for attempt in range(ATTEMPTS):
            found = modulo_schedule(graph, resources, ii, seed + attempt)
            if found is not None:
                return found, bound
    raise InputError(
        f"graph {graph.name!r}: no schedule with an II of up to {last} was found; MII: {bound.why}"
    )
