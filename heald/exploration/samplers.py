"""Chooses the next point: only points that satisfy the constraints, and none twice.

Optuna's samplers know neither constraints between parameters nor that points repeat. A proposal is therefore
moved to the nearest feasible new point, so N trials are N different points. A search begins with points that
cover the space: both extremes, then the one farthest from all others.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from heald.exploration.feasible import Feasible, Parameters, Values

SAMPLERS = ("grid", "random", "nsga2", "tpe")
#: Up to this many feasible points, the nearest new one is searched among all.
SMALL = 50_000
#: Number of points drawn if there are more.
DRAWN = 2_000
#: Number of random points of which the farthest from others is taken.
CANDIDATES = 64

Key = tuple[int | str, ...]


def _vectors(values: Values) -> dict[int | str, tuple[float, ...]]:
    """Values of a parameter as vectors: a number is its rank, from 0 to 1; texts are 1 apart."""
    if any(isinstance(v, str) for v in values):
        return dict(zip(values, map(tuple, np.eye(len(values)) / 2), strict=True))
    return {v: (i / max(1, len(values) - 1),) for i, v in enumerate(values)}


class SpaceSampler(BaseSampler):
    """New points of a space: near those that `inner` proposes, or without `inner` in `order`, or random.

    The first `start` points come before any proposal. `seen` are the existing points.
    """

    def __init__(
        self,
        feasible: Feasible,
        space: Mapping[str, Values],
        relative: Mapping[str, BaseDistribution],
        inner: BaseSampler | None,
        start: int,
        seed: int,
        order: Iterator[int] | None = None,
    ):
        self.feasible, self.space, self.relative = feasible, space, dict(relative)
        self.inner, self.start = inner, start
        self.rng = random.Random(seed)
        self.vectors = {name: _vectors(values) for name, values in space.items()}
        self.seen: set[Key] = set()
        self._all: tuple[list[Parameters], np.ndarray] | None = None
        self._order = order

    # Called by the search

    def note(self, points: Iterable[Mapping[str, int | str]]) -> None:
        """Record points that were evaluated before."""
        self.seen |= {self.key(p) for p in points}

    @property
    def left(self) -> int:
        """Number of points that are still new."""
        return self.feasible.size - len(self.seen)

    def key(self, point: Mapping[str, int | str]) -> Key:
        """A point without its names."""
        return tuple(point[name] for name in self.feasible.names)

    # Called by optuna

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters at once."""
        return self.relative

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A new point."""
        proposed: dict[str, Any] = {}
        if self.inner is not None:
            several = {n: d for n, d in search_space.items() if not d.single()}
            proposed = self.inner.sample_relative(study, trial, several)
        if not proposed:
            point = self._first() if self.inner is not None and len(self.seen) < self.start else self._any()
        else:
            # A mutated parameter is missing here.
            free = self.feasible.draw(self.rng)
            point = self._nearest({name: proposed.get(name, free[name]) for name in self.space})
        self.seen.add(self.key(point))
        return dict(point)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never called: constraints join parameters, so none is sampled alone."""
        raise AssertionError(f"{param_name} must come with all others")

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Forwarded to the inner sampler."""
        if self.inner is not None:
            self.inner.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Forwarded to the inner sampler."""
        if self.inner is not None:
            self.inner.after_trial(study, trial, state, values)

    # Points

    def _any(self) -> Parameters:
        """Draw a new point uniformly."""
        while True:
            point = self._drawn()
            if self.key(point) not in self.seen:
                return point

    def _drawn(self) -> Parameters:
        """Draw a point; if there are few, each comes once before any repeats."""
        if self.feasible.size <= SMALL and self._order is None:
            numbers = list(range(self.feasible.size))
            self.rng.shuffle(numbers)
            self._order = iter(numbers)
        number = None if self._order is None else next(self._order, None)
        return self.feasible.draw(self.rng) if number is None else self.feasible.point(number)

    def _first(self) -> Parameters:
        """The smallest point, the largest, then points far from all existing ones."""
        ends = [{name: values[end] for name, values in self.space.items()} for end in (0, -1)]
        for end in ends:
            # An infeasible extreme is replaced, once, by the feasible point nearest to it.
            point = self._nearest(end)
            if not self.seen or (len(self.seen) == 1 and end is ends[1]):
                return point
        candidates = [self._any() for _ in range(CANDIDATES)]
        there = self._matrix(dict(zip(self.feasible.names, key, strict=True)) for key in self.seen)
        found = self._matrix(candidates)
        apart = ((found[:, None, :] - there[None, :, :]) ** 2).sum(axis=2).min(axis=1)
        return candidates[int(apart.argmax())]

    def _nearest(self, wanted: Mapping[str, int | str]) -> Parameters:
        """The nearest new point; a random one of several."""
        points, matrix = self._candidates()
        new = np.array([self.key(p) not in self.seen for p in points])
        if not new.any():
            return self._any()
        apart = ((matrix - self._matrix([wanted])) ** 2).sum(axis=1)
        apart[~new] = np.inf
        nearest = np.flatnonzero(apart <= apart.min() + 1e-6)
        return points[self.rng.choice(nearest.tolist())]

    def _matrix(self, points: Iterable[Mapping[str, int | str]]) -> np.ndarray:
        """Vectors of points, one per row."""
        rows = [[x for name, own in self.vectors.items() for x in own[point[name]]] for point in points]
        return np.array(rows, np.float32)

    def _candidates(self) -> tuple[list[Parameters], np.ndarray]:
        if self.feasible.size > SMALL:
            drawn = [self.feasible.draw(self.rng) for _ in range(DRAWN)]
            return drawn, self._matrix(drawn)
        if self._all is None:
            points = list(self.feasible)
            self._all = points, self._matrix(points)
        return self._all


def _grid(feasible: Feasible, grids: Values) -> Iterator[int]:
    """All points in order, but first one of each CGRA: workers then map loops to different ones."""
    first: dict[int | str, int] = {}
    for number in range(min(feasible.size, SMALL) if len(grids) > 1 else 0):
        first.setdefault(feasible.point(number)["cgra"], number)
        if len(first) == len(grids):
            break
    numbers = {*first.values()}
    yield from first.values()
    yield from (n for n in itertools.count() if n not in numbers)


def sampler(
    name: str,
    feasible: Feasible,
    space: Mapping[str, Values],
    relative: Mapping[str, BaseDistribution],
    trials: int,
    seed: int,
) -> SpaceSampler:
    """The sampler with a name in `SAMPLERS`, for a search of `trials` trials."""
    if name == "grid":
        order = _grid(feasible, space.get("cgra", ()))
        return SpaceSampler(feasible, space, relative, None, 0, seed, order)
    inner: BaseSampler | None = None
    # A fifth of the trials is one generation, and covers the space before the first.
    start = min(max(trials // 5, 6), 50)
    if name == "nsga2":
        inner = NSGAIISampler(population_size=start, seed=seed)
    elif name == "tpe":
        inner = TPESampler(n_startup_trials=start, multivariate=True, seed=seed)
    return SpaceSampler(feasible, space, relative, inner, start, seed)
