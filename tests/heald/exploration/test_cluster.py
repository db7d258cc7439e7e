"""A real dask cluster of worker processes, one of which is killed during a run."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heald.exploration import search
from heald.exploration.search import Progress
from heald.exploration.worker import ClusterLostError
from hw.config import load
from tests.heald.exploration.test_interrupts import trials

distributed = pytest.importorskip("distributed")


@pytest.fixture
def cluster(folder: Path) -> Iterator[Any]:
    """A scheduler and two worker processes; a nanny starts a new one in the place of one that ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        )
        try:
            yield made
        finally:
            made.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_killed_worker_of_a_cluster_loses_and_doubles_nothing(
    cluster: Any, heald: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    first = next(iter(cluster.workers.values())).pid
    end = search.Search._end

    def kill(self: search.Search, future: Any, flight: Any) -> None:
        end(self, future, flight)
        if len(self.progress.done) >= 3 and not killed:
            killed.append(first)
            os.kill(first, signal.SIGKILL)

    monkeypatch.setattr(search.Search, "_end", kill)
    address = cluster.scheduler_address.removeprefix("tcp://")
    ended = heald("explore", "space.toml", "tiny.onnx", "--executor", f"dask://{address}", "--json")
    assert ended.code == 0, ended.err
    assert killed == [first]
    found = json.loads(ended.out)
    assert (found["trials"], found["refused"], found["failed"]) == (16, 2, 0)
    held = trials(folder)
    assert sorted(held) == list(range(16))
    assert all(state in ("COMPLETE", "PRUNED") for state, _ in held.values())


def test_a_scheduler_that_is_gone_is_a_lost_cluster() -> None:
    from heald.exploration.cluster import DaskWorkers

    class Gone:
        def nthreads(self) -> Any:
            raise OSError("Timed out trying to connect")

        def submit(self, *arguments: Any) -> Any:
            raise RuntimeError("ConnectionPool closing.")

    gone: Any = Gone()
    staff = DaskWorkers(gone, gone, "name", "tcp://127.0.0.1:9")
    told = "the dask cluster at tcp://127.0.0.1:9 was lost: "
    with pytest.raises(ClusterLostError, match=told + "Timed out trying to connect"):
        staff.count()
    with pytest.raises(ClusterLostError, match=told + "ConnectionPool closing."):
        staff.submit(load("test"))


def test_progress_knows_how_long_the_rest_takes() -> None:
    progress = Progress(target=20, known=4, done=[None] * 6, seconds=3.0)  # type: ignore[list-item]
    assert progress.rate == 2.0
    assert progress.left == 5.0
    assert Progress(target=20, known=0).left is None
