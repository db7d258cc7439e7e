"""Atomic writing: files and directories appear completely or not at all.

All files that users name are written with `atomic`. Links are followed. A path that is no regular file (a
device, a pipe, a terminal) is not replaced but written to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hw.errors import InputError
from hw.processes import held

#: Start of messages about directories.
_DIRECTORY = "directory cannot be made or"
#: Seconds to wait for a reader of a named pipe.
PATIENCE = 10.0


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path with the same suffix as `path`; on success, its contents replace `path`.

    Raises `InputError` if the file cannot be written.
    """
    check_writable(path)
    through = is_special(path)
    real = path if through else Path(os.path.realpath(path))
    with contextlib.ExitStack() as undo:
        try:
            with held():
                folder = None if through else real.parent
                handle, name = tempfile.mkstemp(prefix=".heald-", suffix=path.suffix, dir=folder)
                os.close(handle)
                part = Path(name)
                undo.callback(part.unlink, missing_ok=True)
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            yield part
            if through:
                _pass_on(part, path)
                return
            # mkstemp makes files that only their owner can read; apply the user's umask instead.
            mask = os.umask(0)
            os.umask(mask)
            part.chmod(0o666 & ~mask)
            part.replace(real)
        except OSError as error:
            raise _unwritable(path, error) from None


def is_special(path: Path) -> bool:
    """Whether a path exists and is no regular file, or is standard output or error."""
    try:
        found = path.stat()
    except OSError:
        return False
    return not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)) or _own(found) is not None


def _own(found: os.stat_result) -> int | None:
    """The number of standard output or error if the file is one of them, else None."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(found, os.fstat(number)):
                return number
    return None


def _pass_on(part: Path, path: Path) -> None:
    """Copy the contents of a file to a path that is no regular file."""
    own = _own(path.stat())
    if own is not None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    with part.open("rb") as made, os.fdopen(_opened(path) if own is None else os.dup(own), "wb") as out:
        shutil.copyfileobj(made, out)


def _opened(path: Path) -> int:
    """Open a device or pipe for writing; a pipe without a reader is an error after `PATIENCE` seconds."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            number = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            os.set_blocking(number, True)
            return number
        except OSError as error:
            fifo = stat.S_ISFIFO(path.stat().st_mode)
            if error.errno != errno.ENXIO or not fifo:
                raise
            if time.monotonic() > end:
                raise OSError(errno.ENXIO, f"nobody reads this pipe for {PATIENCE:.0f} s") from None
        time.sleep(0.05)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically; raises `InputError` for text that is not valid Unicode."""
    with atomic(path) as part:
        try:
            part.write_text(text, encoding="utf-8")
        except UnicodeEncodeError as error:
            found = error.object[error.start : error.end]
            raise InputError(f"{path}: cannot be written: text must be Unicode, not {found!r}") from None


def check_writable(path: Path) -> None:
    """Raise `InputError` if a file of this name cannot be created, before any work is done."""
    try:
        special = is_special(path)
        folder = path.parent if special else Path(os.path.realpath(path)).parent
        named = folder if path.is_symlink() else path.parent
        found, directory = path.is_dir(), folder.is_dir()
    except OSError as error:
        raise _unwritable(path, error) from None
    except ValueError as error:  # a null character
        raise InputError(f"{str(path)!r}: cannot be written: {error}") from None
    if found:
        raise InputError(f"{path}: must be a file, not a directory: name one inside it")
    if not directory:
        missing = "is a file:" if named.exists() else "does not exist: make it first, or"
        raise InputError(f"{path}: directory {named} {missing} name another")
    if not os.access(path if special else folder, os.W_OK):
        what = "cannot be" if special else f"directory {named} cannot be"
        raise _unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), what)


def _unwritable(path: Path, error: OSError, what: str = "cannot be") -> InputError:
    return InputError(f"{path}: {what} written: {error.strerror or error}; choose another path")


def check_directory(path: Path) -> None:
    """Raise `InputError` if a directory cannot be created or written, before any work is done."""
    try:
        real, nearest = _place(path)
        if real == nearest and not real.is_dir():
            raise InputError(f"{path}: must be a directory, not a file: name another")
        with _part(nearest) as part:
            # Missing directories are tried in a temporary one, which leaves nothing behind.
            (part / real.relative_to(nearest)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error, _DIRECTORY) from None


def write_directory(
    target: Path, fill: Callable[[Path], object], ours: Callable[[str], object] = lambda name: False
) -> list[Path]:
    """Write the files that `fill` makes in an empty directory; old files of `ours` go, others stay.

    Nothing in the target changes before all files are complete. Returns their paths; raises `InputError` if
    it cannot be written.
    """
    try:
        real, nearest = _place(target)
        with _part(nearest) as part:
            fill(part)
            names = sorted(path.name for path in part.iterdir())
            with held():
                real.mkdir(parents=True, exist_ok=True)
                for name in names:
                    _put(part / name, real / name)
                for old in real.iterdir():
                    if old.name not in names and ours(old.name) and not old.is_dir():
                        old.unlink()
    except OSError as error:
        raise _unwritable(target, error, _DIRECTORY) from None
    return [target / name for name in names]


def _put(part: Path, target: Path) -> None:
    """Move a file into place; a link or device gets its contents instead."""
    if not target.is_symlink() and not is_special(target):
        os.replace(part, target)
        return
    with atomic(target) as copy:
        shutil.copyfile(part, copy)


def _place(path: Path) -> tuple[Path, Path]:
    """A path with links resolved, and the part of it that exists: itself, or the nearest parent."""
    real = Path(os.path.realpath(path))
    return real, next(place for place in (real, *real.parents) if os.path.lexists(place))


@contextlib.contextmanager
def _part(nearest: Path) -> Iterator[Path]:
    """A temporary directory inside another, so on the same file system; it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix=".heald-", dir=nearest, ignore_cleanup_errors=True) as name:
        yield Path(name)
