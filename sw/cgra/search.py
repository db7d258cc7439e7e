"""Maps a graph to a fabric by a sequence of attempts (see `map_graph`)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field, replace

from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import ArrayEntry, encode
from hw.fabric.operations import LOADS, STORES
from sw.cgra.attempt import Effort, Try, finish, place_flat
from sw.cgra.bounds import MII, bound
from sw.cgra.embed import embed, smaller
from sw.cgra.encode import configuration, differences
from sw.cgra.exact import INFEASIBLE, decidable, decide
from sw.cgra.groups import place_in_groups
from sw.cgra.legal import prepare
from sw.cgra.mapping import Mapping
from sw.cgra.place import NoPlaceError
from sw.cgra.problem import problem
from sw.dfg.graph import Graph, arrays_of

#: Slack over the shortest iteration, in IIs, by placement method and attempt number.
_EXTRA = {"flat": (2, 4, 1, 3), "groups": (3, 4, 3, 2)}
#: Number of PEs from which on groups guide the placement.
_GROUPS_FROM = 36
#: What an attempt may leave, per operation, before its placement method is skipped at that II.
HOPELESS = 0.08

#: Efforts, each with its number of attempts per II: flat ones and, on large CGRAs, as many with groups.
Budget = tuple[tuple[int, Effort], ...]
#: The search's efforts, in increasing order.
EFFORTS: Budget = (
    (3, Effort(1_500, 12, 6_000)),
    (4, Effort(6_000, 12, 20_000)),
    (5, Effort(20_000, 12, 60_000)),
    (6, Effort(80_000, 12, 120_000)),
)


@dataclass(frozen=True)
class SearchEvent:
    """Progress: the II, the stage of the search, the number of the attempt."""

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
    """One attempt: its method, its effort, what was left (0: success), why it failed.

    `proposals` (of the placement) and `moves` (of the repair) count the work actually done.
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
class SearchResult:
    """The result of the search for a graph.

    `prepared` is the legalised graph, which is mapped. `proved_minimal`: no smaller II exists. `refused` are
    the smaller IIs tried, `attempts` is everything that was done, and `seconds` is the time.
    """

    graph: Graph
    prepared: Graph
    mapping: Mapping | None
    bound: MII
    proved_minimal: bool
    refused: tuple[Refused, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    seconds: float = 0.0

    @property
    def found(self) -> Mapping:
        """The mapping, if there is one."""
        assert self.mapping is not None
        return self.mapping

    def words(self, places: Dictionary[str, ArrayEntry] | None = None) -> list[int]:
        """The bitstream for this allocation of arrays; without it, all arrays have length 0.

        Scalars and arrays are numbered in order of use.
        """
        names = arrays_of(self.graph, *LOADS, *STORES)
        given = None if places is None else {name: places[name] for name in names}
        scalars = {name: i for i, name in enumerate(self.graph.scalars)}
        return encode(configuration(self.found, given, scalars))

    @functools.cached_property
    def differences(self) -> tuple[str, ...]:
        """The differences found by an independent decoder; empty without a mapping."""
        return () if self.mapping is None else differences(self.mapping)


class NoMappingError(InputError):
    """The search for a mapping found none; `obstacle` says why, without the names of loop and CGRA."""

    def __init__(self, graph: Graph, fabric: Fabric, obstacle: str):
        super().__init__(f"loop {graph.name!r} does not fit the CGRA {fabric.name!r}: {obstacle}")
        self.obstacle = obstacle


def map_graphs(
    graphs: Iterable[Graph],
    fabric: Fabric,
    *,
    seed: int = 0,
    timeout: float | None = None,
    budget: Budget = EFFORTS,
    report: Callable[[Graph, SearchEvent], None] | None = None,
) -> dict[Graph, SearchResult]:
    """Maps all graphs to a fabric, each with at most the work of `budget` (see `map_graph`).

    Raises `NoMappingError` for a graph for which no mapping is found, other `InputError`s as `map_graph`.
    """
    found: dict[Graph, SearchResult] = {}
    for graph in dict.fromkeys(graphs):
        told = None if report is None else functools.partial(report, graph)
        outcome = map_graph(graph, fabric, seed=seed, timeout=timeout, budget=budget, report=told)
        if outcome.mapping is None:
            raise NoMappingError(graph, fabric, _obstacle(outcome, fabric))
        found[graph] = outcome
    return found


def _obstacle(outcome: SearchResult, fabric: Fabric) -> str:
    """Why there is no mapping."""
    mii = outcome.bound.mii
    if mii > fabric.contexts:
        return (
            f"contexts must be at least {mii}, not {fabric.contexts}: no smaller II is possible, "
            f"because of {outcome.bound.why}"
        )
    why = "; ".join(f"II {refused.ii}: {refused.why}" for refused in outcome.refused)
    return f"no mapping was found: {why or 'the time was too short'}"


def map_graph(
    graph: Graph,
    fabric: Fabric,
    *,
    seed: int = 0,
    timeout: float | None = None,
    flat: bool = False,
    budget: Budget = EFFORTS,
    report: Callable[[SearchEvent], None] | None = None,
) -> SearchResult:
    """Maps a graph with the smallest II that is found within the budget.

    The first effort goes upwards from the MII until an II succeeds. Every larger effort tries smaller IIs
    from there downwards until one fails. Nothing is tried twice. Every effort is also made on the fabric
    without its last row or column, and so on inside that, for the IIs that are still smaller, so that a
    larger mesh is never worse than a smaller one inside it. A constraint solver decides small graphs after
    the first effort. Equal seeds and budgets give equal results; `timeout`, in seconds, only cuts off. `flat`
    leaves out groups of PEs: they only add attempts, so they make no result worse. Raises `InputError` if an
    operation finds no PE.
    """
    began = time.perf_counter()
    prepared = prepare(graph, fabric)
    least = bound(prepared, fabric)
    end = None if timeout is None else began + timeout
    whole = _Search(prepared, fabric, least, seed, flat, budget, end, report)
    ladders = [whole, *whole.inside()]
    best: Mapping | None = None
    for effort in range(len(budget)):
        for ladder in ladders:
            if ladder is not whole and not ladder.open(best):
                break
            best = ladder.climb(effort, best)
            if effort == 0:
                best = ladder.decide(best)
        if best is not None and best.ii == least.mii:
            break
    found = best if best is None or best.fabric is fabric else embed(best, fabric)
    minimal = found is not None and whole.refuted >= set(range(least.mii, found.ii))
    refused, attempts = whole.refused(found), tuple(whole.attempts)
    seconds = time.perf_counter() - began
    return SearchResult(graph, prepared, found, least, minimal, refused, attempts, seconds)


@functools.lru_cache(maxsize=256)
def _decided(graph: Graph, fabric: Fabric, ii: int) -> Mapping | str:
    """The constraint solver's result, cached for all seeds, since loops with bank conflicts try several."""
    return decide(problem(graph, fabric, ii))


@dataclass
class _Search:
    """The search for one graph and fabric, and its attempts so far, including those on inner fabrics.

    `refuted` are the IIs that are proved infeasible. `inner` names the fabric in the names of stages.
    """

    graph: Graph
    fabric: Fabric
    least: MII
    seed: int
    flat: bool
    budget: Budget
    end: float | None
    report: Callable[[SearchEvent], None] | None
    inner: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    done: set[tuple[int, int]] = field(default_factory=set)
    refuted: set[int] = field(default_factory=set)

    def late(self) -> bool:
        """Whether the time is up."""
        return self.end is not None and time.perf_counter() > self.end

    def inside(self) -> Iterator[_Search]:
        """The same search on the fabric without its last row or column, and so on inside that."""
        part = smaller(self.fabric)
        while part is not None:
            try:
                least = bound(self.graph, part)
            except InputError:
                return
            inner = f" {part.rows}x{part.cols}"
            yield replace(self, fabric=part, least=least, inner=inner, done=set(), refuted=set())
            part = smaller(part)

    def open(self, best: Mapping | None) -> bool:
        """Whether there is time, and an II below that of `best` may exist."""
        least = max(self.refuted, default=0) + 1
        return not self.late() and max(least, self.least.mii) < self.below(best)

    def below(self, best: Mapping | None) -> int:
        """The upper limit (exclusive) for further IIs."""
        return best.ii if best else self.fabric.contexts + 1

    def climb(self, effort: int, best: Mapping | None) -> Mapping | None:
        """The first II from the MII on that an effort reaches, with growing steps; then smaller ones.

        Larger efforts only try smaller IIs than the one found.
        """
        ii, tried = self.least.mii, 0
        upwards = effort == 0 or best is None
        while upwards and self.open(best) and ii < self.below(best):
            found = self.rung(ii, effort)
            if found is not None:
                best = found
                break
            tried += 1
            ii += 1 + tried // 4
        while best is not None and self.open(best):
            found = self.rung(best.ii - 1, effort)
            if found is None:
                break
            best = found
        return best

    def decide(self, best: Mapping | None) -> Mapping | None:
        """Decides small graphs exactly, from the MII on: a mapping, or a proof that none exists."""
        ii = self.least.mii
        while self.open(best) and ii < self.below(best):
            p = problem(self.graph, self.fabric, ii)
            if not decidable(p):
                break
            if self.report:
                self.report(SearchEvent(ii, "program", 0))
            if self.end is None:
                found = _decided(self.graph, self.fabric, ii)
            else:
                found = decide(p, self.end - time.perf_counter())
            made = Try(None, p.size, found) if isinstance(found, str) else Try(found, 0)
            if (mapping := self.record(ii, "program", 0, 0, made).mapping) is not None:
                return mapping
            if found != INFEASIBLE:
                break
            self.refuted.add(ii)
            ii += 1
        return best

    def rung(self, ii: int, effort: int) -> Mapping | None:
        """All attempts of one effort at one II that are new; equal ones would end alike.

        A placement method that once fails by far is skipped from there on. All attempts without groups are
        also made when groups are allowed, so groups never make a result worse.
        """
        if (ii, effort) in self.done or ii in self.refuted:
            return None
        count, _ = self.budget[effort]
        hopeless = 2 + HOPELESS * len(self.graph.nodes)
        stages = list(self.stages())
        for number in range(count):
            for stage in tuple(stages):
                if self.late():
                    return None
                found = self.attempt(ii, stage, effort, number)
                if found.mapping is not None:
                    return found.mapping
                if found.left > hopeless:
                    stages.remove(stage)
        self.done.add((ii, effort))
        return None

    def stages(self) -> tuple[str, ...]:
        """The placement methods: groups tear long recurrences apart, so these try flat placement first."""
        if self.flat or self.fabric.size < _GROUPS_FROM:
            return ("flat",)
        return ("flat", "groups") if self.least.rec_mii >= self.least.res_mii else ("groups", "flat")

    def attempt(self, ii: int, stage: str, effort: int, number: int) -> Try:
        """One attempt, recorded."""
        work = self.budget[effort][1]
        turn = number + effort
        if self.report:
            self.report(SearchEvent(ii, stage, number))
        extra = _EXTRA[stage]
        p = problem(self.graph, self.fabric, ii, extra[turn % len(extra)] * ii, turn)
        seed = (self.seed, ii, effort, number)
        place = place_in_groups if stage == "groups" else place_flat
        try:
            spots, proposals = place(p, seed, work, self.late)
        except NoPlaceError as error:
            return self.record(ii, stage, effort, number, Try(None, p.size, str(error)))
        return self.record(ii, stage, effort, number, finish(p, spots, seed, work, self.late), proposals)

    def record(self, ii: int, stage: str, effort: int, number: int, made: Try, proposals: int = 0) -> Try:
        """Records an attempt; an incorrect mapping counts as failed."""
        if made.mapping is not None and (wrong := differences(made.mapping)):
            made = Try(None, len(wrong), f"the mapping is wrong: {wrong[0]}", made.moves)
        stage += self.inner
        self.attempts.append(Attempt(ii, stage, effort, number, made.left, made.why, proposals, made.moves))
        return made

    def refused(self, found: Mapping | None) -> tuple[Refused, ...]:
        """The smaller IIs tried without success, each with its most successful attempt."""
        failed = [a for a in self.attempts if a.left and (found is None or a.ii < found.ii)]
        result = []
        for ii in sorted({attempt.ii for attempt in failed}):
            made = [attempt for attempt in failed if attempt.ii == ii]
            proposals, moves = sum(a.proposals for a in made), sum(a.moves for a in made)
            best = min(made, key=lambda a: (a.stage.startswith("program"), a.left))
            why = f"not found within {proposals} proposals and {moves} routed moves; {best.why}"
            if ii in self.refuted:
                why = f"{INFEASIBLE}; the best attempt left: {best.why}"
            result.append(Refused(ii, why))
        return tuple(result)
