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
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
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
    """Write a text file atomically."""
    with atomic(path) as part:
        part.write_text(text)


def check_writable(path: Path) -> None:
    """Raise `InputError` when a file of that name cannot be made, before work is done for it."""
    if path.is_dir():
        raise InputError(f"{path}: must be a file, not a directory")
    if not path.parent.is_dir():
        raise InputError(f"{path}: directory {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: directory {path.parent} cannot be written")
