"""`heald warps`: what it prints, and how it refuses."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.sw.warps.samples import WORKED
from tests.sw.warps.test_unique import NUMBERS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path, WORKED)


def write(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return path


def test_json_of_the_worked_example(heald: Any, file: Path) -> None:
    ended = heald("warps", file, "--unroll", "--reduce", "obtained", "--channels", "unique", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert found["channels"] == NUMBERS
    assert found["channel_count"] == 6
    pairs = [f"{a}->{b}" for kind in ("data", "resource") for a, b in found[kind]]
    assert set(pairs) == NUMBERS.keys()
    assert found["dropped"] == [["C[0]", "P7"], ["C[1]", "P7"]]
    assert found["throttle"] == []
    assert found["programs"]["0"].splitlines()[:4] == ["op P", "signal 1", "op P", "signal 2"]
    assert found["programs"]["1"].splitlines()[-3:] == ["wait 1", "op C7", "halt"]
    assert found["checked"]["ok"] is True
    assert found["checked"]["dependences"] == 14


def test_full_and_fifo_are_the_default(heald: Any, file: Path) -> None:
    found = json.loads(heald("warps", file, "--unroll", "--json").out)
    assert (len(found["data"]), len(found["resource"]), found["channel_count"]) == (7, 2, 2)
    assert found["checked"]["ok"] is True


def test_the_output_can_be_checked_alone(heald: Any, file: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs.json"
    programs.write_text(heald("warps", file, "--unroll", "--json").out)
    assert heald("check", file, programs).code == 0
    wrong = json.loads(programs.read_text())
    wrong["programs"]["1"] = wrong["programs"]["1"].replace("wait 0\n", "", 1)
    programs.write_text(json.dumps(wrong))
    assert heald("check", file, programs).code == 1


def test_people_see_edges_channels_and_programs(heald: Any, file: Path) -> None:
    ended = heald("warps", file, "--unroll", "--reduce", "obtained", "--channels", "unique")
    assert ended.code == 0
    assert "C[1] -> P4[0]   resource           4" in ended.out
    assert "C[0] -> P7      resource, dropped" in ended.out
    assert "op C4" in ended.out
    assert "6 channels; correct (exact)" in ended.out


def test_pictures(heald: Any, file: Path, tmp_path: Path) -> None:
    dot, svg = tmp_path / "graph.dot", tmp_path / "graph.svg"
    ended = heald("warps", file, "--unroll", "--dot", dot, "--svg", svg)
    assert ended.code == 0
    assert dot.read_text().startswith("digraph")
    assert svg.read_text().startswith("<svg")
    ended = heald("warps", file, "--unroll", "--svg", tmp_path)
    assert ended.code == 2
    assert f"{tmp_path}: must be a file, not a directory" in ended.err


def test_values_that_edges_were_not_made_of_are_found(heald: Any, tmp_path: Path) -> None:
    text = """
        @program
        def p(x: int[0, 4000]):
            a: Buffer[4000]
            P = f(write=a[1234], warp=0)
            C = g(read=a[x], warp=1, when=x < 3000)
    """
    ended = heald("warps", write(tmp_path, text), "--unroll", "--json")
    found = json.loads(ended.out)
    assert ended.code == 0
    assert found["data"] == [["P", "C"]]
    assert found["checked"]["ok"] is True


@pytest.mark.parametrize(
    ("text", "options", "wanted"),
    [
        (WORKED, ("--set", "warps=1"), "C on warp 1: warps must be at least 2, not 1"),
        (WORKED, ("--set", "channels=1"), "channels must be at least 2, not 1"),
        (WORKED, ("--channels", "unique", "--set", "channels=2"), "channels must be at least"),
        (WORKED.replace("range(3)", "range(3 + p)"), (), "unknown name 'p'"),
        (
            WORKED.replace("C = consume(read=a[10 * i : 10 * i + 10]", "C = consume(read=b"),
            (),
            "C, which reads b[0:60]",
        ),
        (
            WORKED.replace("range(3)", "range(30)").replace("60", "600"),
            ("--set", "imem_words=32"),
            "imem_words",
        ),
        (WORKED.replace("P7 = produce", "P7 = signal"), (), "signal"),
    ],
)
def test_what_is_refused(
    heald: Any, tmp_path: Path, text: str, options: tuple[str, ...], wanted: str
) -> None:
    text = text.replace("a: Buffer[60]", "a: Buffer[60]\n        b: Buffer[60, A]")
    ended = heald("warps", write(tmp_path, text), "--unroll", *options)
    assert ended.code == 2
    assert wanted in ended.err
    assert len(ended.err.splitlines()) == 1
