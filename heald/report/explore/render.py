"""The exploration page: template, style and scripts of this folder, filled with results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import heald
from cosim.session.metrics import MAXIMIZE, METRICS
from heald.exploration.results import Exploration, State, front_table
from heald.report.explore.data import causes, columns, packed
from heald.report.html.environment import POLICY, as_json, file, template, text
from hw.fabric import Fabric

_PACKAGE = "heald.report.explore"
#: Shared with the page of a run.
_SHARED = "heald.report.html"
SCRIPTS = (
    *("numbers.js", "svg.js", "points.js", "filter.js", "files.js", "plot.js", "pictures.js"),
    *("operators.js", "details.js", "influence.js", "table.js", "page.js"),
)


def page(exploration: Exploration, grids: Mapping[str, Fabric] | None = None) -> str:
    """The page as text.

    `grids` holds fabrics by their name in `Point.hw`; configurations exported by the page then include them
    in full. Otherwise they are only named, which is enough for presets.
    """
    found = exploration
    reasons, counts = causes(found), Counter(p.state for p in found.points)
    lists, groups = packed(found)
    values = as_json(columns(found, reasons, lists, grids or {}))
    return template(_PACKAGE).render(
        found=found,
        policy=POLICY,
        version=heald.__version__,
        style=file(_SHARED, "style.css") + file(_PACKAGE, "style.css"),
        scripts=[
            *(file(_SHARED, name) for name in ("packed.js", "export.js")),
            *(file(_PACKAGE, name) for name in SCRIPTS),
        ],
        states=[(state.value, counts[state]) for state in State if counts[state]],
        objectives=[(_label(n), "more" if d == MAXIMIZE else "less") for n, d in found.objectives.items()],
        influence=_influence(found),
        differing=[c for c in found.confirmations if not c.confirmed],
        reasons=reasons,
        best=front_table(found),
        data=text(values.encode()),
        groups=groups,
    )


def _label(metric: str) -> str:
    """The display name of a metric."""
    return METRICS[metric].label if metric in METRICS else metric


def _influence(found: Exploration) -> list[dict[str, Any]]:
    """Each parameter's share of each objective, most influential first."""
    known = list(found.importance)
    rows = [
        {
            "name": p.name,
            "meaning": p.meaning,
            "values": len(p.values),
            "shares": [(_label(n), found.importance[n].get(p.name, 0.0)) for n in known],
        }
        for p in found.parameters
    ]
    return sorted(rows, key=lambda row: -max((share for _, share in row["shares"]), default=0.0))
