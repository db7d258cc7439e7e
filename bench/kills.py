"""Commands ended by signals at random moments: no process may keep running, and no partial file may stay.

    python -m bench.kills --count 50

Each run begins with an empty cache, so it generates Verilog, verilates and compiles it, simulates, and writes
a report. SIGTERM, SIGHUP or SIGINT comes after a random time. The exit code must then be that of the signal
(0 only if the command had finished its work). No started process may be left, and no temporary file in the
cache, beside the report or in TMPDIR. Exit code 1 if one of these fails.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
MARK = "HEALD_KILLED"
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
#: Seconds that a command may take to clean up.
PATIENCE = 20.0
#: Seconds after a signal in which a command may still succeed: it had finished when the signal came.
ENDING = 0.3
#: Seconds in which processes told to end must have ended.
LEAVING = 0.5
#: The command: everything that starts a process or writes a file.
COMMAND = (
    *("run", "--matmul", "5x6x7", "--hw", "test", "--set", "cgra=none", "--sim", "verilator"),
    *("--report", "report.html", "--outputs", "results.npz", "--waves", "waves.fst"),
)
WRITTEN = ("report.html", "results.npz", "waves.fst", "waves.gtkw", "waves.sucl")


def started_with(mark: str) -> list[int]:
    """Processes with this mark in their environment, which child processes inherit."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


def left_of(mark: str) -> list[int]:
    """Processes with this mark that still run after a moment."""
    limit = time.monotonic() + LEAVING
    while (left := started_with(mark)) and time.monotonic() < limit:
        time.sleep(0.05)
    return left


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill a command and everything it started."""
    process.kill()
    for pid in started_with(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    left_of(mark)


def handles(pid: int, number: int) -> bool:
    """Whether a process handles a signal; while Python starts and imports, none does."""
    found = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return bool(found and int(found[1], 16) >> (number - 1) & 1)


def right(code: int, wanted: int, starting: bool, later: float | None) -> bool:
    """Whether an exit code is that of a signal, after which the command ended `later` seconds later.

    While the command is `starting`, the signal itself may end it, which shells report with the same code. If
    `later` is None, the command ended before the signal.
    """
    if later is None:
        return code == 0
    if code == -wanted:
        return starting
    return code == 128 + wanted or (code == 0 and later < ENDING)


def one(number: int, seed: int, longest: float) -> tuple[str, str]:
    """Which signal ended a run and when, and what is wrong then (empty if nothing is)."""
    r = random.Random(f"{seed}/{number}")
    wanted, delay = r.choice(SIGNALS), r.uniform(0.0, longest)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        cache, work, temporary = (Path(name) / each for each in ("cache", "work", "tmp"))
        for folder in (cache, work, temporary):
            folder.mkdir()
        mark = f"{os.getpid()}-{number}"
        environment = os.environ | {
            **{"HEALD_CACHE": str(cache), "TMPDIR": str(temporary), MARK: mark, "PYTHONPATH": str(ROOT)},
        }
        with (Path(name) / "said").open("w+", encoding="utf-8") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "heald", *COMMAND],
                cwd=work,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=said,
                # A shell makes background jobs ignore SIGINT, and `nohup` makes them ignore SIGHUP.
                preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in SIGNALS] and None,
            )
            later, starting = None, False
            try:
                code = process.wait(delay)
                what = f"ended before {wanted.name} at {delay:.1f} s"
            except subprocess.TimeoutExpired:
                # Output comes from the command itself, which then has its handlers.
                starting = not os.fstat(said.fileno()).st_size and not handles(process.pid, wanted)
                process.send_signal(wanted)
                begin = time.monotonic()
                try:
                    code = process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    end(process, mark)
                    return f"{wanted.name} at {delay:.1f} s", f"did not end in {PATIENCE:.0f} s"
                later = time.monotonic() - begin
                what = f"{wanted.name} at {delay:.1f} s, ended {later:.2f} s later"
            said.seek(0)
            lines = said.read().splitlines()
        faults = []
        if not right(code, wanted, starting, later):
            faults.append(f"exit code {code}")
        if any("Traceback" in line for line in lines):
            faults.append(f"traceback: {lines[-1]}")
        faults += [f"process {pid} goes on" for pid in left_of(mark)]
        faults += [f"{p.relative_to(name)} is left" for p in temporary.rglob("*")]
        faults += [f"{p.relative_to(name)} is left" for p in cache.rglob("*.part-*")]
        faults += [f"{p.relative_to(name)} is left" for p in work.iterdir() if p.name not in WRITTEN]
        return what, "; ".join(faults)


@click.command()
@click.option("--count", default=50, show_default=True, help="Runs.")
@click.option("--seed", default=0, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first run.")
@click.option("--longest", default=30.0, show_default=True, help="Seconds up to which the signal comes.")
def main(count: int, seed: int, first: int, longest: float) -> None:
    """End commands at random moments; exit code 1 if one leaves something behind."""
    failed = ended = 0
    for number in range(first, first + count):
        what, fault = one(number, seed, longest)
        failed += bool(fault)
        ended += not what.startswith("ended before")
        click.echo(f"{number}: {what}{': ' + fault if fault else ''}")
    click.echo(f"{count} runs, {ended} of them ended by a signal: {failed} left something behind")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
