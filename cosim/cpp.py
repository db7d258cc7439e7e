"""Backend `cpp`: a plain C++ loop around the verilated machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cosim import verdict
from cosim.build import Build
from cosim.job import Job, Outcome
from cosim.session import LOG, collect, session
from hw.config import MachineConfig


class CppSimulator:
    """Runs jobs in one process of the plain program; see `cosim.job.Simulator`."""

    def __init__(self, config: MachineConfig, build: Build, waves: str | None = None):
        self.config = config
        self.build_seconds = build.seconds
        self._program = build.plain
        self._waves = waves

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the jobs in order; raises `RuntimeError` when one does not end as the contract says."""
        with session(self.config, jobs) as root:
            command = [
                str(self._program),
                f"+directory={root}",
                f"+jobs={len(jobs)}",
                *wave_option(self._waves),
            ]
            with (root / verdict.FILE).open("w") as out, (root / LOG).open("w") as log:
                code = subprocess.run(command, stdout=out, stderr=log, check=False).returncode
            return collect(root, self.config, jobs, code)


def wave_option(waves: str | None) -> list[str]:
    """The argument that makes a program write waves."""
    return [f"+waves={Path(os.path.abspath(waves))}"] if waves else []
