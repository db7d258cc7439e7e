"""A small sample of the inputs of `bench.hostile` and the kills of `bench.kills`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.hostile import GONE, Ended
from bench.kills import handles, one, right, started_with

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
    ("code", "starting", "later", "expected"),
    [
        (143, False, 1.0, True),
        (130, False, 1.0, False),
        (-15, True, 0.1, True),
        (-15, False, 0.1, False),  # no handler, or one that fails
        (0, False, 0.1, True),
        (0, False, 5.0, False),  # the signal was lost
        (0, False, None, True),
        (1, False, None, False),
        (143, False, None, False),
    ],
)
def test_exit_codes_are_those_of_signals(
    code: int, starting: bool, later: float | None, expected: bool
) -> None:
    assert right(code, signal.SIGTERM, starting, later) == expected


def test_handlers_of_a_process_are_seen() -> None:
    program = "import signal; signal.signal(signal.SIGHUP, print); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = [handles(process.pid, number) for number in (signal.SIGHUP, signal.SIGTERM)]
        process.kill()
    assert found == [True, False]


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
