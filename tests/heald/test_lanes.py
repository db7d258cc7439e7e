"""Models on a machine whose CGRA has lanes: the same results, in fewer cycles."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.heald.conftest import Ended

ROOT = Path(__file__).resolve().parents[2]
#: Eight columns for eight lanes.
MACHINE = ("--hw", "test", "--set", "cols=8", "--set", "scratch_bytes=32768")
VECTOR = (*MACHINE, "--set", "cgra=vector4x4")
MODELS = {
    "09_bert_encoder": "--sequence 16 --hidden 32 --heads 2 --feed-forward 64",
    "10_resnet_bottleneck": "--size 8 --channels 16 --inner 8",
}


def model(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    make = [
        sys.executable,
        ROOT / "examples" / name / "make_model.py",
        "--output",
        path,
        *MODELS[name].split(),
    ]
    subprocess.run(make, check=True, capture_output=True, cwd=ROOT)
    return path


def run(heald: Callable[..., Ended], *arguments: object) -> dict[str, Any]:
    ended = heald("run", *arguments, "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_results_are_the_references(
    heald: Callable[..., Ended], quick: object, tmp_path: Path, name: str
) -> None:
    path = model(name, tmp_path)
    plain, wide = (run(heald, path, *machine) for machine in (MACHINE, VECTOR))
    assert wide["correct"]
    assert wide["cycles"] < plain["cycles"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_rtl_does_the_same(heald: Callable[..., Ended], tmp_path: Path, name: str) -> None:
    found = run(heald, model(name, tmp_path), *VECTOR)
    assert found["correct"]
    assert found["cycles"] == found["model_cycles"]
