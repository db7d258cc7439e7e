"""What the Makefile starts ends with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: A job that starts another process, as pip does, and writes the numbers of both.
PROBE = f"""
include {ROOT}/Makefile

probe:
	$(call working,waiting,sleep 600 & echo $$! > inner && echo $$BASHPID > outer && wait)

early:
	$(call working,waiting,kill -TERM $$$$; sleep 600 & echo $$! > inner; wait)

said:
	$(call working,WHAT,echo done; exit 3)
"""


def make(folder: Path, target: str) -> subprocess.Popen[str]:
    (folder / "probe.mk").write_text(PROBE)
    command = ["make", "-f", "probe.mk", target]
    # Tests may run under another `make`, whose messages would come in between.
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS")}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=alone,
        stdout=-1,
        stderr=-1,
        text=True,
        start_new_session=True,
        # Jobs in the background ignore the signal, and so would all that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def ends(process: int) -> bool:
    """Whether the process has ended, or does so in a minute: one that was killed takes a moment to go."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    with os.fdopen(handle) as watched:
        return bool(select.select([watched], [], [], 60)[0])


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_all_that_a_job_started(tmp_path: Path, ending: signal.Signals) -> None:
    pipes = [tmp_path / "inner", tmp_path / "outer"]
    for pipe in pipes:
        os.mkfifo(pipe)  # To read one waits until the job has written its number.
    started = make(tmp_path, "probe")
    processes = [int(pipe.read_text(encoding="utf-8")) for pipe in pipes]
    if ending is signal.SIGTERM:
        started.terminate()
    else:
        os.killpg(started.pid, ending)  # a terminal sends it to all in the foreground
    started.communicate(timeout=60)
    assert started.returncode != 0
    assert all(map(ends, processes))


def test_a_signal_ends_a_job_that_has_only_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("trap 'sleep 0.05' DEBUG\n")  # before each command of the shell that started the job
    monkeypatch.setenv("BASH_ENV", str(slow))
    os.mkfifo(tmp_path / "inner")
    started = make(tmp_path, "early")
    reader = os.open(tmp_path / "inner", os.O_RDONLY | os.O_NONBLOCK)
    started.communicate(timeout=60)
    assert started.returncode != 0
    written = os.read(reader, 100).split()
    os.close(reader)
    assert all(ends(int(number)) for number in written)


def test_a_job_says_what_it_is_and_gives_its_exit_code(tmp_path: Path) -> None:
    out, err = make(tmp_path, "said").communicate()
    assert out == "done\n"
    assert err.splitlines()[0] == "make: WHAT"
    assert "Error 3" in err
    assert err.count("\n") == 2
