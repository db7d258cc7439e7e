"""A slice of the hostile inputs and kills that `bench.hostile` and `bench.kills` go through."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def measured(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What a measurement says; inputs that fail are kept in its working directory."""
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_hostile_inputs_end_in_one_line() -> None:
    ended = measured("bench.hostile", "--count", "10", "--seed", "3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("10 inputs: ")


@pytest.mark.slow
def test_hostile_inputs_by_the_thousand() -> None:
    ended = measured("bench.hostile", "--count", "1000", "--seed", "4", "--jobs", "2")
    assert ended.returncode == 0, ended.stdout


@pytest.mark.slow
def test_kills_leave_nothing_behind() -> None:
    ended = measured("bench.kills", "--count", "10")
    assert ended.returncode == 0, ended.stdout
