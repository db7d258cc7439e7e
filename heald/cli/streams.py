"""The standard streams of a command, in whatever state they are."""

from __future__ import annotations

import contextlib
import io
import os
import sys

#: File name in errors of standard output.
STDOUT = "standard output"


class _Output(io.FileIO):
    """Standard output whose errors carry its name."""

    def write(self, data: object, /) -> int:
        """Write bytes."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            error.filename = STDOUT
            raise


def open_streams() -> None:
    """Set up the standard streams: any text can be written, and errors of standard output are recognised.

    A closed stream gets a descriptor that cannot be written to, so that no file opened later becomes standard
    output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # This takes the lowest free number, which is the stream's.
            os.open(os.devnull, os.O_RDONLY if number < 2 else os.O_WRONLY)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    old = sys.stdout
    if old is None or isinstance(old, io.TextIOWrapper):
        encoding, lines = ("utf-8", False) if old is None else (old.encoding, old.line_buffering)
        raw = io.BufferedWriter(_Output(1, "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, encoding, "replace", line_buffering=lines)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")  # replaces characters that the terminal lacks


def leave_streams() -> None:
    """Drop text that cannot be written; Python would report it once more at exit."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
