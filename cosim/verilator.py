"""Backend `verilator`: the verilated machine under cocotb.

The program is started directly, with the environment that cocotb's runner would set: the runner itself takes
longer to come up than a short job to run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import find_libpython

from cosim import toolchain
from cosim.build import Build
from cosim.cpp import wave_option
from cosim.job import Job, Outcome
from cosim.session import LOG, collect, session
from hw.config import MachineConfig


class VerilatorSimulator:
    """Runs jobs in one process under cocotb; see `cosim.job.Simulator`."""

    def __init__(self, config: MachineConfig, build: Build, waves: str | None = None):
        self.config = config
        self.build_seconds = build.seconds
        self._program = build.cocotb
        self._waves = waves

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the jobs in order; raises `RuntimeError` when one does not end as the contract says."""
        with session(self.config, jobs) as root:
            command = [str(self._program), f"+directory={root}", *wave_option(self._waves)]
            environment = os.environ | _environment(root, len(jobs))
            with (root / LOG).open("w") as log:
                code = subprocess.run(
                    command, cwd=root, env=environment, stdout=log, stderr=log, check=False
                ).returncode
            return collect(root, self.config, jobs, code)


def _environment(root: Path, jobs: int) -> dict[str, str]:
    """What cocotb needs to find Python and the test, and the test to find its jobs."""
    library = find_libpython.find_libpython()
    if library is None:
        raise RuntimeError(f"cocotb needs Python as a shared library, which {sys.executable} does not have")
    # cocotb.simulator by path: asking cocotb for it would import all of cocotb here.
    package = toolchain.find().cocotb_libraries.parent
    entry = next(path for end in EXTENSION_SUFFIXES if (path := package / f"simulator{end}").exists())
    return {
        "COCOTB_TOPLEVEL": "harness",
        "COCOTB_TEST_MODULES": "cosim.cocotb_bench",
        "COCOTB_RESULTS_FILE": str(root / "results.xml"),
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
        "COCOTB_REWRITE_ASSERTION_FILES": "",
        "COCOTB_LOG_LEVEL": "WARNING",
        "GPI_LOG_LEVEL": "WARNING",
        "COCOTB_ANSI_OUTPUT": "0",
        "TOPLEVEL_LANG": "verilog",
        "PYGPI_PYTHON_BIN": sys.executable,
        "GPI_USERS": f"{library};{entry},initialize",
        "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
        "JACQUARD_DIRECTORY": str(root),
        "JACQUARD_JOBS": str(jobs),
    }
