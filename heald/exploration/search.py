"""The search: asks for points, has workers evaluate them, and saves the results as they come."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeAlias

from heald.exploration import worker
from heald.exploration.evaluate import Workload
from heald.exploration.results import Point
from heald.exploration.samplers import SpaceSampler
from heald.exploration.study import Kept
from heald.exploration.worker import Answer, ClusterLostError, WorkerLostError
from hw import processes
from hw.config import MachineConfig
from hw.errors import InputError

if TYPE_CHECKING:
    from heald.exploration.cluster import DaskWorkers

_PROCESSES = re.compile(r"processes(?::([0-9]{1,4}))?")
_DASK = re.compile(r"dask://([A-Za-z0-9_.\-\[\]:]+):([0-9]{1,5})")
#: Errors of a task whose process has ended, or was asked to end.
_LOST = (BrokenProcessPool, processes.Ended)


@dataclass
class _Slot:
    """One process in a pool of its own, so that its end is not confused with that of others."""

    pool: ProcessPoolExecutor
    pid: Future[int]
    said: Any
    task: Future[Answer] | None = None
    broken: bool = False

    @property
    def free(self) -> bool:
        """Whether it waits for work."""
        return self.task is None or self.task.done()

    @property
    def gone(self) -> bool:
        """Whether the process has ended, as seen from its last task or a failed submission."""
        task = self.task
        if self.broken or task is None or not task.done() or task.cancelled():
            return self.broken
        return isinstance(task.exception(), _LOST)


@dataclass
class ProcessWorkers:
    """Processes of this machine, each with the models loaded.

    `patience` is how often a point may lose its worker before it counts as the cause. `queues` says whether
    more points than workers may be submitted.
    """

    name: str
    workload: Workload
    number: int
    patience: int = 3
    queues: bool = False
    slots: list[_Slot] = field(default_factory=list)

    def count(self) -> int:
        """Number of processes."""
        return self.number

    def submit(self, config: MachineConfig) -> Future[Answer]:
        """Submit a point to a free process, or to a new one if fewer than `number` exist."""
        for slot in [s for s in self.slots if s.gone]:
            slot.pool.shutdown(wait=False)
            self.slots.remove(slot)
        free = next((s for s in self.slots if s.free), None)
        if free is None and len(self.slots) < self.number:
            free = self._start()
            self.slots.append(free)
        slot = free or self.slots[0]
        try:
            slot.task = slot.pool.submit(worker.run, self.name, config)
        except BrokenProcessPool:
            slot.broken = True
            return self.submit(config)
        return slot.task

    def _start(self) -> _Slot:
        # A fresh process inherits no threads and locks of this one.
        context = get_context("spawn")
        said = context.RawArray("c", worker.LINE)
        arguments = self.name, self.workload, said
        try:
            with processes.interrupts_blocked():
                pool = ProcessPoolExecutor(1, context, initializer=worker.start, initargs=arguments)
                return _Slot(pool, pool.submit(os.getpid), said)
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"--executor: process {len(self.slots) + 1} of {self.number} cannot be started: {error}; "
                "the same command resumes from here"
            ) from None

    def heard_of(self, task: Future[Answer]) -> str:
        """What the process of a point reports that it is doing."""
        said = (s.said.value for s in self.slots if s.task is task)
        return next(said, b"").decode("utf-8", "ignore")

    def translate(self, error: BaseException) -> BaseException:
        """`WorkerLostError` if the error says that a process has ended."""
        return WorkerLostError(str(error)) if isinstance(error, _LOST) else error

    def close(self, *, kill: bool) -> None:
        """End the processes."""
        for slot in self.slots:
            slot.pool.shutdown(wait=False, cancel_futures=True)
            if kill and slot.pid.done() and not slot.pid.cancelled() and slot.pid.exception() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(slot.pid.result(), signal.SIGTERM)
        while self.slots:
            self.slots.pop().pool.shutdown(wait=True)


#: The two kinds of workers. If none can be reached, calls raise `ClusterLostError`.
Workers: TypeAlias = "ProcessWorkers | DaskWorkers"


def workers(text: str, name: str, workload: Workload) -> Workers:
    """The workers that `--executor` names; raises `InputError` if invalid or unreachable."""
    if found := _PROCESSES.fullmatch(text):
        number = int(found[1]) if found[1] is not None else os.cpu_count() or 1
        if number < 1:
            raise InputError(f"--executor processes:N must have one process at least, not {number}")
        return ProcessWorkers(name, workload, number)
    if found := _DASK.fullmatch(text):
        try:
            from heald.exploration.cluster import DaskWorkers
        except ModuleNotFoundError as error:
            raise InputError(f"--executor dask:// needs {error.name}: pip install 'heald[cluster]'") from None
        return DaskWorkers.connect(f"tcp://{found[1]}:{found[2]}", name, workload)
    raise InputError(f"--executor must be processes, processes:N or dask://HOST:PORT, not {text!r}")


#: Seconds after which progress is reported even if no point ended.
TICK = 1.0


@dataclass
class Progress:
    """Progress of a search; `known` points existed before, `seconds` count since its start.

    `usual` is the expected seconds per point, from earlier points; 0 if there are none.
    """

    target: int
    known: int
    usual: float = 0.0
    done: list[Point] = field(default_factory=list)
    seconds: float = 0.0
    flying: int = 0
    #: What points in flight are doing, if they take long.
    doing: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Points per second."""
        return len(self.done) / self.seconds if self.seconds else 0.0

    @property
    def remaining(self) -> int:
        """Number of unfinished points."""
        return self.target - self.known - len(self.done)

    @property
    def left(self) -> float | None:
        """Estimated seconds for the rest; None as long as nothing is known."""
        pace = 1 / self.rate if self.rate else self.usual
        return self.remaining * pace if pace else None

    @property
    def outlook(self) -> str:
        """Finished and remaining points, with the estimated time if known."""
        text = f"{self.target - self.remaining:,} of {self.target:,} points, {self.remaining:,} left"
        known = self.remaining and self.left is not None
        return f"{text} in about {timedelta(seconds=round(self.left or 0))}" if known else text


