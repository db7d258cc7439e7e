"""A slice of the hostile inputs and kills that `bench.hostile` and `bench.kills` go through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.hostile import GONE, Ended
from bench.kills import one, right, started_with

ROOT = Path(__file__).parents[2]


def measured(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What a measurement says; inputs that fail are kept in its working directory."""
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_hostile_inputs_end_in_one_line() -> None:
    # The 30 s of the command are for a machine that does nothing else.
    ended = measured("bench.hostile", "--count", "10", "--seed", "3", "--seconds", "120")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("10 inputs: ")


def test_only_an_input_without_a_reader_may_end_for_want_of_one() -> None:
    faults = [Ended(141, False, 1.0, 1, "", stdout).fault for stdout in (GONE, "file", "full", "closed")]
    assert faults == ["", *["exit code 141"] * 3]
    assert Ended(0, True, 30.0, 1, "", "file").fault == "no end"


@pytest.mark.parametrize(
    ("code", "delay", "later", "expected"),
    [
        (143, 10.0, 1.0, True),
        (130, 10.0, 1.0, False),
        (-15, 1.0, 0.1, True),
        (-15, 10.0, 0.1, False),  # no handler
        (0, 10.0, 0.1, True),
        (0, 10.0, 5.0, False),  # the signal was lost
        (0, 10.0, None, True),
        (1, 10.0, None, False),
        (143, 10.0, None, False),
    ],
)
def test_exit_codes_are_those_of_signals(
    code: int, delay: float, later: float | None, expected: bool
) -> None:
    assert right(code, signal.SIGTERM, delay, later) == expected


def test_a_command_that_does_not_end_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\ntrap '' TERM HUP INT\nsleep 60 &\nwait\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr("bench.kills.PATIENCE", 0.5)
    assert one(0, 0, 2.0)[1] == "did not end in 0 s"
    assert not started_with(f"{os.getpid()}-0")


@pytest.mark.slow
def test_hostile_inputs_by_the_thousand() -> None:
    ended = measured("bench.hostile", "--count", "1000", "--seed", "4", "--jobs", "2")
    assert ended.returncode == 0, ended.stdout


@pytest.mark.slow
def test_kills_leave_nothing_behind() -> None:
    ended = measured("bench.kills", "--count", "10")
    assert ended.returncode == 0, ended.stdout
