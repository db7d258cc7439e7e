"""Starts other programs, and handles the signals that end them together with this one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

#: Signals that end a command: from Ctrl-C, from `kill` and `timeout`, from a closed terminal.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds in which further signals do not interrupt the cleanup; a second one often follows the first.
TIDYING = 2.0
#: Seconds after which a process that still runs is signalled again: Python loses exceptions raised in a
#: destructor.
AGAIN = 10.0


class Ended(KeyboardInterrupt):
    """A signal asked this process to end; `number` is that signal's."""

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number

    def __reduce__(self) -> tuple[type[Ended], tuple[int]]:
        return type(self), (self.number,)


@dataclass
class _State:
    """The state of this process's signal handling."""

    running: set[subprocess.Popen[Any]] = field(default_factory=set)
    held: int = 0
    pending: int | None = None
    last: float = -TIDYING
    asked: int | None = None
    again: threading.Timer | None = None
    idle: Callable[[int], object] | None = None


_state = _State()


def install(numbers: Sequence[int] = ENDING, idle: Callable[[int], object] | None = None) -> None:
    """Makes these signals end all started programs, and then raise `Ended` in the main thread.

    A signal that this process was told to ignore (`nohup`) stays ignored. `idle` is called first with the
    number of each signal: it ends the process when `Ended` cannot, because foreign code is waiting for work.
    """
    _state.idle = idle
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _state.asked = number
    end_all()
    if _state.idle is not None:
        _state.idle(number)
    if time.monotonic() - _state.last < TIDYING:
        return
    heard()
    _state.again = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
    _state.again.daemon = True
    _state.again.start()
    _state.last = time.monotonic()
    if _state.held and _state.pending is None:
        _state.pending = number
        return
    raise Ended(number)


def asked() -> int | None:
    """The signal that asked this process to end, even if Python lost the corresponding `Ended`."""
    return _state.asked


def heard() -> None:
    """Acknowledges a signal whose handling may take time, so that it is not raised again."""
    if _state.again is not None:
        _state.again.cancel()


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Delays signals: one that comes during the block ends this process only after the block.

    The next signal, after `TIDYING` seconds, ends the block too, because it may be waiting forever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.held += 1
    try:
        yield
    finally:
        _state.held -= 1
        if not _state.held and (number := _state.pending) is not None:
            _state.pending, _state.last = None, time.monotonic()
            raise Ended(number)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Processes started in the block never receive an interrupt; their parent ends them.

    They must call `ignore_interrupts` once they run.
    """
    resource_tracker.ensure_running()  # if started in the block, it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignores interrupts from now on, including one that came while they were blocked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextlib.contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Runs a program in its own process group: neither it nor its children outlive the block.

    `options` are those of `subprocess.Popen`, which raises the same errors.
    """
    process = None
    try:
        with held():
            process = subprocess.Popen(command, start_new_session=True, **options)
            _state.running.add(process)
        if _state.asked is not None:  # the signal came in another thread, before this program was registered
            end(process)
        yield process
    finally:
        if process is not None:
            end(process)
            _state.running.discard(process)


def run(command: Sequence[str], **options: Any) -> int:
    """The exit code of a program that runs to its end; see `started`."""
    with started(command, **options) as process:
        ended(process)
    return process.returncode


def ended(process: subprocess.Popen[Any], seconds: float | None = None) -> bool:
    """Whether a program ended within this many seconds; without a limit, waits for it.

    Unlike `wait` and `poll` of the program, this lets `end` kill what it started and left behind: until then,
    its number, which is also that of its group, cannot be reused.
    """
    limit = time.monotonic() + (seconds or 0.0)
    how = os.WEXITED | os.WNOWAIT | (0 if seconds is None else os.WNOHANG)
    with contextlib.suppress(ChildProcessError):  # its exit code was already collected
        while os.waitid(os.P_PID, process.pid, how) is None:
            if time.monotonic() >= limit:
                return False
            time.sleep(0.01)
    return True


def end(process: subprocess.Popen[Any]) -> None:
    """Kills a program and all its children, even if it has ended itself (`ended`)."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_all() -> None:
    """Kills every running program and its children."""
    for process in list(_state.running):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
