"""The code blocks of a page, and a reader that saves files, runs commands, and compares output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sybil import Document
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

ROOT = Path(__file__).resolve().parents[2]
#: The line that opens a block: its language, and the file that a reader saves it as.
_LEXER = RawFencedCodeBlockLexer(re.compile(r'(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n'))
#: May stand before a block: it takes more than seconds, or its last command ends with another code than 0.
_MARKS = re.compile(r"<!-- (?P<slow>slow )?(?:exit code (?P<code>\d+) )?-->\n\Z")
#: Stands for lines, or the rest of a line, that a page leaves out.
_LEFT_OUT = "…"


@dataclass(frozen=True)
class Block:
    """A block of a page, the line where it begins, and the exit code of its last command."""

    language: str
    title: str | None
    text: str
    line: int
    slow: bool
    code: int


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, which all must have a language."""
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") % 2 == 0, f"{page}: a block does not end"
    found = list(_LEXER(Document(text, str(page))))
    assert 2 * len(found) == text.count("\n```"), f"{page}: a block has no language"
    for region in found:
        before, parts = text[: region.start], region.lexemes
        line, marks = before.count("\n") + 1, _MARKS.search(before)
        slow, code = (bool(marks["slow"]), int(marks["code"] or 0)) if marks else (False, 0)
        yield Block(parts["language"], parts["title"], str(parts["source"]), line, slow, code)


class Reader:
    """Follows a page in the current directory; `heald` calls the command line in this process."""

    def __init__(self, heald: Callable[[Sequence[str]], tuple[int, str]]) -> None:
        self._heald = heald
        #: What the last command printed; None where it was left out.
        self._printed: str | None = None

    def follow(self, page: Path, *, slow: bool) -> int:
        """Do what the page says, and give the number of commands and files."""
        done = 0
        for block in blocks(page):
            place = f"{page.name}:{block.line}"
            if block.title is not None:
                Path(block.title).write_text(block.text, encoding="utf-8")
                done += 1
            elif block.language == "text":
                if self._printed is not None:
                    assert missing(block.text, self._printed) is None, f"{place}\n{self._printed}"
            elif block.slow and not slow:
                self._printed = None
            else:
                assert block.language == "bash", f"{place}: it is neither a file nor commands"
                lines = block.text.replace("\\\n", " ").splitlines()
                codes = [0] * (len(lines) - 1) + [block.code]
                self._printed = "".join(self._run(*each, place) for each in zip(lines, codes, strict=True))
                done += len(lines)
        return done

    def _run(self, line: str, expected: int, place: str) -> str:
        if line.startswith("heald "):
            code, printed = self._heald(shlex.split(line)[1:])
        else:
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
            code, printed = ended.returncode, ended.stdout
        assert code == expected, f"{place}: {line}\n{printed}"
        return printed


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
