"""Files and directories that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
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


def check_directory(path: Path) -> None:
    """Raise `InputError` where a directory cannot be made or written, before work is done for it."""
    try:
        real, nearest = _place(path)
        if real == nearest and not real.is_dir():
            raise InputError(f"{path}: must be a directory, not a file")
        with _part(nearest) as part:
            # Directories that are still to be made are tried where they leave nothing behind.
            (part / real.relative_to(nearest)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: directory cannot be made or written: {error.strerror or error}") from None


def write_directory(
    target: Path, fill: Callable[[Path], None], ours: Callable[[str], object] = lambda name: False
) -> list[Path]:
    """Give a directory the files that `fill` makes in an empty one; earlier files of `ours` go, others stay.

    Nothing in the directory changes before all files are complete. Returns their paths; raises `InputError`
    when it cannot be written.
    """
    try:
        real, nearest = _place(target)
        with _part(nearest) as part:
            fill(part)
            names = sorted(path.name for path in part.iterdir())
            real.mkdir(parents=True, exist_ok=True)
            for name in names:
                os.replace(part / name, real / name)
            for old in real.iterdir():
                if old.name not in names and ours(old.name) and not old.is_dir():
                    old.unlink()
    except OSError as error:
        raise InputError(
            f"{target}: directory cannot be made or written: {error.strerror or error}"
        ) from None
    return [target / name for name in names]


def _place(path: Path) -> tuple[Path, Path]:
    """A path without links, and what exists of it: itself, or the nearest directory above."""
    real = Path(os.path.realpath(path))
    return real, next(place for place in (real, *real.parents) if os.path.lexists(place))


@contextlib.contextmanager
def _part(nearest: Path) -> Iterator[Path]:
    """A directory inside of another, thus on the same file system, that is gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix=".heald-", dir=nearest, ignore_cleanup_errors=True) as name:
        yield Path(name)
