"""Cache files are complete or absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hw import cache
from hw.errors import InputError


def test_a_file_is_written_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "kind" / "key.json"
    for text in ("one", "another"):
        cache.write(path, text)
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.json"
    cache.write(path, "before")

    def full(_source: str, _target: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="no space left"):
        cache.write(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_cache_whose_name_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / ("x" * 300)))
    with pytest.raises(InputError, match=r"the cache must be a writable directory, .* too long.*set HEALD"):
        cache.cached("kind", "key", lambda target, log: None)
