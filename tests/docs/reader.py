"""A reader of pages, who saves files, runs commands and snippets, and compares output."""

from __future__ import annotations

import linecache
import os
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.docs import descriptions
from tests.docs.blocks import ROOT, Block, blocks
from tests.docs.lines import check
from tests.heald.conftest import Ended

#: Stands for lines, or the rest of a line, that a page leaves out.
_LEFT_OUT = "…"


class Reader:
    """Follows a page in the current directory; `captured` runs a function, which gives an exit code.

    `heald` and the programs of `examples/` run in this process.
    """

    def __init__(
        self, heald: Callable[[Sequence[str]], int], captured: Callable[[Callable[[], int]], Ended]
    ) -> None:
        self._heald = heald
        self._captured = captured
        #: What the last command printed; None where it was left out.
        self._printed: str | None = ""
        #: The names of the snippets of a page.
        self.names: dict[str, Any] = {}

    def follow(self, page: Path, *, slow: bool) -> Counter[str]:
        """Do what the page says, and count its blocks: run, checked, exempt, or slow."""
        done: Counter[str] = Counter()
        for block in blocks(page, hidden=True):
            place = f"{page.relative_to(ROOT) if ROOT in page.parents else page.name}:{block.line}"
            if block.title is not None:
                Path(block.title).parent.mkdir(parents=True, exist_ok=True)
                Path(block.title).write_text(block.text, encoding="utf-8")
            if block.why is not None or (block.slow and not slow):
                self._printed = None
                whole = checked(block, place)
                done["slow" if block.slow else "checked" if whole else "exempt"] += 1
            else:
                getattr(self, f"_{block.language}")(block, place)
                done["hidden" if block.hidden else "run"] += 1
        return done

    def _text(self, block: Block, place: str) -> None:
        assert self._printed != "", f"{place}: no command before it printed anything"
        if self._printed is not None:
            assert missing(block.text, self._printed) is None, f"{place}\n{self._printed}"

    def _bash(self, block: Block, place: str) -> None:
        codes = [0] * (len(block.lines) - 1) + [block.code]
        self._printed = "".join(self._line(*each, place) for each in zip(block.lines, codes, strict=True))

    def _line(self, line: str, expected: int, place: str) -> str:
        if line.startswith("make "):  # it would make an environment
            assert check(line, place), f"{place}: {line}"
            return ""
        line, _, file = line.partition(" > ")
        words = shlex.split(line, comments=True)
        if words[0] == "heald":
            ended = self._captured(lambda: self._heald(words[1:]))
        elif words[0] == "python" and words[1].startswith("examples/"):
            ended = self._captured(lambda: program(words[1:]))
        else:
            ended = shell(line)
        assert ended.code == expected, f"{place}: {line}\n{ended.err}{ended.out}"
        if file:
            Path(file.partition("#")[0].strip()).write_text(ended.out, encoding="utf-8")
        return ended.err + ended.out

    def _python(self, block: Block, place: str) -> None:
        if block.text.startswith("@program"):
            descriptions.program(block.text, place)
        elif block.title is None:
            # `inspect.getsource` finds functions of the page.
            linecache.cache[place] = (len(block.text), None, block.text.splitlines(keepends=True), place)
            ended = self._captured(lambda: exec(compile(block.text, place, "exec"), self.names) or 0)
            self._printed = ended.out or self._printed
        else:
            compile(block.text, place, "exec")

    def _toml(self, block: Block, place: str) -> None:
        descriptions.toml(block.text, place)

    def _c(self, block: Block, place: str) -> None:
        descriptions.c(block.text, place)

    def _json(self, block: Block, place: str) -> None:
        descriptions.json(block.text, place)


def checked(block: Block, place: str) -> bool:
    """Check what can be checked of a block that is not run; whether that is all of it."""
    if block.language == "python":
        compile(block.text, place, "exec")
    found = [check(line, place) for line in block.lines] if block.language == "bash" else [False]
    return all(found)


def program(words: Sequence[str]) -> int:
    """Run a program of the tree in this process, as `python WORDS...`."""
    with patch.object(sys, "argv", list(words)):
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def shell(line: str) -> Ended:
    """Run any other line."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    ended = subprocess.run(
        line,
        shell=True,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, "")


def missing(shown: str, printed: str) -> str | None:
    """The first line of a page's output that a command did not print, in this order, or None.

    Spaces do not count. A line `…` stands for any lines, `…` at the end of one for the rest of it.
    """
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in shown.splitlines():
        wanted = " ".join(line.split())
        if wanted in ("", _LEFT_OUT):
            continue
        start = wanted.removesuffix(_LEFT_OUT).rstrip()
        cut = start != wanted
        if not any(found.startswith(start) if cut else found == start for found in lines):
            return line
    return None
