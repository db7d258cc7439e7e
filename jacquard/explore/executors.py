"""Who evaluates points: processes of this machine, or a dask cluster, behind one interface of futures."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Protocol

from hw.config import MachineConfig
from hw.errors import InputError
from jacquard.explore import worker
from jacquard.explore.evaluate import Workload
from jacquard.explore.worker import Answer, WorkerLostError

_PROCESSES = re.compile(r"processes(?::([0-9]{1,4}))?")
_DASK = re.compile(r"dask://([A-Za-z0-9_.\-\[\]:]+):([0-9]{1,5})")


class Workers(Protocol):
    """Those who evaluate."""

    #: How often a point may lose its worker before it counts as the cause, if this side counts it.
    patience: int
    #: Whether more points than there are workers may be given.
    queues: bool

    def count(self) -> int:
        """How many points are evaluated at the same time; raises `ClusterLostError` where nobody is there."""
        ...

    def submit(self, config: MachineConfig) -> Future[Answer]:
        """Have a point evaluated; raises `ClusterLostError` where nobody is there."""
        ...

    def translate(self, error: BaseException) -> BaseException:
        """`WorkerLostError` or `ClusterLostError` for what a future raises when they happen."""
        ...

    def close(self, *, kill: bool) -> None:
        """Let all go; with `kill` without waiting for what they do."""
        ...


@dataclass
class _Slot:
    """One process: a pool of its own, so that its end is told apart from that of others."""

    pool: ProcessPoolExecutor
    pid: Future[int]
    task: Future[Answer] | None = None
    broken: bool = False

    @property
    def free(self) -> bool:
        """Whether it waits for work."""
        return self.task is None or self.task.done()

    @property
    def gone(self) -> bool:
        """Whether the process has ended, as its last task tells or the next one does."""
        task = self.task
        if self.broken or task is None or not task.done() or task.cancelled():
            return self.broken
        return isinstance(task.exception(), BrokenProcessPool)


@dataclass
class ProcessWorkers:
    """Processes of this machine, each with the models loaded."""

    name: str
    workload: Workload
    number: int
    patience: int = 3
    queues: bool = False
    slots: list[_Slot] = field(default_factory=list)

    def count(self) -> int:
        """The number of processes."""
        return self.number

    def submit(self, config: MachineConfig) -> Future[Answer]:
        """Give a point to a process that is free, to a new one if there are fewer than allowed."""
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
        # Threads and locks of this process do not go into one that starts anew.
        context = get_context("spawn")
        arguments = (self.name, self.workload)
        try:
            pool = ProcessPoolExecutor(1, context, initializer=worker.start, initargs=arguments)
            return _Slot(pool, pool.submit(os.getpid))
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"--executor: process {len(self.slots) + 1} of {self.number} cannot be started: {error}; "
                "the same command goes on from here"
            ) from None

    def translate(self, error: BaseException) -> BaseException:
        """A process that is gone."""
        return WorkerLostError(str(error)) if isinstance(error, BrokenProcessPool) else error

    def close(self, *, kill: bool) -> None:
        """End the processes."""
        for slot in self.slots:
            slot.pool.shutdown(wait=False, cancel_futures=True)
            if kill and slot.pid.done() and not slot.pid.cancelled() and slot.pid.exception() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(slot.pid.result(), signal.SIGTERM)
        for slot in self.slots:
            slot.pool.shutdown(wait=True)
        self.slots.clear()


def workers(text: str, name: str, workload: Workload) -> Workers:
    """The workers that `--executor` names; raises `InputError` for another text, and who is not there."""
    if found := _PROCESSES.fullmatch(text):
        number = int(found[1]) if found[1] is not None else os.cpu_count() or 1
        if number < 1:
            raise InputError(f"--executor processes:N must have one process at least, not {number}")
        return ProcessWorkers(name, workload, number)
    if found := _DASK.fullmatch(text):
        try:
            from jacquard.explore.cluster import DaskWorkers
        except ModuleNotFoundError as error:
            raise InputError(
                f"--executor dask:// needs {error.name}: pip install 'jacquard[cluster]'"
            ) from None
        return DaskWorkers.connect(f"tcp://{found[1]}:{found[2]}", name, workload)
    raise InputError(f"--executor must be processes, processes:N or dask://HOST:PORT, not {text!r}")
