"""Vectors of objectives: which are dominated, and the hypervolume of a front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cosim.session.metrics import MAXIMIZE

Vector = tuple[float, ...]


def vector(metrics: Mapping[str, float], objectives: Mapping[str, str]) -> Vector:
    """The objectives of a point, with signs such that less is better."""
    return tuple(-metrics[n] if how == MAXIMIZE else metrics[n] for n, how in objectives.items())


def dominates(a: Vector, b: Vector) -> bool:
    """Whether `a` is better in some objective and worse in none."""
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def hypervolume(vectors: Sequence[Vector], reference: Vector) -> float:
    """The dominated volume up to a reference point; exact, by slices along the last dimension."""
    inside = sorted({v for v in vectors if all(x < r for x, r in zip(v, reference, strict=True))})
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - inside[0][0]
    levels = sorted({v[-1] for v in inside})
    volume = 0.0
    for low, high in zip(levels, [*levels[1:], reference[-1]], strict=True):
        slice_ = [v[:-1] for v in inside if v[-1] <= low]
        volume += (high - low) * hypervolume(slice_, reference[:-1])
    return volume


def extremes(vectors: Sequence[Vector], dimensions: int) -> tuple[Vector, Vector]:
    """The best and the worst value of each dimension; zeros if there are no vectors."""
    columns = list(zip(*vectors, strict=True)) or [(0.0,)] * dimensions
    return tuple(map(min, columns)), tuple(map(max, columns))


def dominated(vectors: Sequence[Vector], best: Vector, worst: Vector) -> float:
    """The dominated volume, as a fraction of the box from the best to the worst values.

    Dimensions in which all values are equal do not count.
    """
    spans = [w - b for b, w in zip(best, worst, strict=True)]
    inside = [
        tuple((x - b) / s if s else 0.0 for x, b, s in zip(v, best, spans, strict=True)) for v in vectors
    ]
    return hypervolume(inside, (1.0,) * len(best))
