"""Hostile inputs to all commands and kinds of files: none may end in exit code 70, a signal or a hang.

    python -m bench.hostile --count 4000 --jobs 2

Each input runs in its own process, with 30 seconds (`--seconds`) and 2 GiB of memory. Correct exit codes are
0, 1, 2 and, if the reader of the output went away, 141; exit code 2 comes with one line of at most 300
characters. Failing inputs are kept in `build/hostile`. Exit code 1 if there are any.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.hostile_cases import MAKERS, case, good_files, makers_of
from bench.hostile_inputs import Case, Good

KEPT = Path("build/hostile")
MEMORY = 2 << 30
LONGEST = 300
GONE = "reader gone"


@dataclass(frozen=True)
class Ended:
    """How a command ended; `code` is negative for a signal; `late` means that it had to be killed.

    `stdout` is where its output went (`Case`).
    """

    code: int
    late: bool
    seconds: float
    memory: int
    error: str
    stdout: str

    @property
    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if self.late:
            return "no end"
        if self.code not in (0, 1, 2) and (self.code, self.stdout) != (141, GONE):
            return f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        if self.memory > MEMORY or "memory does not suffice" in self.error:
            return "memory"
        if "Traceback (most" in self.error:
            return "traceback"
        lines = [line for line in self.error.splitlines() if line.startswith("heald: ")]
        if self.code == 2 and len(lines) != 1:
            return f"{len(lines)} lines with exit code 2"
        return "long line" if any(len(line) > LONGEST for line in lines) else ""


def ended(given: Case, folder: Path, limit: float) -> Ended:
    """Run a command for at most `limit` seconds, in a forked process that shares the loaded modules."""
    for name, data in given.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    os.mkfifo(folder / "pipe")
    sys.stdout.flush()
    begin = time.monotonic()
    pid = os.fork()
    if not pid:
        _become(given, folder)
    watched = os.pidfd_open(pid)
    try:
        there = select.select([watched], [], [], limit)[0]
        seconds = time.monotonic() - begin
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
    finally:
        os.close(watched)
    said = (folder / ".stderr").read_bytes().decode(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, not there, seconds, used.ru_maxrss << 10, said, given.stdout)


def _become(given: Case, folder: Path) -> None:
    """Turn this process, a fork of the measuring one, into the command."""
    code = 99
    try:
        os.setsid()
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(os.open(".stderr", os.O_WRONLY | os.O_CREAT), 2)
        if given.stdout == "closed":
            os.close(1)
        elif given.stdout == GONE:
            near, far = os.pipe()
            os.close(near)
            os.dup2(far, 1)
        else:
            flags = os.O_WRONLY | os.O_CREAT
            os.dup2(os.open("/dev/full" if given.stdout == "full" else ".stdout", flags), 1)
        open_again(given.stdout != "closed")
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        from heald.cli import main

        main(given.arguments)
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def open_again(stdout: bool) -> None:
    """Reopen Python's streams on the current descriptors."""
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False) if stdout else None  # type: ignore[assignment]
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _work(seed: int, numbers: range, good: Good, kinds: Sequence[str], seconds: float, out: Any) -> None:
    """Run inputs one after the other, `seconds` each, and write how they ended as lines of JSON."""
    makers = makers_of(kinds)
    for number in numbers:
        made = case(seed, number, good, makers)
        folder = Path(tempfile.mkdtemp(prefix="hostile-"))
        result = ended(made, folder, seconds)
        if result.fault:
            kept = KEPT / f"{seed}-{number}"
            shutil.rmtree(kept, ignore_errors=True)
            (folder / "pipe").unlink()
            shutil.copytree(folder, kept, symlinks=True)
            (kept / "COMMAND").write_text(
                json.dumps(made.arguments) + "\n" + made.stdout + "\n", encoding="utf-8"
            )
        shutil.rmtree(folder, ignore_errors=True)
        line = [
            number,
            made.kind,
            result.code,
            result.fault,
            result.seconds,
            result.memory,
            made.arguments,
            result.error[-400:],
        ]
        out.write(json.dumps(line) + "\n")
        out.flush()


@click.command()
@click.option("--count", default=4000, show_default=True, help="Inputs.")
@click.option("--seed", default=0, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first input.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([make.__name__[1:] for make in MAKERS]),
    help="Default: all.",
)
@click.option("--jobs", default=1, show_default=True, help="Inputs at a time.")
@click.option("--seconds", "limit", default=30.0, show_default=True, help="Seconds that an input may take.")
def main(count: int, seed: int, first: int, kinds: tuple[str, ...], jobs: int, limit: float) -> None:
    """Try to break the command line; exit code 1 if that succeeds."""
    KEPT.mkdir(parents=True, exist_ok=True)
    good = good_files()
    pipes = []
    for job in range(jobs):
        near, far = os.pipe()
        if not os.fork():
            os.close(near)
            _work(
                seed,
                range(first + job, first + count, jobs),
                good,
                kinds,
                limit,
                os.fdopen(far, "w", encoding="utf-8"),
            )
            os._exit(0)
        os.close(far)
        pipes.append(os.fdopen(near, encoding="utf-8"))
    faults: list[str] = []
    codes: Counter[str] = Counter()
    slowest, largest, done, begin = (0.0, 0), (0, 0), 0, time.monotonic()
    while pipes:
        for pipe in select.select(pipes, [], [])[0]:
            line = pipe.readline()
            if not line:
                pipes.remove(pipe)
                continue
            number, kind, code, fault, seconds, memory, arguments, error = json.loads(line)
            done += 1
            codes[f"exit code {code}"] += 1
            slowest, largest = max(slowest, (seconds, number)), max(largest, (memory, number))
            if fault:
                faults.append(fault)
                last = error.strip().splitlines()[-1:] or [""]
                click.echo(f"{number} ({kind}): {fault}: {' '.join(arguments)[:100]!r}: {last[0][:200]}")
            if done % 100 == 0:
                click.echo(
                    f"{done} of {count} inputs in {time.monotonic() - begin:.0f} s, {len(faults)} failed",
                    err=True,
                )
    counts = ", ".join(f"{n:,} with {name}" for name, n in sorted(codes.items()))
    click.echo(
        f"{done:,} inputs: {counts}; {len(faults)} failed; slowest {slowest[0]:.1f} s (number {slowest[1]}), "
        f"largest {largest[0] >> 20} MiB (number {largest[1]})"
    )
    sys.exit(1 if faults or done < count else 0)


if __name__ == "__main__":
    main()
