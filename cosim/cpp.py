"""Backend `cpp`: a plain C++ loop around the Verilated machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from cosim import verdict, wave_files
from cosim.build import Build
from cosim.job import Job, Outcome
from cosim.job_files import LOG, collect, session
from cosim.waves import Waves
from hw import processes
from hw.config import MachineConfig


class CppSimulator:
    """Runs jobs in one process of the plain program; see `cosim.job.Simulator`.

    `scopes` are the scopes of the waves, by their names in the build; empty for the whole machine.
    """

    def __init__(
        self, config: MachineConfig, build: Build, waves: Waves | None = None, scopes: Sequence[str] = ()
    ):
        self.config, self.build = config, build
        self.build_seconds = build.seconds
        self._waves, self._options = waves, list[str]()
        if waves is not None:
            self._options = [f"+waves={Path(os.path.abspath(waves.file))}"]
            self._options += ["+window"] if waves.windowed else []
            self._options += [f"+scopes={','.join(scopes)}"] if scopes else []

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the jobs in order. Raises `RuntimeError` if a job does not end as the contract requires."""
        with session(self.config, jobs) as root:
            for number, job in enumerate(jobs):
                if self._waves is not None and job.predicted is not None:
                    wave_files.write_inputs(root / str(number), self.config, job, self._waves)
            with (root / LOG).open("w") as log:
                code = self.execute(root, len(jobs), [f"+directory={root}", *self._options], log)
            return collect(root, self.config, jobs, code)

    def execute(self, root: Path, jobs: int, arguments: list[str], log: IO[str]) -> int:
        """Run the program on the files of a session; returns its exit code."""
        command = [str(self.build.directory / "plain"), *arguments, f"+jobs={jobs}"]
        with (root / verdict.FILE).open("w") as out:
            return processes.run(command, stdout=out, stderr=log)
