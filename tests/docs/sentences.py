"""The prose of a page and its sentences."""

from __future__ import annotations

import re
from pathlib import Path


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def sentences(text: str) -> list[str]:
    """The sentences of prose; headings, cells of tables, items of lists and paragraphs end one."""
    parts = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) |^#.*$|\|", text, flags=re.MULTILINE)
    return [s for part in parts for s in re.split(r"(?<=[.!?])\s+", " ".join(part.split())) if s]
