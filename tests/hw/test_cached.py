"""Results that are made once: fingerprints, two makers at once, interrupted makers."""

from __future__ import annotations

import multiprocessing
import time
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
    with pytest.raises(InputError, match=r"the cache must be a directory .*HEALD_CACHE"):
        cache.cached("kind", "key", make)
