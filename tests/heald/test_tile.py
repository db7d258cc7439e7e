"""`heald tile`: what it prints, and how it refuses."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sw.tiling.plan import plan
from sw.tiling.problem import TilingProblem
from tests.heald.conftest import MACHINE

PROBLEM: dict[str, Any] = {"m": 512, "k": 1024, "n": 4096} | MACHINE
OUTPUTS = {
    "partition_m",
    "partition_n",
    "partition_k",
    "tile_m",
    "tile_n",
    "loop_order",
    "split_k",
    "acc_needed",
    "loads_a",
    "loads_b",
    "utilization",
    "cycles",
    "bytes_a",
    "bytes_b",
    "reason",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    return path


class _Stdin:
    def __init__(self, data: bytes):
        self.buffer = io.BytesIO(data)


def test_json_is_the_plan_with_all_outputs_by_name(heald: Any, file: Path) -> None:
    ended = heald("tile", file, "--json")
    assert (ended.code, ended.err) == (0, "")
    values = json.loads(ended.out)
    assert set(values) == OUTPUTS
    planned = plan(TilingProblem(**PROBLEM))
    assert values == planned.as_dict() | {"loop_order": list(planned.loop_order)}
    assert values["split_k"]


def test_the_table_shows_sizes_loads_loops_and_reason(heald: Any, file: Path) -> None:
    ended = heald("tile", file)
    assert ended.code == 0
    planned = plan(TilingProblem(**PROBLEM))
    assert "512×1024×4096" in ended.out
    for number in (planned.partition_m, planned.partition_n, planned.acc_needed, planned.bytes_a):
        assert f"{number:,}" in ended.out
    assert "m_outer, n_outer, k, n_inner, m_inner (K split" in ended.out
    assert " ".join(planned.reason.split()) in " ".join(ended.out.split())


def test_a_convolution(heald: Any, tmp_path: Path) -> None:
    values = {name: value for name, value in PROBLEM.items() if name not in "mkn"}
    values["conv"] = {"sn": 1, "ic": 64, "h": 56, "w": 56, "oc": 64, "kh": 3, "kw": 3}
    values["conv"] |= {"stride": 1, "pad": 1, "dilation": 1}
    (tmp_path / "c").write_text(json.dumps(values))
    ended = heald("tile", tmp_path / "c")
    assert ended.code == 0
    assert "64×576×3136, a convolution of 1×64×56×56" in ended.out


def test_standard_input(heald: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Stdin(json.dumps(PROBLEM).encode()))
    assert heald("tile", "-", "--json").code == 0
    monkeypatch.setattr(sys, "stdin", _Stdin(b'{"m": 0}'))
    assert heald("tile", "-").err.startswith("heald: standard input: ")
    monkeypatch.setattr(sys, "stdin", None)
    ended = heald("tile", "-")
    assert (ended.code, ended.err) == (2, "heald: standard input: cannot be read: it is closed\n")


def replaced(name: str, number: str) -> bytes:
    return json.dumps(PROBLEM | {name: "@"}).replace('"@"', number).encode()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "must hold JSON: Expecting value"),
        (b"{", "must hold JSON: "),
        (b"\xff\xfe", "must hold JSON: "),
        (b"[" * 100000, "must hold JSON: "),
        (b"[1]", "must hold a JSON object of names and numbers, not list"),
        (b'{"m": 1, "m": 2}', "m must be given once, it appears twice"),
        (b'{"conv": {"kh": 1, "kh": 2}}', "kh must be given once, it appears twice"),
        (b'{"\\ud800": 1, "m": 2}', r"'\ud800' is unknown"),
        (b"{}", "acc_elem_bytes, acc_max, block_m, "),
        (replaced("m", "1e400"), "m must be a whole number from 1 to 2147483647, not inf"),
        (
            replaced("m", "1" + "0" * 400),
            "m must be a whole number from 1 to 2147483647, not a number of about",
        ),
        (replaced("m", "1" + "0" * 9000), "m must be a whole number from 1 to 2147483647, not inf"),
        (replaced("bw_a", "1e400"), "bw_a must be a number from 1e-06 to 1e+15, not inf"),
        (replaced("bw_a", "NaN"), "bw_a must be a number from 1e-06 to 1e+15, not nan"),
        (replaced("buf_a", "true"), "buf_a must be a whole number from 1 to 9007199254740992, not True"),
        (
            replaced("buf_a", "8"),
            "buf_a must hold a single block of depth 1: 16 rows of A need 16 bytes, there",
        ),
        (replaced("conv", "{}"), "m, k, n must not be given beside conv"),
    ],
)
def test_refusals_are_one_line_with_the_place(heald: Any, tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    for options in ((), ("--json",)):
        ended = heald("tile", path, *options)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith(f"heald: {path}: {text}")
        assert ended.err.count("\n") == 1


def test_unreadable_files(heald: Any, tmp_path: Path) -> None:
    assert "none.json: cannot be read: No such file" in heald("tile", tmp_path / "none.json").err
    assert "cannot be read: Is a directory" in heald("tile", tmp_path).err
    assert heald("tile").code == 2
