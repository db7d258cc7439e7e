"""Operators of the models of every point, packed in groups that the page unpacks when one is looked at."""

from __future__ import annotations

import json
from typing import Any

from jacquard.explore.results import Exploration, ModelMetrics, Point
from jacquard.report.html.pack import text

#: Points of a group: deflate finds what they have in common, and one is unpacked in milliseconds.
GROUP = 64
#: Names, kinds and places of a model's operators, which most points share.
Operators = tuple[tuple[str, str, str], ...]


def packed(found: Exploration) -> tuple[list[Operators], list[str]]:
    """The different lists of operators, and the points in groups of `GROUP`, each as text for the page."""
    lists: dict[Operators, int] = {}
    points = [_point(point, lists) for point in found.points]
    groups = [points[at : at + GROUP] for at in range(0, len(points), GROUP)]
    return list(lists), [text(_json(group)) for group in groups]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _point(point: Point, lists: dict[Operators, int]) -> list[dict[str, Any]]:
    return [_model(model, lists) for model in point.models]


def _model(model: ModelMetrics, lists: dict[Operators, int]) -> dict[str, Any]:
    """A model with its operators by column: columns that points have in common pack to almost nothing."""
    operators = model.operators
    key = tuple((o.name, o.op, o.where) for o in operators)
    resources = sorted({name for o in operators for name in o.bounds})
    ports = sorted({name for o in operators for name in o.moved})
    return {
        "name": model.name,
        "operators": lists.setdefault(key, len(lists)),
        "macs": [o.macs for o in operators],
        "bounds": {name: [o.bounds.get(name, 0) for o in operators] for name in resources},
        "moved": {name: [o.moved.get(name, 0) for o in operators] for name in ports},
        "total_macs": model.macs,
        "instructions": model.instructions,
        "programs": model.programs,
        "bytes": dict(model.bytes_moved),
        "energy": {name: float(f"{value:.5g}") for name, value in model.energy.items()},
        "cycles": model.cycles,
        "start": [o.start for o in operators],
        "end": [o.end for o in operators],
        "own": [o.cycles for o in operators],
    }
