"""Job files, which the harness reads and writes; each job has a directory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cosim import host, images, observe, verdict
from cosim.job import Job, Outcome
from hw.config import MachineConfig
from hw.errors import InputError, surroundings_in

LOG = "log"


@contextlib.contextmanager
def session(config: MachineConfig, jobs: Sequence[Job]) -> Iterator[Path]:
    """A temporary directory with the files of all jobs; it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="heald-") as name:
        root = Path(name)
        for number, job in enumerate(jobs):
            prepare(root / str(number), config, job)
        yield root


def prepare(directory: Path, config: MachineConfig, job: Job) -> None:
    """Write script, image and settings of a job. Raises `InputError` for what the machine cannot take."""
    directory.mkdir()
    images.write_memory(directory / "memory.bin", job.placed().memory)
    script = np.array([entry.word() for entry in host.script(config, job)], np.uint64)
    settings = np.array([*job.settings.words(), observe.quiet_limit(job)], np.uint32)
    for name, words in (("script", script), ("settings", settings)):
        (directory / f"{name}.hex").write_bytes(images.hex_lines(words))


def collect(root: Path, config: MachineConfig, jobs: Sequence[Job], code: int) -> list[Outcome]:
    """Collect the outcomes of a run whose process ended with exit code `code`.

    Reads the verdicts, one line per job: number, fault, status, seconds. Raises `InputError` if disk or
    memory was full, and `RuntimeError` if a job did not end or the machine broke the contract of its ports.
    """
    said = [
        path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        for path in (root / verdict.FILE, root / LOG)
    ]
    # The wave writer reports a full disk on standard output, and continues.
    if (cause := surroundings_in("\n".join(said))) is not None:
        raise InputError(f"the simulation could not write its files or get memory: {cause}")
    verdicts = [line.split() for line in said[0].splitlines()]
    for number, (job, (_, fault, _, _)) in enumerate(zip(jobs, verdicts, strict=False)):
        if int(fault):
            raise RuntimeError(f"{job.name} ({number} of this run): {verdict.fault_text(int(fault))}")
    if code or len(verdicts) != len(jobs):
        lines = said[1].splitlines()
        raise RuntimeError(
            f"the simulation ended with code {code} after {len(verdicts)} of {len(jobs)} jobs:\n"
            + "\n".join(lines[-20:])
        )
    return [
        read_outcome(root / str(number), config, job, float(line[3]))
        for number, (job, line) in enumerate(zip(jobs, verdicts, strict=True))
    ]


def read_outcome(directory: Path, config: MachineConfig, job: Job, seconds: float) -> Outcome:
    """The outcome of one job, from its files."""
    records = observe.parse_records((directory / "trace.bin").read_bytes(), config.warps)
    stored = observe.parse_stored((directory / "stored.bin").read_bytes(), config)
    results = np.fromfile(directory / "results.bin", "<u4").tolist()
    dump = np.fromfile(directory / "output.bin", "<u4")
    return observe.outcome(config, job, records, results, dump, seconds, stored)
