"""Maps a graph onto a fabric: the ladder of attempts (see `map_graph`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hw.errors import InputError
from hw.fabric import Fabric
from sw.cgra.attempt import Effort, Try, finish, place_flat
from sw.cgra.bounds import bound
from sw.cgra.check import check
from sw.cgra.embed import embed, smaller
from sw.cgra.legal import prepare
from sw.cgra.levels import place_levels
from sw.cgra.mapping import Mapping
from sw.cgra.problem import problem
from sw.dfg.graph import Graph
from sw.dfg.recurrence import MII

#: By how much longer than the shortest an iteration may be, in IIs, by number of the attempt.
_EXTRA = (2, 4, 1, 3)
#: PEs from which on groups guide the placement.
_LEVELS_FROM = 36
#: How many times more than flat places groups may leave before an effort at an II goes on without them.
_WORSE = 2


@dataclass(frozen=True)
class Event:
    """Progress: the II, the stage of the ladder, the number of the attempt."""

    ii: int
    stage: str
    attempt: int


@dataclass(frozen=True)
class Refused:
    """An II that was not reached, and why."""

    ii: int
    why: str


@dataclass(frozen=True)
class Attempt:
    """An attempt that was made: how, with what effort, what was left (0: it succeeded), why it failed.

    `proposals` are those of the placement, `moves` those of the repair, that were really made.
    """

    ii: int
    stage: str
    effort: int
    number: int
    left: int
    why: str
    proposals: int
    moves: int


@dataclass(frozen=True)
class Budget:
    """Work that the search may do, in steps of the ladder.

    Every effort has a number of attempts per II, flat ones and on large grids as many through groups. An
    effort whose attempts of one number all leave more than `hopeless` per operation too short or overused
    makes no others at that II.
    """

    efforts: tuple[tuple[int, Effort], ...] = (
        (3, Effort(1_500, 12, 6_000)),
        (4, Effort(6_000, 12, 20_000)),
        (5, Effort(20_000, 12, 60_000)),
        (6, Effort(80_000, 12, 120_000)),
    )
    hopeless: float = 0.08


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    `graph` is the graph as prepared; `why` says what limits the MII. `proved_minimal`: no smaller II exists.
    `refused` are the smaller ones that were tried, `attempts` all that was done, `seconds` the time.
    """

    mapping: Mapping | None
    graph: Graph
    mii: int
    res_mii: int
    rec_mii: int
    why: str
    proved_minimal: bool
    refused: tuple[Refused, ...]
    attempts: tuple[Attempt, ...]
    seconds: float


def map_graph(
    graph: Graph,
    fabric: Fabric,
    *,
    seed: int = 0,
    timeout: float | None = None,
    flat: bool = False,
    budget: Budget | None = None,
    report: Callable[[Event], None] | None = None,
) -> Outcome:
    """Map a graph with the least II that is found within the budget.

    The first effort goes upwards from the MII until an II succeeds; every greater effort tries smaller ones
    from there downwards until one fails; nothing is tried twice. Where the MII is not reached, the fabric
    without its last row or column is tried, so that a larger mesh is never worse than a smaller one inside
    of it. Equal seeds and budgets give equal results; `timeout` in seconds only cuts off.
    `flat` leaves the groups of PEs out: they only add attempts, so they make no result worse.
    Raises `InputError` where an operation finds no PE.
    """
    began = time.perf_counter()
    graph = prepare(graph, fabric)
    least = bound(graph, fabric)
    end = None if timeout is None else began + timeout
    search = _Search(graph, fabric, least, seed, flat, budget or Budget(), end, report)
    found = search.run()
    minimal = found is not None and found.ii == least.value
    return Outcome(
        found,
        graph,
        least.value,
        least.res,
        least.rec,
        least.why,
        minimal,
        search.refused(found),
        tuple(search.attempts),
        time.perf_counter() - began,
    )


