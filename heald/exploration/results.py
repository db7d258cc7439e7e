"""What an exploration gives, as frozen data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cosim.session.metrics import METRICS, ModelMetrics
from cosim.session.pareto import Vector, dominates, vector

#: Objectives of a space that names none.
DEFAULT = ("cycles", "luts")


class State(StrEnum):
    """What became of a point.

    `infeasible`: evaluated, but beyond a limit of the space. `refused`: the configuration cannot be built, or
    the compiler does not find a program for it. `failed`: evaluating it killed its worker, synthesis failed
    on it, it ended in an error of Heald itself, or an objective has no value.
    """

    COMPLETE = "complete"
    INFEASIBLE = "infeasible"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Point:
    """A configuration and what is known of it.

    `parameters` are those of the space, `hw` all fields of the machine (`cgra` as its name); `metrics` sums
    over the models: cycles, bytes_moved, energy_pj, macs; and of the machine luts, ffs, brams, dsps,
    fmax_mhz, seconds_per_inference, utilization. A metric that is not known is not there. Refused and failed
    points have a `reason` and no metrics, infeasible ones have both. `seconds` it took to evaluate.
    """

    number: int
    parameters: Mapping[str, int | str]
    state: State
    hw: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    models: tuple[ModelMetrics, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Confirmation:
    """A point that ran on the RTL.

    `confirmed`: all results bit for bit, all events in their cycles, warps and configurations accepted.
    `difference` says what was not. `events` were compared; `cycles` are the RTL's.
    """

    point: int
    confirmed: bool
    events: int
    cycles: int
    difference: str | None = None

    def __str__(self) -> str:
        if self.difference is not None:
            return f"point {self.point} differs on the RTL: {self.difference}"
        return f"point {self.point} on the RTL: {self.events:,} of {self.events:,} events agree"


@dataclass(frozen=True)
class Parameter:
    """A parameter of the space, with its values in their order and what the field means."""

    name: str
    values: tuple[int | str, ...]
    meaning: str


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class Excess:
    """A limit that a point exceeds, with the two values that it compares; None where they have none."""

    limit: str
    value: float | None = None
    bound: float | None = None

    def __str__(self) -> str:
        if self.value is None or self.bound is None:
            return f"{self.limit}: has no value"
        over = self.value - self.bound
        share = f" ({100 * abs(over / self.bound):,.1f} %)" if self.bound else ""
        far = f"{_digits(abs(over))}{share} {'above' if over > 0 else 'below'} the limit"
        return f"{self.limit}: {_digits(self.value)} is {far}"


@dataclass(frozen=True)
class Nearest:
    """The point that exceeds its limits least, where every point exceeds some."""

    point: int
    excesses: tuple[Excess, ...]

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.excesses))
        return f"no point is within all limits; point {self.point} is nearest: {listed}"


@dataclass(frozen=True)
class Exploration:
    """An exploration: its space, all points by number, the Pareto front by number, confirmations.

    `objectives` are metrics with `minimize` or `maximize`, the first the most wanted. `size` counts the
    points that satisfy the constraints. `importance` is the influence of each parameter on each objective
    (fANOVA, adds up to 1), empty where too little is known. `hypervolume` is that of the front up to
    `reference`, as a share of the box from the best values to it. With `measured`, resources are those of
    synthesis. `nearest` is there where points were evaluated and none of them is within all limits.
    """

    name: str
    base: str
    models: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    derived: Mapping[str, str]
    constraints: tuple[str, ...]
    limits: tuple[str, ...]
    objectives: Mapping[str, str]
    size: int
    sampler: str
    family: str
    measured: bool
    energy_table: str
    points: tuple[Point, ...]
    front: tuple[int, ...]
    confirmations: tuple[Confirmation, ...] = ()
    importance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    hypervolume: float = 0.0
    reference: Mapping[str, float] = field(default_factory=dict)
    points_per_second: float = 0.0
    nearest: Nearest | None = None

    def point(self, number: int) -> Point:
        """The point of a number; raises `KeyError` for one that is not there."""
        return {point.number: point for point in self.points}[number]

    def confirmation(self, number: int) -> Confirmation | None:
        """What the RTL said of a point; None if it was not asked."""
        return next((c for c in self.confirmations if c.point == number), None)

    def of(self, state: State) -> tuple[Point, ...]:
        """The points in a state."""
        return tuple(p for p in self.points if p.state is state)


def front_table(found: Exploration) -> tuple[list[str], list[list[str]]]:
    """The front, or the nearest point, for people: names of columns, a row per point."""
    names = [p.name for p in found.parameters]
    nearest = [] if found.nearest is None else [found.nearest.point]
    points = [found.point(number) for number in found.front or nearest]
    metrics = [name for name in METRICS if any(name in p.metrics for p in points)]
    rows = []
    for p in points:
        confirmation = found.confirmation(p.number)
        rtl = "" if confirmation is None else "confirmed" if confirmation.confirmed else "differs"
        values = [str(p.parameters.get(n, "–")) for n in names]
        rows.append([str(p.number), *values, *(shown(n, p.metrics.get(n)) for n in metrics), rtl])
    return ["point", *names, *metrics, "RTL"], rows


def summary(found: Exploration) -> str:
    """How many points there are, in words."""
    states = Counter(p.state for p in found.points)
    others = [f"{states[s]:,} {s.value}" for s in State if s is not State.COMPLETE and states[s]]
    rest = f" ({', '.join(others)})" if others else ""
    return f"{len(found.points):,} of {found.size:,} points{rest}, {len(found.front)} on the front"


def shown(name: str, value: float | None) -> str:
    """A metric for people."""
    if value is None:
        return "–"
    if name == "utilization":
        return f"{100 * value:.1f} %"
    if name == "seconds_per_inference":
        return f"{value:.3g}"
    return f"{value:,.1f}" if value != int(value) and value < 1000 else f"{value:,.0f}"


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
