"""The edges of a program over all runs: between named instances, or rolled up to labels with distances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sw.ir.errors import IRError
from sw.ir.interpret import Instance, common_loops
from sw.ir.parameters import assignments
from sw.ir.program import Program
from sw.ir.trace import Trace, trace
from sw.ir.vector import Array
from sw.warps.graph import Edges, edges, warp_of
from sw.warps.reduce import Reduction, reduce
from sw.warps.sites import Spot, spots

#: Combinations of parameters that are all followed; of more, the ends of ranges and random ones.
MOST_RUNS = 64
#: Distances of one pair of labels that are listed one by one.
MOST_DISTANCES = 64


@dataclass(frozen=True)
class Run:
    """The graph for given parameters: `kept` says which of `edges.pairs` the reduction leaves."""

    trace: Trace
    edges: Edges
    kept: npt.NDArray[np.bool_]

    @property
    def is_data(self) -> npt.NDArray[np.bool_]:
        """Which of `edges.pairs` are data edges."""
        count = self.trace.count
        codes, data = (p[:, 0] * count + p[:, 1] for p in (self.edges.pairs, self.edges.data))
        found = np.searchsorted(data, codes)
        return np.asarray(np.append(data, -1)[found] == codes)


@dataclass(frozen=True)
class Graph:
    """The graphs of a program's runs; `complete` where these are all that parameters allow."""

    program: Program
    runs: tuple[Run, ...]
    complete: bool


@dataclass(frozen=True)
class Entry:
    """An edge between printed names; a dropped one is not `kept`. `places` order it and tell it apart."""

    source: str
    sink: str
    data: bool
    kept: bool
    places: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """How channels are listed: `P->C@1`."""
        return f"{self.source}->{self.sink}"


def make_graph(
    program: Program,
    reduction: Reduction = Reduction.FULL,
    *,
    most: int = MOST_RUNS,
    limit: int | None = None,
    also: Sequence[Mapping[str, int]] = (),
) -> Graph:
    """The graphs of a program whose instructions all have warps; runs are cut off after `limit` instances.

    Where parameters allow more than `most` runs, some are taken, and those with the values `also` besides.
    Values of parameters for which the program fails are left out. Raises `IRError` where all of them do.
    """
    values, complete = assignments(program, most)
    runs: list[Run] = []
    failure: IRError | None = None
    for given in [*values, *(v for v in also if v not in values)]:
        try:
            made = trace(program, given, limit)
        except IRError as error:
            failure = failure or error
            continue
        found = edges(made)
        complete = complete and made.complete
        runs.append(Run(made, found, reduce(found.pairs, warp_of(made), reduction)))
    if not runs and failure is not None:
        raise failure
    return Graph(program, tuple(runs), complete)


def instance_edges(graph: Graph) -> list[Entry]:
    """Edges between instances, in sequential order of sources, then of sinks.

    An edge of several runs is dropped only where all of them drop it, and a data edge where one of them has
    it as such.
    """
    places = spots(graph.program)
    names: dict[tuple[int, ...], str] = {}
    found: dict[tuple[tuple[int, ...], ...], list[bool]] = {}
    for run in graph.runs:
        keys: dict[int, tuple[int, ...]] = {}
        wanted = np.unique(run.edges.pairs)
        for number, rows in enumerate(run.trace.rows):
            index = np.flatnonzero(np.isin(rows.time, wanted))
            label = rows.instruction.label
            times, iterations = rows.time[index].tolist(), rows.iteration[:, index].T.tolist()
            for time, iteration in zip(times, iterations, strict=True):
                keys[time] = _key(places[number], iteration)
                names[keys[time]] = str(Instance(label, tuple(iteration)))
        pairs = run.edges.pairs.tolist()
        for (source, sink), data, kept in zip(pairs, run.is_data.tolist(), run.kept.tolist(), strict=True):
            known = found.setdefault((keys[source], keys[sink]), [False, False])
            known[0], known[1] = known[0] or data, known[1] or kept
    return [Entry(names[p[0]], names[p[1]], data, kept, p) for p, (data, kept) in sorted(found.items())]


