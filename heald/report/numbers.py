"""Numbers formatted for readers."""

from __future__ import annotations


def bytes_text(count: int) -> str:
    """Bytes in units of a thousand: `2.1 MB`."""
    if count < 1000:
        return f"{count} byte{'s' if count != 1 else ''}"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{number_text(value / 1000)} PB"


def number_text(value: float) -> str:
    """A number to about four digits; below 10^12, all digits before the point."""
    size = abs(value)
    if 1000 <= size < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}"
