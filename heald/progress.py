"""Progress of long work: to a function, or to a line of the terminal or notebook."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Takes a text, from any thread.
Progress = Callable[[str], None]
#: Seconds of silence after which the last text is repeated.
SILENCE = 5.0


@contextlib.contextmanager
def shown(progress: Progress | None = None) -> Iterator[Progress]:
    """Show texts with `progress`, or on a line of the terminal or notebook, if there is one.

    Without news, the last text is repeated every `SILENCE` seconds, with the elapsed time. The yielded
    function may be passed as `progress` to work inside.
    """
    from rich.console import Console

    if isinstance(progress, _Repeating):
        yield progress
        return
    console = Console(stderr=True)
    if progress is None and not (console.is_terminal or console.is_jupyter):
        yield lambda text: None
        return
    with contextlib.ExitStack() as stack:
        if progress is None and console.is_jupyter:
            progress = stack.enter_context(_notebook_line())
        elif progress is None:
            progress = stack.enter_context(console.status("")).update
        yield stack.enter_context(_Repeating(progress))


@contextlib.contextmanager
def _notebook_line() -> Iterator[Progress]:
    """A line below a notebook cell, cleared at the end (rich's needs widgets)."""
    display: Any = importlib.import_module("IPython.display").display
    line = display({"text/plain": ""}, raw=True, display_id=True)
    yield lambda text: line.update({"text/plain": text}, raw=True)
    line.update({"text/plain": ""}, raw=True)


def stages(progress: Progress, pause: float = 0.0) -> Progress | None:
    """Reports each stage (the text before a comma) to `progress`, and repeats it every `SILENCE` seconds.

    With `pause`, it reports whole texts, at least that many seconds apart. None on a terminal, where `shown`
    has its own line.
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


class _Repeating:
    """Passes texts to `progress`, and repeats the last one with its age in seconds."""

    def __init__(self, progress: Progress):
        self.progress, self.over = progress, threading.Event()
        self.text, self.since, self.spoken = "working", time.monotonic(), time.monotonic()
        self.thread = threading.Thread(target=self._repeat, daemon=True)

    def __call__(self, text: str) -> None:
        self.text, self.since, self.spoken = text, time.monotonic(), time.monotonic()
        self.progress(text)

    def __enter__(self) -> _Repeating:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    def _repeat(self) -> None:
        while not self.over.wait(SILENCE / 10):
            now = time.monotonic()
            if now - self.spoken >= SILENCE:
                self.spoken = now
                self.progress(f"{self.text} ({now - self.since:.0f} s)")
