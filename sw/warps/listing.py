"""Lists a program's edges for output: between named instances, or between labels with distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sw.dependence.analysis import by_size
from sw.dependence.edges import edges
from sw.ir.errors import IRError
from sw.ir.program import Program
from sw.ir.walk import uses
from sw.warps.demands import Distance, Ordered, ordered
from sw.warps.reduce import Reduction
from sw.warps.sample import Sample, follow
from sw.warps.sites import spots

#: Most distances listed individually for one pair of labels.
MOST_DISTANCES = 64


@dataclass(frozen=True)
class SampleEdges:
    """The edges of a program on a bounded run for given parameters."""

    sample: Sample
    ordered: Sequence[Ordered]


@dataclass(frozen=True)
class BoundedRuns:
    """The edges of a program on all of its bounded runs."""

    program: Program
    runs: tuple[SampleEdges, ...]

    @property
    def complete(self) -> bool:
        """Whether no iteration is left out."""
        return all(run.sample.complete for run in self.runs)


@dataclass(frozen=True)
class ListedEdge:
    """An edge between printed names; `kept` is false for a dropped edge."""

    source: str
    sink: str
    data: bool
    kept: bool

    @property
    def name(self) -> str:
        """The name by which channels are listed: `P->C@1`."""
        return f"{self.source}->{self.sink}"


def bounded_runs(
    program: Program,
    reduction: Reduction = Reduction.FULL,
    *,
    values: Sequence[Mapping[str, int]] = ({},),
    reach: int = 1,
) -> BoundedRuns:
    """The edges of a program whose instructions all have warps, on bounded runs (`sw.warps.sample`).

    There is one run for each of the parameter `values` for which the program does not fail. Raises `IRError`
    if it fails for all of them.
    """
    found = edges(program)
    # Parameters that no statement uses do not make a run different.
    used = uses(program.body)
    distinct = {tuple(number for name, number in v.items() if name in used): v for v in values}.values()
    runs: list[SampleEdges] = []
    failure: IRError | None = None
    for given in distinct:
        try:
            sample = follow(program, given, reach)
        except IRError as error:
            failure = failure or error
            continue
        runs.append(SampleEdges(sample, ordered(sample, found, reduction)))
    if not runs and failure is not None:
        raise failure
    return BoundedRuns(program, tuple(runs))


def rolled_edges(bounded: BoundedRuns) -> list[ListedEdge]:
    """Edges between labels, with the distance in the common loops at the sink: `C@0`, `C@0,1`, or `C`.

    More than `MOST_DISTANCES` distances between one pair of labels are merged into `C@*`. Edges are in the
    order of the text.
    """
    numbers = {s.instruction.label: n for n, s in enumerate(spots(bounded.program))}
    entries: list[ListedEdge] = []
    for (source, sink), distances in sorted(
        _flags(bounded).items(), key=lambda item: tuple(numbers[label] for label in item[0])
    ):
        if len(distances) > MOST_DISTANCES:
            data, kept = (any(flags[n] for flags in distances.values()) for n in range(2))
            distances = {("*",): (data, kept)}
        for distance, (data, kept) in sorted(distances.items(), key=lambda item: by_size(item[0])):
            apart = f"@{','.join(map(str, distance))}" if distance else ""
            entries.append(ListedEdge(source, sink + apart, data, kept))
    return entries


def _flags(bounded: BoundedRuns) -> dict[tuple[str, str], dict[Distance, tuple[bool, bool]]]:
    """By source, sink and distance: whether any run has a data edge, and whether any keeps it."""
    found: dict[tuple[str, str], dict[Distance, tuple[bool, bool]]] = {}
    for run in bounded.runs:
        for o in run.ordered:
            if len(o.pairs) or len(o.edge.distances) > MOST_DISTANCES:
                distances = found.setdefault((o.edge.source, o.edge.sink), {})
                data, kept = distances.get(o.distance, (False, False))
                distances[o.distance] = data or o.edge.data, kept or bool(o.kept.any())
    return found


def by_kind(entries: Sequence[ListedEdge]) -> Mapping[str, list[list[str]]]:
    """The edges for printing: kept ones as data or resource, and dropped ones."""
    return {
        "data": [[e.source, e.sink] for e in entries if e.kept and e.data],
        "resource": [[e.source, e.sink] for e in entries if e.kept and not e.data],
        "dropped": [[e.source, e.sink] for e in entries if not e.kept],
    }
