"""Where results are kept that are costly to make, and the names under which they are found again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import platformdirs

from hw.errors import InputError

#: Environment variable that names another directory than the user's cache.
VARIABLE = "HEALD_CACHE"


def directory() -> Path:
    """Where results are kept: `$HEALD_CACHE`, or `heald` in the user's cache directory."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_dir("heald", appauthor=False)).absolute()


def fingerprint(parts: Iterable[str]) -> str:
    """Twenty-four hexadecimal digits that stand for a sequence of texts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def unwritable(root: Path, error: OSError) -> InputError:
    """The error for a cache that cannot be written."""
    return InputError(
        f"the cache must be a directory that can be written, not {root}: {error} (set {VARIABLE})"
    )


def holds(path: Path) -> bool:
    """Whether the cache has this file; raises `InputError` when the cache cannot be read."""
    try:
        return path.is_file()
    except OSError as error:  # a name that is too long, or a directory that may not be searched
        raise unwritable(path.parent, error) from None


def write(path: Path, text: str) -> None:
    """Write a file of the cache such that others see all of it or nothing.

    Raises `InputError` when the cache cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f"{path.name}.part-", dir=path.parent, text=True)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
    except OSError as error:
        raise unwritable(path.parent, error) from None
