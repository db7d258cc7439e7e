"""What people see in a terminal: tables on standard output, how far long work is on standard error."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


def stdout(width: int = 160) -> Console:
    """Standard output, of so many characters where it is no terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=width)


def plain_table(*columns: str, no_wrap: bool = False) -> Table:
    """A table without lines; columns whose title begins with `>` are aligned to the right."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for title in columns:
        justify = "right" if title.startswith(">") else "left"
        made.add_column(title.removeprefix(">"), justify=justify, no_wrap=no_wrap)  # type: ignore[arg-type]
    return made


@contextlib.contextmanager
def working(pause: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Gives a function that tells how far work is: in a terminal on one line, else on a line per stage.

    A stage is what stands before the first comma; with `pause` there are so many seconds between lines.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as shown:
            task = shown.add_task("")
            yield lambda text: shown.update(task, description=text)
        return
    last, then = "", time.monotonic() if pause else -math.inf

    def line(text: str) -> None:
        nonlocal last, then
        stage, now = text.partition(",")[0], time.monotonic()
        if stage != last and now - then >= pause:
            click.echo(text if pause else stage, err=True)
            last, then = stage, now

    yield line
