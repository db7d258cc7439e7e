"""How long work says that it goes on: to a function, or on a line of the terminal or notebook."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Takes a text, from this thread or another.
Progress = Callable[[str], None]
#: Seconds of silence after which the last text is said again.
SILENCE = 5.0


@contextlib.contextmanager
def shown(progress: Progress | None = None) -> Iterator[Progress]:
    """What work says goes to `progress`, or to a line of the terminal or notebook, if there is one.

    While the work says nothing new, its last text is repeated every `SILENCE` seconds, with the time.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if progress is None and not (console.is_terminal or console.is_jupyter):
        yield lambda text: None
        return
    with contextlib.ExitStack() as stack:
        if progress is None and console.is_jupyter:
            progress = stack.enter_context(_notebook_line())
        elif progress is None:
            progress = stack.enter_context(console.status("")).update
        yield stack.enter_context(_repeating(progress))


@contextlib.contextmanager
def _notebook_line() -> Iterator[Progress]:
    """A line below a cell, which is empty at the end (rich's needs widgets)."""
    display: Any = importlib.import_module("IPython.display").display
    line = display({"text/plain": ""}, raw=True, display_id=True)
    yield lambda text: line.update({"text/plain": text}, raw=True)
    line.update({"text/plain": ""}, raw=True)


def stages(progress: Progress, pause: float = 0.0) -> Progress | None:
    """Tells `progress` of each stage, the text before a comma, again every `SILENCE` seconds while it lasts.

    With `pause` it tells whole texts, with so many seconds between. None on a terminal, where `shown` has a
    line of its own.
    """
    if sys.stderr.isatty():
        return None
    last, then = "", time.monotonic() if pause else -math.inf

    def say(text: str) -> None:
        nonlocal last, then
        stage, now = text.partition(",")[0], time.monotonic()
        if now - then >= (max(pause, SILENCE) if stage == last else pause):
            progress(text if pause or stage == last else stage)
            last, then = stage, now

    return say


@contextlib.contextmanager
def _repeating(progress: Progress) -> Iterator[Progress]:
    """What gives texts to `progress`, and the last one again with the seconds since it was new."""
    text, since, spoken, over = "working", time.monotonic(), time.monotonic(), threading.Event()

    def say(new: str) -> None:
        nonlocal text, since, spoken
        text, since, spoken = new, time.monotonic(), time.monotonic()
        progress(new)

    def repeat() -> None:
        nonlocal spoken
        while not over.wait(SILENCE / 10):
            now = time.monotonic()
            if now - spoken >= SILENCE:
                spoken = now
                progress(f"{text} ({now - since:.0f} s)")

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield say
    finally:
        over.set()
        thread.join()
