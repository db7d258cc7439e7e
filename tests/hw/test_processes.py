"""Child processes end with their parent."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hw import processes

ROOT = Path(__file__).parents[2]
#: A shell that starts a program and waits for it; the arguments are where both write their numbers.
NESTED = "sleep 600 & echo $! $$ > {place}; wait"


def gone(number: int, tries: int = 100) -> bool:
    """Whether a process has ended; it may take a moment."""
    for _ in range(tries):
        try:
            if Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def numbers_in(place: Path) -> list[int]:
    for _ in range(200):
        if place.exists() and place.read_text(encoding="utf-8").endswith("\n"):
            return [int(word) for word in place.read_text(encoding="utf-8").split()]
        time.sleep(0.05)
    raise AssertionError("nothing was started")


def test_a_program_that_runs_to_its_end_gives_its_code() -> None:
    assert processes.run(["sh", "-c", "exit 3"]) == 3


def test_neither_a_program_nor_what_it_starts_outlives_the_block(tmp_path: Path) -> None:
    place = tmp_path / "numbers"
    with pytest.raises(RuntimeError), processes.started(["sh", "-c", NESTED.format(place=place)]):
        numbers = numbers_in(place)
        raise RuntimeError
    assert all(map(gone, numbers))


def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    place = tmp_path / "numbers"
    command = ["sh", "-c", f"sleep 600 & echo $! $$ > {place}; exit 3"]
    assert processes.run(command) == 3
    assert all(map(gone, numbers_in(place)))
    place.unlink()
    with processes.started(command) as process:
        assert processes.ended(process, 20)
        numbers = numbers_in(place)
        assert not gone(numbers[0], tries=1)
    assert process.returncode == 3
    assert all(map(gone, numbers))


def test_a_program_that_goes_on_has_not_ended() -> None:
    with processes.started(["sleep", "600"]) as process:
        assert not processes.ended(process, 0.05)
    assert process.returncode == -signal.SIGKILL
    assert processes.ended(process, 0)


def test_the_end_of_a_worker_can_be_sent() -> None:
    sent = pickle.loads(pickle.dumps(processes.Ended(signal.SIGTERM)))
    assert isinstance(sent, processes.Ended)
    assert (sent.number, str(sent)) == (signal.SIGTERM, "ended by SIGTERM")


@pytest.mark.parametrize("number", processes.ENDING)
def test_a_signal_ends_all_and_tidies_up(tmp_path: Path, number: int) -> None:
    place = tmp_path / "numbers"
    code = f"""if True:
        import sys, tempfile
        from concurrent.futures import ThreadPoolExecutor
        from hw import processes
        processes.install()
        command = ["sh", "-c", {NESTED.format(place=place)!r}]
        try:
            with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}), ThreadPoolExecutor() as pool:
                pool.submit(processes.run, command).result()
        except processes.Ended as error:
            sys.exit(128 + error.number)
    """
    # A shell that runs tests in the background has its jobs ignore SIGINT, and nohup has them ignore SIGHUP.
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL) and None,
    ) as process:
        numbers = numbers_in(place)
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    assert all(map(gone, numbers))
    assert list(tmp_path.iterdir()) == [place]


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Signals of this process as a command handles them."""
    monkeypatch.setattr(processes, "_state", processes._State())
    before = {number: signal.getsignal(number) for number in processes.ENDING}
    processes.install()
    yield
    processes.heard()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_steps_that_belong_together_are_not_torn_apart() -> None:
    done: list[str] = []
    with pytest.raises(processes.Ended) as raised:
        with processes.held():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            done.append("both")
        done.append("too far")
    assert raised.value.number == signal.SIGTERM
    assert done == ["both"]
    timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    assert sum(not each.finished.is_set() for each in timers) == 1


@pytest.mark.usefixtures("signals")
def test_steps_that_never_end_are_ended_by_a_later_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TIDYING", 0.0)
    done: list[str] = []
    with pytest.raises(processes.Ended), processes.held():
        signal.raise_signal(signal.SIGTERM)
        done.append("first")
        signal.raise_signal(signal.SIGTERM)
        done.append("second")
    assert done == ["first"]


def test_who_is_started_while_interrupts_are_blocked_never_hears_one() -> None:
    code = """if True:
        import os, signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        from hw import processes
        processes.ignore_interrupts()
        os.kill(os.getpid(), signal.SIGINT)
    """
    with processes.interrupts_blocked(), subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as process:
        assert process.wait(20) == 0
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as process:
        assert process.wait(20) == -signal.SIGINT
