"""`--plugin FILE.py`: a user's own operator in all commands that take a model, and mistakes in its file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest

from heald.testing.models import Builder

PAGE = Path(__file__).parents[2] / "docs/tutorials/operator.md"
SPACE = """
base = "test"
[parameters]
load_c_bytes = [8, 16]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_plugins_after: None) -> Path:
    """The current directory, with the operator of the tutorial and a model of it."""
    found = re.search(r'title="build/hardmax.py"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "hardmax.py").write_text(found[1], encoding="utf-8")
    b = Builder()
    x = b.real(b.input((5, 12)), "int8")
    onnx.save(b.model(b.quantised(b.op("Hardmax", x, axis=-1), "int8")), tmp_path / "hardmax.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_take_models_with_a_users_operator(heald: Any, folder: Path) -> None:
    run = ("run", "hardmax.onnx", "--hw", "test", "--sim", "cpp", "--json")
    refused = heald(*run)
    assert refused.code == 2
    assert "n1 (Hardmax): the operator is not supported" in refused.err
    plugin = ("--plugin", "hardmax.py")
    ran = heald(*run, *plugin, "--compare", "onnxruntime")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["correct"]
    assert [(o["op"], o["where"]) for o in told["operators"]] == [("Hardmax", "machine")]
    explained = json.loads(heald("explain", "hardmax.onnx", "--hw", "test", *plugin, "--json").out)
    assert explained["refused"] == []
    assert heald("compile", "hardmax.onnx", "--hw", "test", *plugin, "-o", "made").code == 0
    compared = heald("compare", "made", "made", *plugin, "--json")
    assert json.loads(compared.out)["total"]["a"]["cycles"] == told["cycles"]


@pytest.mark.slow
def test_workers_of_an_exploration_have_the_operator(heald: Any, folder: Path) -> None:
    (folder / "space.toml").write_text(SPACE)
    explore = ("explore", "space.toml", "hardmax.onnx", "--executor", "processes:1", "--json")
    ended = heald(*explore, "--plugin", "hardmax.py")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert (told["trials"], told["refused"], told["failed"]) == (2, 0, 0)
    # Its points are those of another compiler than that of the same file with other loops.
    (folder / "other.py").write_text((folder / "hardmax.py").read_text() + "# changed\n")
    changed = heald(*explore, "--plugin", "other.py")
    assert changed.code == 2
    assert "version of the compiler" in changed.err


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "", "nowhere.py: cannot be read: No such file or directory"),
        ("import numpy as np", "import numpie as np", "wrong.py:{}: ModuleNotFoundError: No module named"),
        ("    rank = len(value.shape)", "    rank = len(", "wrong.py:{}: SyntaxError: '(' was never closed"),
        ("at = c if value", "at = d if value", "wrong.py:{}:6: found unknown name 'd', expected a parameter"),
        ("y[e] = one if", "y[e] = one / 2 if", "wrong.py:{}:8: found one / 2, expected one of"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line(
    heald: Any, folder: Path, old: str, new: str, told: str
) -> None:
    name = told.partition(":")[0]
    before, _, after = (folder / "hardmax.py").read_text().partition(old or "\n")
    (folder / "wrong.py").write_text(before + new + after)
    ended = heald("compile", "hardmax.onnx", "--hw", "test", "--plugin", name, "-o", "made")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith(f"heald: {told.format(before.count(chr(10)) + 1)}")
    assert "host" not in ended.err
    assert not (folder / "made").exists()
