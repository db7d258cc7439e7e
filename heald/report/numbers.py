"""Numbers formatted for readers."""

from __future__ import annotations


def number_text(value: float) -> str:
    """A number to about four digits; below 10^12, all digits before the point."""
    size = abs(value)
    if 1000 <= size < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}"
