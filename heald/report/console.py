"""Tables on standard output."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


class _Console(Console):
    """A console that lets its caller handle a broken pipe."""

    def on_broken_pipe(self) -> None:
        """Re-raise the `BrokenPipeError` instead of ending the process."""
        raise


def stdout(width: int = 160) -> Console:
    """A console on standard output; `width` applies if it is not a terminal."""
    found = _Console()
    return found if found.is_terminal else _Console(width=width)


def plain_table(*columns: str, no_wrap: bool = False) -> Table:
    """A table without lines; columns whose title begins with `>` are aligned to the right."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for title in columns:
        justify = "right" if title.startswith(">") else "left"
        made.add_column(title.removeprefix(">"), justify=justify, no_wrap=no_wrap)  # type: ignore[arg-type]
    return made
