"""The process of a simulated bus: if it ends, the error includes its last output."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cosim.bus.process import Process


def program(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_program_that_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with code 3:\nno such board"):
        Process(program(tmp_path, "echo no such board; exit 3"), "tests.nothing", {})


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Process(tmp_path / "nothing", "tests.nothing", {})


def test_a_program_that_ends_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that it comes up is made here; then it dies in the middle of a command."""
    monkeypatch.setattr(Process, "_answer", lambda self: None)
    process = Process(program(tmp_path, "exec sleep 60"), "tests.nothing", {})
    monkeypatch.undo()
    assert isinstance(process._process, subprocess.Popen)
    process._process.kill()
    process._process.wait()
    with pytest.raises(RuntimeError, match="ended with code -9"):
        process.call("read", 0, 1)
    process.close()
