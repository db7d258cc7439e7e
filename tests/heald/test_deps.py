"""`heald deps`: what it prints, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
@program
def p(x: int, q: bool):
    a: Buffer[64]
    w = f(write=a[0:32])
    v = f(write=a[0:x], when=q)
    for i in range(3):
        P = f(write=a[10*i : 10*i + 10])
        C = f(read=[a[10*i : 10*i + 10], a[40:48]])
        for j in range(2):
            N = f(read=a[50 : 52], write=a[50 : 52])
    r = f(read=a[0:34])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_json_has_use_def_def_use_and_distances(heald: Any, file: Path) -> None:
    ended = heald("deps", file, "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert found["use_def"] == {
        "w": [],
        "v": [],
        "P": [],
        "C": ["P", "entry", "v"],
        "N": ["N", "entry", "v"],
        "r": ["P", "entry", "v", "w"],
    }
    assert found["def_use"]["v"] == ["C", "N", "r"]
    assert found["def_use"]["entry"] == ["C", "N", "r"]
    assert found["distance"] == {"P->C": [0], "N->N": [[0, 1], [1, -1]]}


def test_the_table_names_sources_and_distances(heald: Any, file: Path) -> None:
    ended = heald("deps", file)
    assert ended.code == 0
    assert "P (0)" in ended.out
    assert "entry is read by: C, N, r" in ended.out


def test_explain_tells_intervals_and_kill_sets(heald: Any, file: Path) -> None:
    ended = heald("deps", file, "--explain", "r")
    assert ended.code == 0
    assert "w for a[30:32]" in ended.out
    assert "P for a[0:30]" in ended.out
    assert "a[0:32]: {w}, kill {[0:30]}" in ended.out
    as_json = json.loads(heald("deps", file, "--explain", "r", "--json").out)
    assert {s["label"] for s in as_json["reads"][0]["sources"]} == {"P", "entry", "v", "w"}


def test_inexact_overwriting_is_marked(heald: Any, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace(", when=q", ""))
    assert "a[0:32]: {w}, kill {[0:30]}, marked killed" in heald("deps", path, "--explain", "r").out


def test_bad_input_is_refused(heald: Any, file: Path, tmp_path: Path) -> None:
    assert heald("deps", tmp_path / "missing.py").code == 2
    ended = heald("deps", file, "--explain", "nobody")
    assert ended.code == 2
    assert "'nobody'" in ended.err
    file.write_text("@program\ndef p():\n    x = y\n", encoding="utf-8")
    ended = heald("deps", file)
    assert ended.code == 2
    assert "program.py:3:9" in ended.err
