"""How the page names and writes metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jacquard.explore.metrics import METRICS, MINIMIZE
from jacquard.explore.results import Exploration

#: Styles of numbers: all digits; with a prefix such as k or M; in percent.
WHOLE, PREFIXED, PERCENT = "whole", "prefixed", "percent"


@dataclass(frozen=True)
class Shown:
    """A metric on the page: a value times `scale` is in `unit`, written in a style."""

    name: str
    label: str
    meaning: str
    direction: str
    unit: str = ""
    scale: float = 1.0
    style: str = WHOLE


#: Label, unit, scale and style of the metrics that are known.
_FORMS: dict[str, tuple[str, str, float, str]] = {
    "cycles": ("cycles", "", 1, WHOLE),
    "seconds_per_inference": ("time per inference", "s", 1, PREFIXED),
    "bytes_moved": ("bytes moved", "B", 1, PREFIXED),
    "energy_pj": ("energy", "J", 1e-12, PREFIXED),
    "utilization": ("use of the array", "", 1, PERCENT),
    "luts": ("LUTs", "", 1, WHOLE),
    "ffs": ("registers", "", 1, WHOLE),
    "brams": ("block RAMs", "", 1, WHOLE),
    "dsps": ("multipliers", "", 1, WHOLE),
    "fmax_mhz": ("clock", "MHz", 1, WHOLE),
    "macs": ("MACs", "", 1, WHOLE),
}


def shown(found: Exploration) -> Sequence[Shown]:
    """The metrics that some point has: objectives first, then the others in the usual order."""
    there = {name for point in found.points for name in point.metrics}
    order = [*found.objectives, *METRICS, *sorted(there)]
    return [_shown(found, name) for name in dict.fromkeys(order) if name in there]


def _shown(found: Exploration, name: str) -> Shown:
    direction, meaning = METRICS.get(name, (MINIMIZE, ""))
    label, unit, scale, style = _FORMS.get(name, (name, "", 1, WHOLE))
    return Shown(name, label, meaning, found.objectives.get(name, direction), unit, scale, style)


def label(name: str) -> str:
    """What people call a metric."""
    return _FORMS[name][0] if name in _FORMS else name
