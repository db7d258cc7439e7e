"""The search: points are asked for, evaluated by workers, and kept; whatever ends, what is kept is whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any

from hw.config import MachineConfig
from hw.errors import InputError
from jacquard.explore.executors import Workers
from jacquard.explore.results import Point
from jacquard.explore.samplers import GridSampler, SpaceSampler
from jacquard.explore.study import Kept
from jacquard.explore.worker import Answer, ClusterLostError, WorkerLostError

#: Seconds after which progress is told again though nothing has ended.
TICK = 1.0


@dataclass
class Progress:
    """How far a search is; `known` points were there before, `seconds` run since it began."""

    target: int
    known: int
    done: list[Point] = field(default_factory=list)
    seconds: float = 0.0
    flying: int = 0

    @property
    def rate(self) -> float:
        """Points per second."""
        return len(self.done) / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take; None as long as nothing is known."""
        return (self.target - self.known - len(self.done)) / self.rate if self.rate else None


@dataclass
class _Flight:
    """A point that is being evaluated; `lost` counts the workers that it has cost.

    `lane` is the stretch of a grid that its worker has.
    """

    number: int
    config: MachineConfig
    lane: int
    lost: int = 0


@dataclass
class Search:
    """A search up to so many finished points, those that the study has among them."""

    kept: Kept
    sampler: SpaceSampler
    workers: Workers
    trials: int
    report: Callable[[Progress], None] = lambda progress: None
    flights: dict[Future[Answer], _Flight] = field(default_factory=dict)
    waiting: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    #: Stretches of a grid whose workers have nothing to do.
    lanes: list[int] = field(default_factory=list)

    def run(self) -> Progress:
        """Evaluate until there are enough points, or no new ones.

        Raises `InputError` when it cannot go on (database, cluster, a worker's disk): what is finished is
        kept.
        """
        finished = self.kept.points()
        self.waiting = self.kept.unfinished()
        self.sampler.note(p.parameters for p in finished)
        self.sampler.note(parameters for _, parameters in self.waiting)
        target = min(self.trials, len(finished) + len(self.waiting) + self.sampler.left)
        self.progress = Progress(target, len(finished))
        try:
            return self._evaluated()
        except ClusterLostError as error:
            raise InputError(f"{error}; the same command goes on from here") from None

    def _evaluated(self) -> Progress:
        begin = time.monotonic()
        if isinstance(self.sampler, GridSampler):
            self.sampler.lanes = self.workers.count()
            self.lanes = [*range(self.sampler.lanes)]
        while True:
            self._fill()
            self.progress.seconds = time.monotonic() - begin
            self.progress.flying = len(self.flights)
            self.report(self.progress)
            if not self.flights:
                return self.progress
            ended, _ = wait(self.flights, timeout=TICK, return_when=FIRST_COMPLETED)
            for future in ended:
                flight = self.flights.pop(future)
                self.lanes.append(flight.lane)
                self._end(future, flight)

    def _fill(self) -> None:
        """Give the workers as much as they can take; the order of a grid depends on no result."""
        ahead = 2 if isinstance(self.sampler, GridSampler) and self.workers.queues else 1
        while len(self.flights) < ahead * self.workers.count():
            finished = self.progress.known + len(self.progress.done)
            lane = self.lanes.pop(0) if self.lanes else len(self.flights)
            if isinstance(self.sampler, GridSampler):
                self.sampler.lane = lane
            if self.waiting:
                number, parameters = self.waiting.pop(0)
            elif finished + len(self.flights) < self.trials and self.sampler.left > 0:
                number, parameters = self.kept.ask()
            else:
                return
            try:
                config = self.kept.space.machine(parameters)
            except InputError as error:
                self.progress.done.append(self.kept.refuse(number, str(error), None))
                self.lanes.insert(0, lane)
                continue
            self._submit(_Flight(number, config, lane))

    def _submit(self, flight: _Flight) -> None:
        self.flights[self.workers.submit(flight.config)] = flight

    def _end(self, future: Future[Answer], flight: _Flight) -> None:
        """Keep what came of a point."""
        try:
            answer = future.result()
        except BaseException as error:
            translated = self.workers.translate(error)
            if isinstance(translated, ClusterLostError):
                raise translated from None
            if not isinstance(translated, WorkerLostError):
                raise
            flight.lost += 1
            if flight.lost < self.workers.patience:
                self.lanes.remove(flight.lane)
                self._submit(flight)
                return
            times = "its workers" if flight.lost == 1 else f"its worker {flight.lost} times"
            self._keep(self.kept.fail(flight.number, f"killed {times}: {translated}", flight.config))
            return
        if answer.hindered is not None:
            raise InputError(f"{answer.hindered}; the same command goes on from here")
        if answer.evaluation is not None:
            self._keep(self.kept.complete(flight.number, flight.config, answer.evaluation))
        elif answer.refused is not None:
            self._keep(self.kept.refuse(flight.number, answer.refused, flight.config))
        else:
            self._keep(self.kept.fail(flight.number, answer.failed or "no reason", flight.config))

    def _keep(self, point: Point) -> None:
        self.progress.done.append(point)
