"""Messages are one short line, whatever happens around a command."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from heald.cli.messages import LONGEST, shortened
from hw import processes

ROOT = Path(__file__).parents[2]


def shell(text: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """What a shell makes of a line in which `heald` is this one; standard error is captured."""
    line = text.replace("heald", f"'{sys.executable}' -m heald")
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False, timeout=60, **options
    )


def test_short_messages_stay_and_become_one_line() -> None:
    assert shortened("a.onnx: must be\n  a model\n\n") == "a.onnx: must be a model"
    assert shortened("\x1b[31mred\0") == r"\x1b[31mred\x00"
    assert shortened("caf\udce9") == "caf\udce9"


def test_what_is_quoted_at_length_is_cut_and_the_rest_stays() -> None:
    found = shortened(f"--hw must be a preset, not '{'A' * 5_000_000}' (heald config list)")
    assert len(found) <= LONGEST
    assert found.startswith("--hw must be a preset, not 'AAAA")
    assert found.endswith("AAAA' (heald config list)")
    assert "A...A" in found


def test_what_to_do_stays_whole_and_paths_lose_their_beginning() -> None:
    path, hint = (
        f"/home/{'deep/' * 40}model.onnx",
        "; 12 more are refused; quantise it too, or --allow-host does",
    )
    found = shortened(f"heald: {path}: node {'block/' * 20}MatMul (MatMul): {'must be so ' * 9}{hint}")
    assert len(found) <= LONGEST
    assert re.match(
        r"heald: \.\.\.[dep/]+/model\.onnx: node \.\.\.[block/]+MatMul \(MatMul\): must be so", found
    )
    assert found.endswith(f"must be so {hint}")
    found = shortened(f"heald: {path}: {'word ' * 200}{hint}")
    assert (len(found), found.endswith(f"...{hint}")) == (LONGEST, True)


def test_many_words_lose_their_middle() -> None:
    found = shortened("begin " + "word " * 1000 + "end")
    assert len(found) == LONGEST
    assert found.startswith("begin word")
    assert found.endswith("word end")


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("heald isa > /dev/full", 2, "heald: standard output: cannot be read or written: No space left on"),
        (
            "heald fabric >&- <&-",
            2,
            "heald: standard output: cannot be read or written: Bad file descriptor\n",
        ),
        ("heald isa >/dev/full 2>&-", 2, ""),
        ("heald isa | true; exit ${PIPESTATUS[0]}", 141, ""),
    ],
)
def test_standard_output_that_cannot_be_written(line: str, code: int, told: str) -> None:
    ended = shell(line)
    assert ended.returncode == code
    assert ended.stderr.startswith(told)
    assert ended.stderr.count("\n") == bool(told)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OSError(errno.ENOSPC, "No space left", "/x"), 2, "/x: cannot be read or written: No space left"),
        (MemoryError("8 TiB"), 2, "out of memory: 8 TiB"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), 70, "internal error: FileNotFoundError"),
        (RecursionError("deep"), 70, "internal error: RecursionError"),
        (EOFError("early"), 70, "internal error: EOFError"),
        (click.UsageError("a\nb" * 1000), 2, "a ba ba"),
    ],
)
def test_only_the_surroundings_are_blamed_for_what_they_do(
    heald: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, told: str
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("heald.cli.isa.isa_page", fail)
    ended = heald("isa")
    assert ended.code == code
    assert ended.err.startswith(f"heald: {told}")
    assert ended.err.count("\n") == 1
    assert len(ended.err) <= LONGEST + 1


def test_tools_that_a_signal_killed_are_not_an_error_of_their_own(
    heald: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("g++ failed with code -9")

    monkeypatch.setattr("heald.cli.isa.isa_page", fail)
    monkeypatch.setattr(processes, "_state", processes._State(asked=signal.SIGTERM))
    ended = heald("isa")
    assert (ended.code, ended.err) == (143, "heald: ended by SIGTERM\n")


def test_every_exit_code_is_in_the_help(heald: Any) -> None:
    help_text = heald("--help").out
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for code in (0, 1, 2, 70, 129, 130, 141, 143):
        assert f" {code} " in help_text
        assert f"| {code} |" in page


def test_a_name_that_is_no_unicode_is_told(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.onnx"
    ended = subprocess.run(
        [sys.executable, "-m", "heald", "run", path], cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr.endswith(b"/caf?.onnx: no such file\n")
