"""The command interrupted, killed, or with a full disk: it resumes, and loses or doubles nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from heald.exploration.study import storage_errors
from hw import processes

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ["explore", "space.toml", "tiny.onnx", "--executor", "processes:1"]
#: A program that may write files of so many bytes, and then is the command.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from heald.cli import main
main(sys.argv[2:])
"""


def start(*command: str) -> subprocess.Popen[str]:
    """The command in a process of its own, which is the first of its group."""
    environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{ROOT}"}
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        # A shell that runs the tests in the background ignores interrupts, and so would this process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def trials(folder: Path) -> dict[int, tuple[str, str]]:
    """State and end of every trial by number; what a killed process has left half-written is rolled back."""
    with contextlib.closing(sqlite3.connect(f"file:{folder}/space-tiny.db?mode=rw", uri=True)) as base:
        return {n: (s, e) for n, s, e in base.execute("select number, state, datetime_complete from trials")}


def wait_for(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until so many points are finished."""
    for _ in range(12000):
        with contextlib.suppress(sqlite3.Error):
            if sum(s != "RUNNING" for s, _ in trials(folder).values()) >= count:
                return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)  # points take a tenth of a second
    pytest.fail("the command does not get on")


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    return False


def finished(held: dict[int, tuple[str, str]]) -> dict[int, tuple[str, str]]:
    return {n: each for n, each in held.items() if each[0] != "RUNNING"}


def the_rest(heald: Any, folder: Path, before: dict[int, tuple[str, str]]) -> None:
    """Run to the end, and see that what was finished stayed as it was."""
    ended = heald(*COMMAND, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["trials"], found["refused"], found["failed"]) == (16, 2, 0)
    after = trials(folder)
    # One that was killed before it had all its parameters is no point; another trial has its place.
    points_of = {n for n, (state, _) in after.items() if state != "FAIL"}
    assert len(points_of) == 16
    assert len(after) <= 18  # each of the two that were stopped may leave one
    assert all(after[n] == each for n, each in before.items())
    with contextlib.closing(sqlite3.connect(folder / "space-tiny.db")) as base:
        rows = base.execute(
            "select number, param_name, param_value from trial_params join trials using (trial_id)"
        ).fetchall()
    points: dict[int, set[tuple[str, float]]] = {}
    for number, name, value in rows:
        points.setdefault(number, set()).add((name, value))
    assert len({frozenset(points[n]) for n in points_of}) == 16
    dropped = [len(points.get(n, ())) for n in after if n not in points_of]
    whole = max(map(len, points.values()))
    assert all(count < whole for count in dropped)


def test_an_interrupted_and_a_killed_exploration_go_on(heald: Any, folder: Path) -> None:
    process = start("-m", "heald", *COMMAND)
    wait_for(folder, 2, process)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "all points are in sqlite:///space-tiny.db: the same command resumes from here" in told
    assert "of 16 points" in told
    assert "Traceback" not in told
    first = finished(trials(folder))

    process = start("-m", "heald", *COMMAND)
    wait_for(folder, len(first) + 2, process)
    workers = children(process.pid)
    process.kill()
    process.communicate(timeout=60)
    second = finished(trials(folder))
    assert first.items() <= second.items()
    for _ in range(200):
        if not any(map(alive, workers)):
            break
        time.sleep(0.1)
    assert not any(map(alive, workers))
    the_rest(heald, folder, second)


def test_a_signal_waits_until_the_database_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torn out of its driver, SQLAlchemy writes a traceback to the user's terminal."""
    monkeypatch.setattr(processes, "_state", processes._State())
    before = signal.getsignal(signal.SIGTERM)
    answered = False
    try:
        processes.install([signal.SIGTERM])
        with pytest.raises(processes.Ended), storage_errors("sqlite:///some.db"):
            signal.raise_signal(signal.SIGTERM)
            answered = True
    finally:
        processes.heard()
        signal.signal(signal.SIGTERM, before)
    assert answered


@pytest.mark.slow
def test_a_full_disk_ends_the_command_and_it_goes_on(heald: Any, folder: Path) -> None:
    ended = heald(*COMMAND, "--trials", "1")
    assert ended.code == 0, ended.err
    limit = (folder / "space-tiny.db").stat().st_size + 16384
    process = start("-c", LIMITED, str(limit), *COMMAND)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 2, told
    assert "heald: --storage sqlite:///space-tiny.db: " in told
    assert "full" in told or "disk I/O error" in told
    assert "Traceback" not in told
    assert len(trials(folder)) < 16
    the_rest(heald, folder, finished(trials(folder)))
