"""Workers of a dask cluster: a plugin loads the models in every worker, also in those that join later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from typing import Any

from distributed import Client, KilledWorker, WorkerPlugin
from distributed.comm import CommClosedError

from heald.exploration import worker
from heald.exploration.evaluate import Workload
from heald.exploration.worker import Answer, ClusterLostError, WorkerLostError
from hw.config import MachineConfig
from hw.errors import InputError

#: Seconds after which a scheduler, or the first worker, counts as unreachable.
PATIENCE = 5


class Loader(WorkerPlugin):  # type: ignore[misc]
    """Loads a workload in every worker of a cluster."""

    def __init__(self, name: str, workload: Workload):
        self.key, self.workload = name, workload

    def setup(self, worker: Any) -> None:
        """Called by dask in each worker, when the worker or the plugin is added."""
        from heald.exploration import worker as here

        here.load(self.key, self.workload)


@dataclass
class DaskWorkers:
    """A dask cluster. If a worker is lost, dask gives its point to another one, and counts the losses."""

    client: Client
    executor: Executor
    name: str
    address: str
    patience: int = 1
    queues: bool = True

    @staticmethod
    def connect(address: str, name: str, workload: Workload) -> DaskWorkers:
        """Connect to a scheduler; raises `InputError` if it or its workers cannot be reached or differ."""
        try:
            client = Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise InputError(f"--executor: no dask scheduler at {address}: {_first(error)}") from None
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
            found = client.run(worker.compiler, on_error="return")
        except TimeoutError:
            client.close()
            raise InputError(f"--executor: the dask scheduler at {address} has no workers") from None
        except OSError as error:
            client.close()
            raise InputError(f"--executor: no dask scheduler at {address}: {_first(error)}") from None
        for place, theirs in found.items():
            if theirs != worker.compiler():
                client.close()
                what = (
                    f"cannot run Heald: {theirs}" if isinstance(theirs, Exception) else "has another version"
                )
                raise InputError(f"--executor: worker {place} of {address} must have this Heald, it {what}")
        try:
            client.register_plugin(Loader(name, workload), name=f"heald-{name}")
        except Exception as error:
            # Any error of a worker or the connection.
            client.close()
            raise InputError(
                f"--executor: the workers of {address} cannot load the models: {_first(error)}"
            ) from None
        # The study already evaluates equal points once; dask need not look for them.
        return DaskWorkers(client, client.get_executor(pure=False), name, address)

    def count(self) -> int:
        """Number of workers at present; each evaluates one point at a time."""
        with self._reached():
            return max(1, len(self.client.nthreads()))

    def submit(self, config: MachineConfig) -> Future[Answer]:
        """Submit a point to the cluster."""
        with self._reached():
            task: Future[Answer] = self.executor.submit(worker.run, self.name, config)
        return task

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Raise any failure to talk to the scheduler as `ClusterLostError`."""
        try:
            yield
        except Exception as error:
            # Dask raises many errors here: of the network, timeouts, of a client that closed itself.
            raise self._lost(error) from None

    def _lost(self, error: BaseException) -> ClusterLostError:
        return ClusterLostError(f"the dask cluster at {self.address} was lost: {_first(error)}")

    def heard_of(self, task: Future[Answer]) -> str:
        """Empty: workers of a cluster report only results."""
        return ""

    def translate(self, error: BaseException) -> BaseException:
        """`WorkerLostError` if the point killed its workers, `ClusterLostError` if the cluster is gone."""
        if isinstance(error, KilledWorker):
            return WorkerLostError(_first(error))
        if isinstance(error, CancelledError | CommClosedError | OSError):
            return self._lost(error)
        return error

    def close(self, *, kill: bool) -> None:
        """Cancel what is not done, and leave the cluster."""
        with contextlib.suppress(Exception):
            # The cluster may be gone; then there is nothing to cancel.
            self.executor.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(Exception):
            self.client.unregister_worker_plugin(f"heald-{self.name}")
        with contextlib.suppress(Exception):
            self.client.close(timeout=PATIENCE)


def _first(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
