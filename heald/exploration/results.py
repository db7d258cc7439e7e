"""The results of an exploration, as frozen data."""

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
    """State of a point.

    `infeasible`: evaluated, but exceeds a limit of the space. `refused`: the configuration cannot be built,
    or the compiler finds no program for it. `failed`: the evaluation killed its worker, synthesis failed,
    Heald had an internal error, or an objective has no value.
    """

    COMPLETE = "complete"
    INFEASIBLE = "infeasible"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Point:
    """A configuration and its evaluation.

    `parameters` are those of the space, `hw` all fields of the machine (`cgra` as its name). `metrics` are
    sums over the models (cycles, bytes_moved, energy_pj, macs) and properties of the machine (luts, ffs,
    brams, dsps, fmax_mhz, seconds_per_inference, utilization); unknown ones are left out. Refused and failed
    points have a `reason` and no metrics, infeasible ones have both. `seconds` is the evaluation time.
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
    """The run of a point on the RTL.

    `confirmed`: all results bit for bit, all events in their cycles, warps and configurations accepted;
    `difference` says what failed. `events` is the number compared; `cycles` are the RTL's.
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
    """A parameter of the space, with its values in order and the meaning of the field."""

    name: str
    values: tuple[int | str, ...]
    meaning: str


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class Excess:
    """A limit that a point exceeds, with the two values it compares; None if they are undefined."""

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
    """The point that exceeds its limits least, if every point exceeds some."""

    point: int
    excesses: tuple[Excess, ...]

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.excesses))
        return f"no point is within all limits; point {self.point} is nearest: {listed}"


@dataclass(frozen=True)
class Exploration:
    """An exploration: its space, all points by number, the Pareto front by number, confirmations.

    `objectives` are metrics with `minimize` or `maximize`, the most important first. `size` is the number of
    points that satisfy the constraints. `importance` is the influence of each parameter on each objective
    (fANOVA, adds up to 1); it is empty if there are too few points. `hypervolume` is the front's up to
    `reference`, as a fraction of the box from the best values to it. With `measured`, resources come from
    synthesis. `nearest` is set if points were evaluated and none is within all limits.
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
        """The point with this number; raises `KeyError` if there is none."""
        return {point.number: point for point in self.points}[number]

    def confirmation(self, number: int) -> Confirmation | None:
        """The run of a point on the RTL; None if there was none."""
        return next((c for c in self.confirmations if c.point == number), None)

    def of(self, state: State) -> tuple[Point, ...]:
        """The points in a state."""
        return tuple(p for p in self.points if p.state is state)


def front_table(found: Exploration) -> tuple[list[str], list[list[str]]]:
    """The front, or the nearest point, as a table for users: column names, and a row per point."""
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
    """The number of points in each state, in words."""
    states = Counter(p.state for p in found.points)
    others = [f"{states[s]:,} {s.value}" for s in State if s is not State.COMPLETE and states[s]]
    rest = f" ({', '.join(others)})" if others else ""
    return f"{len(found.points):,} of {found.size:,} points{rest}, {len(found.front)} on the front"


def shown(name: str, value: float | None) -> str:
    """A metric as text for users."""
    if value is None:
        return "–"
    if name == "utilization":
        return f"{100 * value:.1f} %"
    if name == "seconds_per_inference":
        return f"{value:.3g}"
    return f"{value:,.1f}" if value != int(value) and value < 1000 else f"{value:,.0f}"


def ranked(points: Sequence[Point], objectives: Mapping[str, str]) -> list[list[Point]]:
    """Feasible points by rank: the front, the front of the rest, and so on; each by the first objective.

    Of points with equal objectives, only the first counts for a front; the others go to the next one.
    """
    left = [(vector(p.metrics, objectives), p) for p in points if p.state is State.COMPLETE]
    left.sort(key=lambda each: (each[0], each[1].number))
    found: list[list[Point]] = []
    while left:
        # In this order, no point is dominated by a later one.
        front: list[tuple[Vector, Point]] = []
        rest: list[tuple[Vector, Point]] = []
        for v, p in left:
            beaten = any(v == w or dominates(w, v) for w, _ in front)
            (rest if beaten else front).append((v, p))
        found.append([p for _, p in front])
        left = rest
    return found
