"""HTML tables for results in notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """An HTML table; numbers are right-aligned with thousands separators, everything else is text."""

    def cells(kind: str, row: Iterable[object]) -> str:
        return "".join(f"<{kind} style='text-align:{_side(v)}'>{_text(v)}</{kind}>" for v in row)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"


def _side(value: object) -> str:
    return "right" if isinstance(value, int | float) else "left"


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape(str(value))
