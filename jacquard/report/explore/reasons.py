"""Why points have no figures, or are not allowed: reasons that differ in numbers only are one cause."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jacquard.explore.results import Exploration, State

_NUMBER = re.compile(r"\d[\d,.]*(?<![.,])")
#: The states that have reasons, in the order in which they are told.
WITHOUT = (State.REFUSED, State.FAILED, State.INFEASIBLE)


@dataclass(frozen=True)
class Cause:
    """Points with one reason, numbers aside: its first wording, and the points by number."""

    state: State
    example: str
    numbers: tuple[int, ...]
    differing: bool


def causes(found: Exploration) -> list[Cause]:
    """All causes, by state, the most frequent first."""
    groups: dict[tuple[State, str], list[tuple[int, str]]] = {}
    for point in found.points:
        if point.state in WITHOUT:
            reason = point.reason or "no reason is known"
            groups.setdefault((point.state, _NUMBER.sub("#", reason)), []).append((point.number, reason))
    made = [
        Cause(state, group[0][1], tuple(n for n, _ in group), len({text for _, text in group}) > 1)
        for (state, _), group in groups.items()
    ]
    return sorted(made, key=lambda c: (WITHOUT.index(c.state), -len(c.numbers), c.numbers[0]))
