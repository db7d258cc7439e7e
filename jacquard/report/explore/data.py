"""What the page knows of an exploration: columns, one entry per point, and what they mean."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from hw.config import FIELDS, NO_GRID, PORTS
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric import toml as fabrics
from jacquard.explore.metrics import MAXIMIZE
from jacquard.explore.results import Exploration, State
from jacquard.report.explore.metrics import shown
from jacquard.report.explore.operators import GROUP, Operators
from jacquard.report.explore.reasons import Cause
from jacquard.report.html.data import RESOURCES

STATES = tuple(state.value for state in State)


def columns(
    found: Exploration, causes: Sequence[Cause], lists: Sequence[Operators], grids: Mapping[str, Fabric]
) -> dict[str, Any]:
    """All that the scripts of the page need, except the operators of the points, as JSON values."""
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
        "metrics": [dataclasses.asdict(m) for m in metrics],
        "importance": {n: dict(shares) for n, shares in found.importance.items()},
        "number": [p.number for p in points],
        "state": [STATES.index(p.state.value) for p in points],
        "parameter": {p.name: [q.parameters.get(p.name) for q in points] for p in found.parameters},
        "metric": {m.name: [_finite(p.metrics.get(m.name)) for p in points] for m in metrics},
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


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None


def _machines(found: Exploration, grids: Mapping[str, Fabric]) -> dict[str, Any]:
    """The fields of all machines: `fixed` those that are the same in all, `varying` one entry per point."""
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
    """A grid as `toml`, or as the `name` by which it is loaded; `unknown` where it is neither."""
    if name in grids:
        return {"toml": fabrics.to_toml(grids[name])}
    try:
        # A path is seen from the directory of the space, which the page does not know.
        if PurePath(name).name == name and not name.endswith(".toml") and fabrics.load(name).name == name:
            return {"name": name}
    except InputError:
        pass
    return {"unknown": name}
