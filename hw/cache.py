"""Where results are kept that are costly to make, and the names under which they are found again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs
from filelock import FileLock

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


def cached(kind: str, key: str, make: Callable[[Path, Path], None]) -> tuple[Path, float]:
    """The directory of result `key` and the seconds that making it took now (0.0 when it was there).

    `make(folder, log)` fills a fresh directory beside the final one and may write a log, which stays. The
    directory gets its name when it is complete, so an interrupted run leaves nothing that looks finished; of
    two runs that start at once, one makes and the other waits. Raises `InputError` when the cache cannot be
    written, and whatever `make` raises.
    """
    root = directory() / kind
    final = root / key
    try:
        if final.is_dir():
            return final, 0.0
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / f"{key}.lock")
        lock.acquire()
    except OSError as error:
        raise unwritable(root, error) from None
    try:
        if final.is_dir():
            return final, 0.0
        begin = time.perf_counter()
        for left in root.glob(f"{key}.part-*"):
            shutil.rmtree(left, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{key}.part-", dir=root))
        try:
            make(part, root / f"{key}.log")
            part.rename(final)
        except BrokenPipeError:  # of whoever reads our output
            raise
        except OSError as error:
            raise unwritable(root, error) from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return final, time.perf_counter() - begin
    finally:
        lock.release()
