"""Small spaces and models, whose points take a fraction of a second each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.heald.network_models import integers, perceptron

#: Sixteen points, two of which cannot be built: 256 bytes of accumulator are too few for 8 rows and columns.
SPACE = """\
base = "test"

[parameters]
rows = [4, 8]
cols = [4, 8]
acc_bytes = [256, 8192]
load_a_latency = { from = 6, to = 20, step = 14 }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `space.toml`, `tiny.onnx` (one addition) and `net.onnx` (two products), to work in."""
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "tiny.onnx").write_bytes(integers().SerializeToString())
    (tmp_path / "net.onnx").write_bytes(perceptron().SerializeToString())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def space(folder: Path) -> Callable[[str], Path]:
    """Writes another space."""

    def write(text: str) -> Path:
        path = folder / "other.toml"
        path.write_text(text)
        return path

    return write
