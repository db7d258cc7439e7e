"""The cache of results that are expensive to make, and the keys under which they are found.

Results have checksums, and a damaged result is made again. A read-only cache only costs time. Several users
may share a cache; its permissions say what they may do (docs/cli.md).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from hw.errors import UnwritableError

#: Environment variable with a directory to use instead of the user's cache.
VARIABLE = "HEALD_CACHE"
#: The file with the checksums of a result.
SUMS = "checksums"
#: Errors of a read-only cache.
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)

#: Makes a result: fills a fresh directory, and may write a log.
Make = Callable[[Path, Path], None]


def directory() -> Path:
    """The directory of the cache: `$HEALD_CACHE`, or `heald` in the user's cache directory."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_dir("heald", appauthor=False)).absolute()


def fingerprint(parts: Iterable[str]) -> str:
    """Twenty-four hexadecimal digits that identify a sequence of texts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def sources(item: Traversable, name: str, aside: Collection[str] = ()) -> Iterator[str]:
    """Names and texts of the sources in a folder, except in subfolders with certain names."""
    if item.is_dir() and item.name not in aside:
        for inner in sorted(item.iterdir(), key=lambda i: i.name):
            yield from sources(inner, f"{name}/{inner.name}", aside)
    elif name.endswith((".py", ".toml", ".json")):
        yield name
        yield item.read_text(encoding="utf-8")


def unwritable(root: Path, error: OSError) -> UnwritableError:
    """The error for a cache that cannot be written."""
    return UnwritableError(f"the cache must be a writable directory, not {root}: {error} (set {VARIABLE})")


def write(path: Path, text: str) -> None:
    """Writes a cache file atomically, unless the cache is read-only.

    Raises `InputError` if the cache cannot be written for another reason.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _share(path.parent)
        handle, part = tempfile.mkstemp(prefix=f"{path.name}.part-", dir=path.parent, text=True)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            _share(Path(part))
            _sync(Path(part))
            os.replace(part, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise unwritable(path.parent, error) from None


@contextlib.contextmanager
def locked(path: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Locks a file of the cache; other processes that want to make it wait, and call `waits` first.

    With a read-only cache, nobody waits. Raises `InputError` if the cache cannot be written for another
    reason.
    """
    try:
        lock = _lock(path.parent, path.name)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waits()
            lock.acquire()
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise unwritable(path.parent, error) from None
        yield
        return
    try:
        yield
    finally:
        # Processes that still wait find the result; at worst it is made twice, since each is written
        # atomically.
        with contextlib.suppress(OSError):
            os.unlink(lock.lock_file)
        lock.release()


def _lock(root: Path, key: str) -> FileLock:
    """The lock of a result, with the permissions of the cache; raises `OSError`."""
    root.mkdir(parents=True, exist_ok=True)
    _share(root)
    return FileLock(root / f"{key}.lock", mode=0o600 | (_mode(directory()) & 0o066))


def cached(kind: str, key: str, make: Make) -> tuple[Path, float]:
    """The directory of result `key`, and the seconds that making it took now (0.0 if it existed).

    `make(folder, log)` fills a fresh directory beside the final one and may write a log, which is kept. The
    directory gets its name when it is complete and on the disk, so an interrupted run leaves nothing that
    looks finished. If two runs start at once, one makes the result and the other waits. With a read-only
    cache, the result is in a temporary directory until this process ends. Raises `InputError` if the cache
    cannot be written for another reason, and whatever `make` raises.
    """
    root = directory() / kind
    final = root / key
    if _is_whole(final):
        return final, 0.0
    try:
        lock = _lock(root, key)
        lock.acquire()
    except OSError as error:
        if error.errno in _READ_ONLY:
            return _made_aside(kind, key, make)
        raise unwritable(root, error) from None
    try:
        if _is_whole(final):
            return final, 0.0
        begin = time.perf_counter()
        try:
            part = _fresh(root, key, final)
        except OSError as error:
            if error.errno in _READ_ONLY:
                return _made_aside(kind, key, make)
            raise
        try:
            make(part, root / f"{key}.log")
            _finish(part)
            part.rename(final)
            _sync(root)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return final, time.perf_counter() - begin
    except BrokenPipeError:  # the reader of our output is gone
        raise
    except OSError as error:
        raise unwritable(root, error) from None
    finally:
        lock.release()


def _fresh(root: Path, key: str, final: Path) -> Path:
    """An empty directory for a new result, after removing leftovers and damaged results."""
    if final.exists():
        final.rename(Path(tempfile.mkdtemp(prefix=f"{key}.part-", dir=root)) / "broken")
    for left in root.glob(f"{key}.part-*"):
        shutil.rmtree(left, ignore_errors=True)
    (root / f"{key}.log").unlink(missing_ok=True)  # may belong to another user
    return Path(tempfile.mkdtemp(prefix=f"{key}.part-", dir=root))


_aside: dict[tuple[str, str, str], Path] = {}
_asides = threading.Lock()


@functools.cache
def _folder_aside() -> tempfile.TemporaryDirectory[str]:
    """A directory that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="heald-cache-")


def _made_aside(kind: str, key: str, make: Make) -> tuple[Path, float]:
    """The same as `cached`, in a temporary directory."""
    begin = time.perf_counter()
    place = (str(directory()), kind, key)
    with _asides:
        if place in _aside:
            return _aside[place], 0.0
        root = Path(_folder_aside().name)
    part = Path(tempfile.mkdtemp(prefix=f"{kind}-{key}-", dir=root))
    make(part, part.with_suffix(".log"))
    _aside[place] = part
    return part, time.perf_counter() - begin


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name != SUMS and not path.is_dir())


def _sums(folder: Path) -> str:
    """The checksums of all files of a result, one line each."""
    lines = []
    for path in _files(folder):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        lines.append(f"{digest}  {path.relative_to(folder)}\n")
    return "".join(lines)


def _finish(folder: Path) -> None:
    """Gives a result its checksums and permissions, and flushes it to the disk."""
    (folder / SUMS).write_text(_sums(folder), encoding="utf-8")
    for path in (*_files(folder), folder / SUMS, *(p for p in folder.rglob("*") if p.is_dir()), folder):
        _share(path)
        _sync(path)


#: Results whose checksums were verified, with the state of their files.
_compared: dict[Path, tuple[object, ...]] = {}


def _is_whole(folder: Path) -> bool:
    """Whether a result is complete and undamaged."""
    try:
        sums = (folder / SUMS).read_text(encoding="utf-8")
        found = [path.stat() for path in _files(folder)]
        state = (sums, *((s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in found))
        if _compared.get(folder) != state:
            if _sums(folder) != sums:
                return False
            _compared[folder] = state
        return True
    except (OSError, ValueError):
        return False


def _sync(path: Path) -> None:
    """Flushes a file or directory to the disk, if its file system supports that."""
    with contextlib.suppress(PermissionError):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(number)


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o3777


def _share(path: Path) -> None:
    """Gives other users the same rights to a cache entry as to the cache itself."""
    with contextlib.suppress(PermissionError):
        wanted, mode = _mode(directory()), _mode(path)
        if not path.is_dir():
            # Users who can list the cache get the owner's rights to the file, except for writing.
            own = (mode >> 6) & 0o5
            wanted = (mode & 0o700) | sum(own << shift for shift in (3, 0) if wanted >> shift & 0o5 == 0o5)
        if wanted != mode:
            path.chmod(wanted)
