"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hw.errors import InputError


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, with the same ending, that takes its name when all went well.

    Raises `InputError` when the file cannot be written.
    """
    check_writable(path)
    try:
        handle, name = tempfile.mkstemp(prefix=".heald-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    part = Path(name)
    try:
        yield part
        # mkstemp makes files that only their owner can read; the user's mask decides for all others.
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 atomically; raises `InputError` for what is no Unicode."""
    with atomic(path) as part:
        try:
            part.write_text(text, encoding="utf-8")
        except UnicodeEncodeError as error:
            found = error.object[error.start : error.end]
            raise InputError(f"{path}: cannot be written: text must be Unicode, not {found!r}") from None


def check_writable(path: Path) -> None:
    """Raise `InputError` when a file of that name cannot be made, before work is done for it."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: must be a file, not a directory")
        if not path.parent.is_dir():
            raise InputError(f"{path}: directory {path.parent} does not exist")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: directory {path.parent} cannot be written")
