"""The process of a cocotb simulation, and the commands that it executes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosim.bus.commands import VARIABLE
from cosim.device.bus import BusError
from cosim.verilator import _environment
from hw import processes


class Process:
    """A program under cocotb whose test `module` obeys commands (`cosim.bus.commands`).

    `settings` are environment variables, `arguments` are passed to the program. Raises `RuntimeError` with
    the end of its log if it does not start.
    """

    def __init__(
        self, program: Path, module: str, settings: Mapping[str, str], arguments: tuple[str, ...] = ()
    ):
        with contextlib.ExitStack() as undo:
            root = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="heald-")))
            self._log = root / "log"
            near, far = multiprocessing.Pipe()
            self._connection = undo.enter_context(near)
            environment = os.environ | _environment(root, 0) | {"COCOTB_TEST_MODULES": module}
            environment |= {**settings, VARIABLE: str(far.fileno())}
            with far, self._log.open("w") as log:
                self._process = undo.enter_context(
                    processes.started(
                        [str(program), *arguments],
                        cwd=root,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=[far.fileno()],
                    )
                )
            undo.callback(self._end)
            self._answer()
            self._undo = undo.pop_all()

    def call(self, name: str, *arguments: Any) -> Any:
        """Run a command and return its result.

        Raises `BusError` if the command fails, and `RuntimeError` if the process ends.
        """
        try:
            self._connection.send((name, arguments))
        except OSError:
            raise self._failed() from None
        return self._answer()

    def _answer(self) -> Any:
        try:
            good, value = self._connection.recv()
        except (EOFError, OSError):
            raise self._failed() from None
        if not good:
            raise BusError(f"the simulated bus: {value}")
        return value

    def _failed(self) -> RuntimeError:
        hung = not processes.ended(self._process, 5)
        processes.end(self._process)
        code = "none, it hung" if hung else self._process.returncode
        lines = self._log.read_text(errors="replace").splitlines()
        return RuntimeError(f"the simulation ended with code {code}:\n" + "\n".join(lines[-20:]))

    def close(self) -> None:
        """End the process."""
        self._undo.close()

    def _end(self) -> None:
        self._connection.close()
        processes.ended(self._process, 10)