@dataclass
class _Search:
    """The ladder for one graph and fabric, and what was tried so far."""

    graph: Graph
    fabric: Fabric
    least: MII
    seed: int
    flat: bool
    budget: Budget
    end: float | None
    report: Callable[[Event], None] | None
    attempts: list[Attempt] = field(default_factory=list)
    done: set[tuple[int, int]] = field(default_factory=set)

    def late(self) -> bool:
        """Whether the time is up."""
        return self.end is not None and time.perf_counter() > self.end

    def run(self) -> Mapping | None:
        """All efforts, then the smaller fabric."""
        best: Mapping | None = None
        for effort in range(len(self.budget.efforts)):
            if best is None:
                best = self.upwards(effort)
            while best is not None and best.ii > self.least.value and not self.late():
                found = self.rung(best.ii - 1, effort)
                if found is None:
                    break
                best = found
            if self.late() or (best is not None and best.ii == self.least.value):
                return best
        return self.inside(best)

    def upwards(self, effort: int) -> Mapping | None:
        """The first II that an effort reaches, with steps that grow."""
        ii, tried = self.least.value, 0
        while ii <= self.fabric.contexts and not self.late():
            found = self.rung(ii, effort)
            if found is not None:
                return found
            tried += 1
            ii += 1 + tried // 4
        return None

    def rung(self, ii: int, effort: int) -> Mapping | None:
        """All attempts of one effort at one II that were not made before; equal ones would end alike."""
        if (ii, effort) in self.done:
            return None
        count, _ = self.budget.efforts[effort]
        hopeless = 2 + self.budget.hopeless * len(self.graph.nodes)
        for number in range(count):
            left = []
            for stage in self.stages(ii, effort):
                if self.late():
                    return None
                found = self.attempt(ii, stage, effort, number)
                if found.mapping is not None:
                    return found.mapping
                left.append(found.left)
            if min(left) > hopeless:
                break
        self.done.add((ii, effort))
        return None

    def stages(self, ii: int, effort: int) -> tuple[str, ...]:
        """The ways of placement that come next, first the one that left less so far.

        Every attempt that is made without groups is made with groups allowed too, so these never make a
        result worse. Groups that twice left much more than flat places are left out of an effort.
        """
        if self.flat or self.fabric.size < _LEVELS_FROM:
            return ("flat",)
        here = [a for a in self.attempts if (a.ii, a.effort) == (ii, effort)]
        groups, flat = (
            [a.left for a in here or self.attempts[-2:] if a.stage == stage] for stage in ("groups", "flat")
        )
        if min(groups, default=0) <= min(flat, default=0):
            return ("groups", "flat")
        out = len(here) > 2 and min(groups) > _WORSE * min(flat)
        return ("flat",) if out else ("flat", "groups")

    def attempt(self, ii: int, stage: str, effort: int, number: int) -> Try:
        """One attempt, recorded. A mapping that is not right has failed."""
        work = self.budget.efforts[effort][1]
        turn = number + effort
        if self.report:
            self.report(Event(ii, stage, number))
        p = problem(self.graph, self.fabric, ii, _EXTRA[turn % len(_EXTRA)] * ii, turn)
        seed = (self.seed, ii, effort, number)
        place = place_levels if stage == "groups" else place_flat
        spots, proposals = place(p, seed, work, self.late)
        found = finish(p, spots, seed, work, self.late) if spots else Try(None, p.size, "no free PEs")
        if found.mapping is not None and (wrong := check(found.mapping)):
            found = replace(found, mapping=None, left=len(wrong), why=f"the mapping is wrong: {wrong[0]}")
        done = Attempt(ii, stage, effort, number, found.left, found.why, proposals, found.moves)
        self.attempts.append(done)
        return found

    def inside(self, best: Mapping | None) -> Mapping | None:
        """The same search on a smaller fabric, where that can be better than what was found."""
        part = smaller(self.fabric)
        if part is None:
            return best
        try:
            least = bound(self.graph, part)
        except InputError:
            return best
        if least.value >= (best.ii if best else self.fabric.contexts + 1):
            return best
        search = replace(self, fabric=part, least=least, attempts=[], done=set())
        found = search.run()
        self.attempts += [replace(a, stage=f"{a.stage} {part.rows}x{part.cols}") for a in search.attempts]
        if found is None or (best is not None and best.ii <= found.ii):
            return best
        return embed(found, self.fabric)

    def refused(self, found: Mapping | None) -> tuple[Refused, ...]:
        """The smaller IIs that were tried without success, each with its most successful attempt."""
        tried: dict[int, list[Attempt]] = {}
        for attempt in self.attempts:
            if attempt.left and (found is None or attempt.ii < found.ii):
                tried.setdefault(attempt.ii, []).append(attempt)
        result = []
        for ii, made in sorted(tried.items()):
            proposals, moves = sum(a.proposals for a in made), sum(a.moves for a in made)
            best = min(made, key=lambda a: a.left)
            work = f"{proposals} proposals and {moves} routed moves"
            result.append(Refused(ii, f"not found within {work}; {best.why}"))
        return tuple(result)
