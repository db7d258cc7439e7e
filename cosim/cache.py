"""A directory of results that are costly to make, found again by fingerprint, safe between processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from hw.cache import directory, unwritable


def cached(kind: str, key: str, make: Callable[[Path, Path], None]) -> tuple[Path, float]:
    """The directory of result `key` and the seconds that making it took now (0.0 when it was there).

    `make(directory, log)` fills a fresh directory beside the final one and may write a log, which stays. The
    directory gets its name when it is complete, so an interrupted run leaves nothing that looks finished; of
    two runs that start at once, one makes and the other waits. Raises `InputError` when the cache cannot be
    written, and whatever `make` raises.
    """
    root = directory() / kind
    final = root / key
    if final.is_dir():
        return final, 0.0
    try:
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
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return final, time.perf_counter() - begin
    finally:
        lock.release()
