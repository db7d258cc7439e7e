"""Workers: the process of a worker, and the values of `--executor`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heald.exploration.search import workers
from hw.errors import InputError

ROOT = Path(__file__).resolve().parents[3]


def test_a_worker_tidies_up_undisturbed_and_then_ends() -> None:
    code = """if True:
        import os, signal
        from heald.exploration import worker
        from hw import processes
        worker.load = lambda *arguments: None
        worker.start("test", None, None)
        try:
            with worker._turn:
                try:
                    os.kill(os.getpid(), signal.SIGTERM)
                finally:
                    os.kill(os.getpid(), signal.SIGTERM)
                    print("tidied", processes.run(["sleep", "5"]), flush=True)
        except processes.Ended as error:
            print(error, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        print("goes on")
    """
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert ended.stdout == "tidied -9\nended by SIGTERM\n"
    assert ended.returncode == 128 + signal.SIGTERM


def test_executors_that_are_not_there() -> None:
    nothing: Any = None
    for text, told in (
        ("threads", "must be processes, processes:N or dask://HOST:PORT, not 'threads'"),
        ("processes:0", "must have one process at least"),
        ("dask://localhost", "must be processes"),
    ):
        with pytest.raises(InputError, match=told):
            workers(text, "test", nothing)
