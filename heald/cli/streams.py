"""The standard streams of a command, whatever state they are in."""

from __future__ import annotations

import contextlib
import io
import os
import sys

#: What errors of standard output have as the name of their file.
STDOUT = "standard output"


class _Output(io.FileIO):
    """Standard output; its errors say whose they are."""

    def write(self, data: object, /) -> int:
        """Write bytes."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            error.filename = STDOUT
            raise


def open_streams() -> None:
    """Make the standard streams such that every text can be written, and errors of standard output be told.

    A stream that is closed gets a descriptor that nothing can be written to: a file that is opened later must
    not become standard output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDONLY if number < 2 else os.O_WRONLY)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    old = sys.stdout
    if old is None or isinstance(old, io.TextIOWrapper):
        encoding, lines = ("utf-8", False) if old is None else (old.encoding, old.line_buffering)
        raw = io.BufferedWriter(_Output(1, "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, encoding, "replace", line_buffering=lines)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")  # a terminal without some sign gets the rest


def leave_streams() -> None:
    """Let go of text that cannot be written: Python would complain of it once more at its end."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
