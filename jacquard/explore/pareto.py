"""Pareto fronts, their order and their volume; all values are to be minimised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jacquard.explore.results import MAXIMIZE, Point, State

Vector = tuple[float, ...]


def vector(metrics: Mapping[str, float], objectives: Mapping[str, str]) -> Vector:
    """The objectives of a point such that less is better."""
    return tuple(-metrics[n] if how == MAXIMIZE else metrics[n] for n, how in objectives.items())


def dominates(a: Vector, b: Vector) -> bool:
    """Whether `a` is better in something and worse in nothing."""
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def ranked(points: Sequence[Point], objectives: Mapping[str, str]) -> list[list[Point]]:
    """Feasible points by rank: the front, the front of the others, and so on; each by the first objective.

    Of points with equal objectives only the first counts for a front; the others come with the next.
    """
    left = [(vector(p.metrics, objectives), p) for p in points if p.state is State.COMPLETE]
    left.sort(key=lambda each: (each[0], each[1].number))
    found: list[list[Point]] = []
    while left:
        # In this order nothing is dominated by what comes behind it.
        front: list[tuple[Vector, Point]] = []
        rest: list[tuple[Vector, Point]] = []
        for v, p in left:
            beaten = any(v == w or dominates(w, v) for w, _ in front)
            (rest if beaten else front).append((v, p))
        found.append([p for _, p in front])
        left = rest
    return found


def hypervolume(vectors: Sequence[Vector], reference: Vector) -> float:
    """The volume that is dominated, up to a reference; exact, by slices along the last dimension."""
    inside = sorted({v for v in vectors if all(x < r for x, r in zip(v, reference, strict=True))})
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - inside[0][0]
    if len(reference) == 2:
        volume, height = 0.0, reference[1]
        for x, y in inside:
            if y < height:
                volume += (reference[0] - x) * (height - y)
                height = y
        return volume
    levels = sorted({v[-1] for v in inside})
    volume = 0.0
    for low, high in zip(levels, [*levels[1:], reference[-1]], strict=True):
        slice_ = [v[:-1] for v in inside if v[-1] <= low]
        volume += (high - low) * hypervolume(slice_, reference[:-1])
    return volume


def normalised(vectors: Sequence[Vector], best: Vector, worst: Vector) -> list[Vector]:
    """Vectors in a box from `best` (0) to `worst` (1); a dimension in which all are equal is 0."""
    spans = [w - b for b, w in zip(best, worst, strict=True)]
    return [tuple((x - b) / s if s else 0.0 for x, b, s in zip(v, best, spans, strict=True)) for v in vectors]