def _key(spot: Spot, iteration: list[int]) -> tuple[int, ...]:
    """The place of an instance in the sequential order of all that can happen."""
    lengths = [length for _, length in spot.loops]
    key: list[int] = []
    for depth, step in enumerate(spot.gap.block, 1):
        key += step
        if depth in lengths:
            key.append(iteration[lengths.index(depth)])
    return (*key, spot.gap.position)


def rolled_edges(graph: Graph) -> list[Entry]:
    """Edges between labels, the sink with its distance in the common loops: `C@0`, `C@0,1`, `C` without any.

    Where one pair of labels has more than `MOST_DISTANCES` distances, they are one, `C@*`. Edges are in the
    order of the text.
    """
    found: dict[tuple[int, int], dict[tuple[int, ...], list[bool]]] = {}
    for run in graph.runs:
        for pair, distance, data, kept in _distances(run):
            known = found.setdefault(pair, {}).setdefault(distance, [False, False])
            known[0], known[1] = known[0] or data, known[1] or kept
    labels = [s.instruction.label for s in spots(graph.program)]
    entries: list[Entry] = []
    for (source, sink), distances in sorted(found.items()):
        if len(distances) > MOST_DISTANCES:
            data, kept = (any(flags[n] for flags in distances.values()) for n in range(2))
            sides = labels[source], f"{labels[sink]}@*"
            entries.append(Entry(*sides, data, kept, ((source,), (sink,))))
            continue
        for distance, (data, kept) in sorted(distances.items()):
            apart = f"@{','.join(map(str, distance))}" if distance else ""
            sides = labels[source], labels[sink] + apart
            entries.append(Entry(*sides, data, kept, ((source,), (sink, *distance))))
    return entries


def _distances(run: Run) -> Iterator[tuple[tuple[int, int], tuple[int, ...], bool, bool]]:
    """Pairs of instructions, every distance once: whether some edge of it is data, whether one is kept."""
    count, rows = run.trace.count, run.trace.rows
    owner, place = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for number, r in enumerate(rows):
        owner[r.time], place[r.time] = number, np.arange(r.time.size)
    pairs, data, kept = run.edges.pairs, run.is_data, run.kept
    code = owner[pairs[:, 0]] * len(rows) + owner[pairs[:, 1]]
    order = np.argsort(code, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
        if not group.size:
            continue
        source, sink = (int(n) for n in divmod(int(code[group[0]]), len(rows)))
        common = common_loops(rows[source].loops, rows[sink].loops)
        earlier = rows[source].iteration[:common, place[pairs[group, 0]]]
        apart = rows[sink].iteration[:common, place[pairs[group, 1]]] - earlier
        yield from (((source, sink), *item) for item in _flags(apart, data[group], kept[group]))


def _flags(apart: Array, *flags: npt.NDArray[np.bool_]) -> Iterator[tuple[tuple[int, ...], bool, bool]]:
    """Every column once, and for each flag whether it is set for one of them."""
    order = np.lexsort(apart) if len(apart) else np.arange(apart.shape[1])
    apart = apart[:, order]
    first = np.flatnonzero(np.append(True, (apart[:, 1:] != apart[:, :-1]).any(axis=0)))
    data, kept = (np.logical_or.reduceat(f[order], first) for f in flags)
    for n, column in enumerate(apart[:, first].T.tolist()):
        yield tuple(column), bool(data[n]), bool(kept[n])


def by_kind(entries: list[Entry]) -> Mapping[str, list[list[str]]]:
    """The edges as they are printed: kept ones as data and resource, and what was dropped."""
    return {
        "data": [[e.source, e.sink] for e in entries if e.kept and e.data],
        "resource": [[e.source, e.sink] for e in entries if e.kept and not e.data],
        "dropped": [[e.source, e.sink] for e in entries if not e.kept],
    }
