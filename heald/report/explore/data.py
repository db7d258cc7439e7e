"""Data of the exploration page: columns, one entry per point, and their meaning."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from cosim.session.metrics import MAXIMIZE, METRICS, Metric, ModelMetrics
from cosim.session.results import RESOURCES
from heald.exploration.results import Exploration, State
from heald.report.html.environment import compact, text
from hw.config import FIELDS, NO_GRID, PORTS
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric import toml as fabrics

STATES = tuple(state.value for state in State)


def columns(
    found: Exploration, causes: Sequence[Cause], lists: Sequence[Operators], grids: Mapping[str, Fabric]
) -> dict[str, Any]:
    """Everything that the page's scripts need as JSON values, except the points' operators."""
    points = found.points
    metrics = shown(found)
    place = {number: i for i, cause in enumerate(causes) for number in cause.numbers}
    reasons = list(dict.fromkeys(p.reason for p in points if p.reason is not None))
    known = {reason: i for i, reason in enumerate(reasons)}
    return {
        "name": found.name,
        "states": STATES,
        "parameters": [dataclasses.asdict(p) for p in found.parameters],
        "objectives": dict(found.objectives),
        "maximize": MAXIMIZE,
        "metrics": [{"name": name, **metric._asdict()} for name, metric in metrics.items()],
        "importance": {n: dict(shares) for n, shares in found.importance.items()},
        "number": [p.number for p in points],
        "state": [STATES.index(p.state.value) for p in points],
        "parameter": {p.name: [q.parameters.get(p.name) for q in points] for p in found.parameters},
        # JSON has no infinity.
        "metric": {
            m: [v if math.isfinite(v := p.metrics.get(m, math.nan)) else None for p in points]
            for m in metrics
        },
        "reason": [None if p.reason is None else known[p.reason] for p in points],
        "reasons": reasons,
        "cause": [place.get(p.number) for p in points],
        "front": list(found.front),
        "confirmations": {c.point: dataclasses.asdict(c) for c in found.confirmations},
        "fields": [[n, f.metadata.get("meaning", "")] for n, f in FIELDS.items() if n != "name"],
        "derived": dict(found.derived),
        **_machines(found, grids),
        "operators": lists,
        "group": GROUP,
        "ports": PORTS,
        "resources": RESOURCES,
    }


def _machines(found: Exploration, grids: Mapping[str, Fabric]) -> dict[str, Any]:
    """The fields of all machines: `fixed` ones are equal in all, `varying` ones have an entry per point."""
    names = [n for n in FIELDS if n != "name"]
    held = [p.hw for p in found.points]
    fixed: dict[str, Any] = {}
    varying: dict[str, list[Any]] = {}
    for name in names:
        values = [hw.get(name) for hw in held]
        if values and all(v == values[0] for v in values):
            if values[0] is not None:
                fixed[name] = values[0]
        else:
            varying[name] = values
    used = {str(hw["cgra"]) for hw in held if hw.get("cgra") not in (None, NO_GRID)}
    return {"fixed": fixed, "varying": varying, "grids": {name: _grid(name, grids) for name in sorted(used)}}


def _grid(name: str, grids: Mapping[str, Fabric]) -> dict[str, str]:
    """A fabric as `toml`, or as the `name` that loads it; `unknown` if it is neither."""
    if name in grids:
        return {"toml": fabrics.to_toml(grids[name])}
    try:
        # Paths are relative to the space's directory, which the page does not know.
        if PurePath(name).name == name and not name.endswith(".toml") and fabrics.load(name).name == name:
            return {"name": name}
    except InputError:
        pass
    return {"unknown": name}


def shown(found: Exploration) -> dict[str, Metric]:
    """The metrics that some point has: objectives first, then the others in the usual order."""
    there = {name for point in found.points for name in point.metrics}
    order = dict.fromkeys([*found.objectives, *METRICS, *sorted(there)])
    known = {name: METRICS.get(name, Metric(name, "")) for name in order if name in there}
    return {n: m._replace(direction=found.objectives.get(n, m.direction)) for n, m in known.items()}


_NUMBER = re.compile(r"\d[\d,.]*(?<![.,])")
#: The states that have reasons, in the order in which they are shown.
WITHOUT = (State.REFUSED, State.FAILED, State.INFEASIBLE)


@dataclass(frozen=True)
class Cause:
    """Points with the same reason up to numbers: its first wording, and the points by number."""

    state: State
    example: str
    numbers: tuple[int, ...]
    differing: bool


def causes(found: Exploration) -> list[Cause]:
    """All causes, by state, most frequent first."""
    groups: dict[tuple[State, str], list[tuple[int, str]]] = {}
    for point in found.points:
        if point.state in WITHOUT:
            reason = point.reason or "unknown reason"
            groups.setdefault((point.state, _NUMBER.sub("#", reason)), []).append((point.number, reason))
    made = [
        Cause(state, group[0][1], tuple(n for n, _ in group), len({text for _, text in group}) > 1)
        for (state, _), group in groups.items()
    ]
    return sorted(made, key=lambda c: (WITHOUT.index(c.state), -len(c.numbers), c.numbers[0]))


#: Points per group: deflate finds what they have in common, and unpacks one in milliseconds.
GROUP = 64
#: Names, kinds and places of a model's operators, which most points share.
Operators = tuple[tuple[str, str, str], ...]


def packed(found: Exploration) -> tuple[list[Operators], list[str]]:
    """The distinct lists of operators, and the points in groups of `GROUP`, each packed as text."""
    lists: dict[Operators, int] = {}
    points = [[_model(model, lists) for model in point.models] for point in found.points]
    groups = [points[at : at + GROUP] for at in range(0, len(points), GROUP)]
    return list(lists), [text(compact(group).encode()) for group in groups]


def _model(model: ModelMetrics, lists: dict[Operators, int]) -> dict[str, Any]:
    """A model with its operators by column: columns that points share compress to almost nothing."""
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
