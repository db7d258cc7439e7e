"""Backend `verilator`: the Verilated machine under cocotb.

The program is started directly, in the environment that cocotb's runner would set. The runner itself takes
longer to start than a short job takes to run.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import IO

import find_libpython

from cosim import toolchain
from cosim.cpp import CppSimulator
from hw import processes


class VerilatorSimulator(CppSimulator):
    """Runs jobs in one process under cocotb; see `cosim.job.Simulator`."""

    def execute(self, root: Path, jobs: int, arguments: list[str], log: IO[str]) -> int:
        """Run the program on the files of a session; returns its exit code."""
        command, environment = (
            [str(self.build.directory / "cocotb"), *arguments],
            os.environ | _environment(root, jobs),
        )
        return processes.run(command, cwd=root, env=environment, stdout=log, stderr=log)


def _environment(root: Path, jobs: int) -> dict[str, str]:
    """The environment in which cocotb finds Python and the test, and the test finds its jobs."""
    library = find_libpython.find_libpython()
    if library is None:
        raise RuntimeError(f"cocotb needs Python as a shared library, which {sys.executable} does not have")
    # The path of cocotb.simulator; asking cocotb for it would import all of cocotb here.
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
        "HEALD_DIRECTORY": str(root),
        "HEALD_JOBS": str(jobs),
    }
