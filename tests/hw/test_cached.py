"""Cached results: fingerprints, two concurrent makers, interrupted makers."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hw import cache
from hw.cache import VARIABLE, fingerprint
from hw.errors import InputError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def make(target: Path, log: Path) -> None:
    log.write_text("made", encoding="utf-8")
    (target / "result").write_text("whole")


def slow_make(target: Path, log: Path) -> None:
    with log.open("a", encoding="utf-8") as out:
        out.write("made\n")
    (target / "result").write_text("half")
    time.sleep(0.3)
    (target / "result").write_text("whole")


def slow_maker(results: multiprocessing.Queue[str]) -> None:
    found, _ = cache.cached("kind", "key", slow_make)
    results.put((found / "result").read_text())


def test_a_fingerprint_depends_on_every_part_and_its_border() -> None:
    assert fingerprint(["ab", "c"]) == fingerprint(["ab", "c"])
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])
    assert fingerprint(["ab", "c"]) != fingerprint(["ab", "d"])


@pytest.mark.usefixtures("root")
def test_a_result_is_made_once_and_then_costs_nothing() -> None:
    first, took = cache.cached("kind", "key", make)
    second, again = cache.cached("kind", "key", make)
    assert first == second
    assert (first / "result").read_text() == "whole"
    assert took > 0
    assert again == 0.0


def test_of_two_processes_one_makes_and_both_get_it_whole(root: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[str] = context.Queue()
    makers = [context.Process(target=slow_maker, args=(results,)) for _ in range(2)]
    for maker in makers:
        maker.start()
    assert [results.get(timeout=30) for _ in makers] == ["whole", "whole"]
    for maker in makers:
        maker.join()
    assert (root / "kind" / "key.log").read_text() == "made\n"


def test_a_maker_that_fails_leaves_only_its_log(root: Path) -> None:
    def fail(target: Path, log: Path) -> None:
        make(target, log)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cache.cached("kind", "key", fail)
    assert sorted(p.name for p in (root / "kind").iterdir()) == ["key.lock", "key.log"]
    found, _ = cache.cached("kind", "key", make)
    assert (found / "result").read_text() == "whole"


def test_what_a_killed_maker_left_is_swept_away(root: Path) -> None:
    left = root / "kind" / "key.part-abc"
    left.mkdir(parents=True)
    cache.cached("kind", "key", make)
    assert not left.exists()


def test_a_cache_that_cannot_be_written_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(root / "file"))
    with pytest.raises(InputError, match=r"the cache must be a writable directory, .*HEALD_CACHE"):
        cache.cached("kind", "key", make)


@pytest.mark.parametrize("damage", ["truncated", "changed", "missing", "added", "no checksums"])
def test_a_damaged_result_is_made_again(root: Path, damage: str) -> None:
    found, _ = cache.cached("kind", "key", make)
    result = found / "result"
    if damage == "truncated":
        os.truncate(result, 2)
    elif damage == "changed":
        result.write_text("WHOLE")
    elif damage == "missing":
        result.unlink()
    elif damage == "added":
        (found / "more").write_text("")
    else:
        (found / cache.SUMS).unlink()
    again, took = cache.cached("kind", "key", make)
    assert took > 0
    assert again == found
    assert {p.name for p in found.iterdir()} == {"result", cache.SUMS}
    assert result.read_text() == "whole"
    assert sorted(p.name for p in (root / "kind").iterdir()) == ["key", "key.lock", "key.log"]


def test_the_files_are_on_the_disk_before_the_result_has_its_name(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    real = os.fsync

    def note(number: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{number}")).name, (root / "kind" / "key").exists()))
        real(number)

    monkeypatch.setattr(os, "fsync", note)
    cache.cached("kind", "key", make)
    assert {name for name, named in synced if not named} >= {"result", cache.SUMS}
    assert synced[-1] == ("kind", True)


#: Calls `cached` as a user who is not root, in a process of its own.
_AS_NOBODY = """
import os, sys
from hw import cache
def make(target, log):
    log.write_text("log")
    (target / "result").write_text("whole")
for key in sys.argv[1:]:
    found, took = cache.cached("kind", key, make)
    again, more = cache.cached("kind", key, make)
    assert (again, more) == (found, 0.0)
    print(key, (found / "result").read_text(), took > 0, cache.directory() in found.parents)
cache.write(cache.directory() / "files" / "name", "text")
"""


def as_nobody(root: Path, *keys: str) -> list[str]:
    """What another user gets for results by name: what it is, whether it was made, whether in the cache."""
    nobody = 65534
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), cache.VARIABLE: str(root)}
    code = f"import os; os.umask(0o22); os.setgid({nobody}); os.setuid({nobody}){_AS_NOBODY}"
    # Only root can become somebody else; the modules are imported before.
    code = "import hw.cache, shutil, tempfile; " + code
    done = subprocess.run(
        [sys.executable, "-c", code, *keys],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user reaches."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_cache_that_may_only_be_read_costs_time_and_nothing_else(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(public / "cache"))
    cache.cached("kind", "there", make)
    assert as_nobody(public / "cache", "there", "new") == ["there whole False True", "new whole True False"]
    assert sorted(p.name for p in (public / "cache").iterdir()) == ["kind"]


def test_users_share_a_cache_that_both_may_write(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = public / "cache"
    root.mkdir()
    root.chmod(0o777)
    monkeypatch.setenv(VARIABLE, str(root))
    assert as_nobody(root, "theirs") == ["theirs whole True True"]
    assert cache.cached("kind", "theirs", make)[1] == 0.0
    found, _ = cache.cached("kind", "ours", make)
    (found / "result").write_text("broken")
    assert as_nobody(root, "ours") == ["ours whole True True"]
    assert cache.cached("kind", "ours", make)[1] == 0.0
