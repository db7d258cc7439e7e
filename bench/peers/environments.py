"""An environment for each tool, created on demand in the cache from pinned requirements."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock

from bench.peers.tools import Tool
from hw import cache, processes
from hw.errors import InputError

#: Python versions to look for, best first.
VERSIONS = ((3, 12), (3, 13), (3, 11))


def environment(tool: Tool, say: Callable[[str], None]) -> Path:
    """The Python of a tool's environment, which is created if it does not exist for these requirements."""
    python = python_for(tool.python)
    key = cache.fingerprint([tool.requirements.read_text("utf-8"), str(python)])[:12]
    root = cache.directory() / "peers" / f"{tool.name}-{key}"
    found = root / "bin" / "python"
    root.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{root}.lock"):
        if not found.exists():
            say(f"{tool.title}: makes its environment")
            part = Path(tempfile.mkdtemp(prefix=f"{root.name}.part-", dir=root.parent))
            try:
                _make(tool, python, part)
                # Scripts of a virtual environment contain its path; only its Python is used, which does not.
                part.rename(root)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return found


def _make(tool: Tool, python: Path, root: Path) -> None:
    commands = (
        [str(python), "-m", "venv", str(root)],
        [str(root / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(tool.requirements)],
    )
    for command in commands:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
            code = processes.run(command, stdout=log, stderr=log)
            log.seek(0)
            lines = [line for line in log if "ERROR" in line.upper()]
        if code:
            raise InputError(
                f"{tool.title}: {tool.requirements.name} must install with {python}, but "
                f"{(lines or ['it fails'])[-1].strip()} (no network? leave the tool out: --tools)"
            )


def python_for(oldest: tuple[int, int]) -> Path:
    """A Python of at least this version: this one, one on the path, or one of pyenv's."""
    if sys.version_info[:2] >= oldest:
        return Path(sys.executable)
    for version in VERSIONS:
        for path in _candidates(version):
            if version >= oldest and _runs(path):
                return path
    needed = ".".join(map(str, oldest))
    raise InputError(
        f"Python {needed} or newer must be on the path as python{needed} or in pyenv, found none: "
        "install it, or leave the tool out (--tools)"
    )


def _candidates(version: tuple[int, int]) -> Iterator[Path]:
    name = ".".join(map(str, version))
    on_path = shutil.which(f"python{name}")
    if on_path:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{name}.*/bin/python"))


def _runs(python: Path) -> bool:
    """Whether it starts: pyenv puts names on the path for versions that are not selected."""
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    return False
