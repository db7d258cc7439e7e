"""The code blocks of a page: its fenced blocks, each with a language, and Python in comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sybil import Document
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

ROOT = Path(__file__).resolve().parents[2]
#: The line that opens a block: its language, and the file that a reader saves it as.
_LEXER = RawFencedCodeBlockLexer(re.compile(r'(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n'))
#: May stand before a block: it takes more than seconds, its last command ends with another code than 0, or
#: nothing runs it, and why.
_MARKS = re.compile(
    r"<!-- (?P<slow>slow )?(?:exit code (?P<code>\d+) )?(?:not run: (?P<why>[^\n]+) )?-->\n\Z"
)
_MARK = re.compile(r"^<!-- (?:slow|exit code|not run)\b", re.MULTILINE)
#: Python that a page does not show: what its snippets need, or what must hold after them.
_HIDDEN = re.compile(r"^<!-- python\n(?P<source>.*?)^-->$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of a page, the line where it begins, and the exit code of its last command."""

    language: str
    title: str | None
    text: str
    line: int
    slow: bool = False
    code: int = 0
    #: Why nothing runs it, or None.
    why: str | None = None
    hidden: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines of a block of commands; a backslash at the end continues one."""
        return self.text.replace("\\\n", " ").splitlines()


def blocks(page: Path, *, hidden: bool = False) -> Iterator[Block]:
    """The blocks of a page, which all must have a language; with hidden ones where asked for."""
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") % 2 == 0, f"{page}: a block does not end"
    shown = list(_LEXER(Document(text, str(page))))
    assert 2 * len(shown) == text.count("\n```"), f"{page}: a block has no language"
    found = []
    for region in shown:
        before, parts = text[: region.start], region.lexemes
        block = Block(parts["language"], parts["title"], str(parts["source"]), before.count("\n") + 1)
        if marks := _MARKS.search(before):
            code = int(marks["code"] or 0)
            block = Block(**vars(block) | {"slow": bool(marks["slow"]), "code": code, "why": marks["why"]})
        found.append(block)
    assert len(_MARK.findall(text)) == sum(b.slow or b.code != 0 or b.why is not None for b in found), (
        f"{page}: a comment is not on the line before its block"
    )
    for comment in _HIDDEN.finditer(text) if hidden else ():
        line = text.count("\n", 0, comment.start()) + 1
        found.append(Block("python", None, comment["source"], line, hidden=True))
    yield from sorted(found, key=lambda block: block.line)


def indented(page: Path) -> list[int]:
    """The lines of a page where a block of code begins that has no fence."""
    text = re.sub(r"^(```.*?^```|<!--.*?-->)$", _blank, page.read_text(encoding="utf-8"), flags=re.M | re.S)
    lines = ["", *text.splitlines()]
    found, in_list = [], False
    for number, (before, line) in enumerate(pairwise(lines), 1):
        if line.startswith("    ") and not before and not in_list:
            found.append(number)
        if line and not line.startswith(" "):
            in_list = bool(re.match(r"[-*] |\d+\. ", line))
    return found


def _blank(match: re.Match[str]) -> str:
    """As many empty lines."""
    return "\n" * match[0].count("\n")