@dataclass
class _Flight:
    """A point that is being evaluated; `lost` counts the workers that it has cost."""

    number: int
    config: MachineConfig
    lost: int = 0


@dataclass
class Search:
    """A search until the study has `trials` finished points, including those it already has."""

    kept: Kept
    sampler: SpaceSampler
    workers: Workers
    trials: int
    report: Callable[[Progress], None] = lambda progress: None
    note: Callable[[str], None] = lambda text: None
    flights: dict[Future[Answer], _Flight] = field(default_factory=dict)
    waiting: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def run(self) -> Progress:
        """Evaluate until there are enough points, or no new ones; `note` first gets the work that remains.

        Raises `InputError` if it cannot go on (database, cluster, a worker's disk); finished points are
        saved.
        """
        finished = self.kept.points()
        self.waiting = self.kept.unfinished()
        self.sampler.note(p.parameters for p in finished)
        self.sampler.note(parameters for _, parameters in self.waiting)
        begun = len(finished) + len(self.waiting)
        target = max(begun, min(self.trials, begun + self.sampler.left))
        times = [p.seconds for p in finished if p.seconds]
        usual = sum(times) / len(times) / max(1, self.workers.count()) if times else 0.0
        self.progress = Progress(target, len(finished), usual)
        self.note(self.progress.outlook)
        try:
            return self._evaluated()
        except ClusterLostError as error:
            raise InputError(f"{error}; the same command resumes from here") from None

    def _evaluated(self) -> Progress:
        begin = time.monotonic()
        while True:
            self._fill()
            self.progress.seconds = time.monotonic() - begin
            self.progress.flying = len(self.flights)
            heard = [(f.number, self.workers.heard_of(task)) for task, f in self.flights.items()]
            self.progress.doing = [f"point {number} is {text}" for number, text in heard if text]
            self.report(self.progress)
            if not self.flights:
                return self.progress
            ended, _ = wait(self.flights, timeout=TICK, return_when=FIRST_COMPLETED)
            for future in ended:
                flight = self.flights.pop(future)
                self._end(future, flight)

    def _fill(self) -> None:
        """Keep the workers busy, with one point each in reserve if no result decides the next point."""
        ahead = 2 if self.sampler.inner is None and self.workers.queues else 1
        while len(self.flights) < ahead * self.workers.count():
            finished = self.progress.known + len(self.progress.done)
            if self.waiting:
                number, parameters = self.waiting.pop(0)
            elif finished + len(self.flights) < self.trials and self.sampler.left > 0:
                number, parameters = self.kept.ask()
            else:
                return
            try:
                config = self.kept.space.machine(parameters)
            except InputError as error:
                self.progress.done.append(self.kept.keep(number, None, Answer(refused=str(error))))
                continue
            self._submit(_Flight(number, config))

    def _submit(self, flight: _Flight) -> None:
        self.flights[self.workers.submit(flight.config)] = flight

    def _end(self, future: Future[Answer], flight: _Flight) -> None:
        """Save the result of a point."""
        try:
            answer = future.result()
        except BaseException as error:
            if isinstance(error, processes.Ended) and error is not future.exception():
                raise  # this process itself was asked to end
            translated = self.workers.translate(error)
            if isinstance(translated, ClusterLostError):
                raise translated from None
            if not isinstance(translated, WorkerLostError):
                raise
            flight.lost += 1
            if flight.lost < self.workers.patience:
                self._submit(flight)
                return
            times = "its workers" if flight.lost == 1 else f"its worker {flight.lost} times"
            answer = Answer(failed=f"killed {times}: {translated}")
        if answer.hindered is not None:
            raise InputError(f"{answer.hindered}; the same command resumes from here")
        self.progress.done.append(self.kept.keep(flight.number, flight.config, answer))
