"""`heald check`: its answers, exit codes and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
@program
def p(q: bool):
    a: Buffer[40]
    for i in range(3):
        P = f(write=a[10*i : 10*i + 10], warp=0)
        C = f(read=a[10*i : 10*i + 10], warp=1)
    R = f(write=a, when=q, warp=0)
"""
TEXTS = {
    "0": "li r1, 3\nloop r1, A\nop P\nsignal 0\nA:\nwait 1\narg r2, q\n@r2 op R\nhalt",
    "1": "li r1, 3\nloop r1, A\nwait 0\nop C\nA:\nsignal 1\nhalt",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def programs(path: Path, value: object) -> Path:
    made = path.with_name("programs.json")
    made.write_text(value if isinstance(value, str) else json.dumps(value))
    return made


def test_right_programs(heald: Any, file: Path) -> None:
    ended = heald("check", file, programs(file, TEXTS), "--json")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == {
        "ok": True,
        "method": "exact",
        # P[i] to C[i] for both values of q, and C[i] to R for one.
        "dependences": 2 * 3 + 3,
        "instances": 6 + 7,
        "bindings": 2,
        "channels": {
            "0": {"from": 0, "to": 1, "tokens": 3, "most": 3},
            "1": {"from": 1, "to": 0, "tokens": 1, "most": 1},
        },
        "deadlock": False,
    }
    ended = heald("check", file, programs(file, {"programs": TEXTS, "channel_count": 2}))
    assert ended.code == 0
    assert "correct (exact): 9 dependences between 13 instances are enforced over 2 choices" in ended.out
    assert "no deadlock" in ended.out


def test_wrong_programs_are_answered_with_a_schedule(heald: Any, file: Path) -> None:
    wrong = programs(file, TEXTS | {"0": TEXTS["0"].replace("wait 1\n", "")})
    ended = heald("check", file, wrong, "--json")
    assert ended.code == 1
    found = json.loads(ended.out)
    assert (found["ok"], found["parameters"]) == (False, {"q": 1})
    assert found["schedule"][-1] == (
        "warp 0: runs R (line 7), which overwrites a[0:10] that C[0] (warp 1, line 4) has not read yet"
    )
    ended = heald("check", file, wrong)
    assert ended.code == 1
    assert "wrong: R (warp 0, line 7) can run too early" in ended.out
    assert "with q = 1" in ended.out
    assert found["schedule"][-1] in ended.out


def test_the_machine_gives_the_limits(heald: Any, file: Path) -> None:
    many = {"0": "li r1, 9\nloop r1, B\nsignal 2\nB:\n" + TEXTS["0"], "1": TEXTS["1"]}
    ended = heald("check", file, programs(file, many))
    assert ended.code == 1
    assert (
        "channel 2 can overflow: warp 0: signals channel 2 (line 3), which already holds 8 tokens"
        in ended.out
    )
    assert heald("check", file, programs(file, many), "--set", "channel_depth=9").code == 0
    ended = heald("check", file, programs(file, TEXTS), "--set", "channels=1")
    assert (ended.code, ended.out) == (2, "")
    assert "warp 0, line 6: wait: channel must be 0 to 0, not 1" in ended.err


def test_standard_input(heald: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = heald("check", "-", "-")
    assert (ended.code, ended.out) == (2, "")
    assert "cannot both be standard input" in ended.err


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "programs.json: must hold JSON: "),
        ("[" * 100_000, "programs.json: must hold JSON: "),
        ("[1]", "programs.json: must hold a JSON object of assembly by warp, not list"),
        ({"programs": 1}, "programs.json: must be an object of assembly by warp, not int"),
        ({"x": "halt"}, "programs.json: a key must be the number of a warp, not 'x'"),
        ({"0": 1}, "programs.json: warp 0: must be assembly text, not int"),
        ({"99": "halt"}, "warp 99: the machine has warps 0 to 5"),
        ({"0": "nothing"}, "warp 0, line 1: unknown instruction 'nothing'"),
        ({"0": "op P"}, "warp 0 runs past its end: a halt must end it"),
        (TEXTS | {"0": "arg r1, z\nhalt"}, "warp 0: the program has no parameter z"),
    ],
)
def test_bad_input_is_told_in_one_line(heald: Any, file: Path, value: object, message: str) -> None:
    ended = heald("check", file, programs(file, value))
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1


def test_files_that_are_not_there(heald: Any, file: Path) -> None:
    for arguments in ((file, "nowhere.json"), ("nowhere.py", programs(file, TEXTS))):
        ended = heald("check", *arguments)
        assert ended.code == 2
        assert "cannot be read" in ended.err


def test_instructions_without_warps_get_them(heald: Any, file: Path) -> None:
    """Those of `heald warps`: a warp for each name of generic instructions."""
    text = PROGRAM.replace(", warp=0", "").replace(", warp=1", "").replace("C = f", "C = g")
    file.write_text(text, encoding="utf-8")
    ended = heald("check", file, programs(file, TEXTS), "--json")
    assert (ended.code, json.loads(ended.out)["ok"]) == (0, True)
    swapped = {"0": TEXTS["1"], "1": TEXTS["0"]}
    assert heald("check", file, programs(file, swapped)).code == 1


def test_a_loop_without_bound(heald: Any, file: Path) -> None:
    file.write_text(
        "@program\ndef long(n: int[0, 100000]):\n    a: Buffer[20]\n    for i in range(n):\n"
        "        P = f(write=a[(i % 2)*10 : (i % 2)*10 + 10], warp=0)\n"
        "        C = f(read=a[(i % 2)*10 : (i % 2)*10 + 10], warp=1)\n",
        encoding="utf-8",
    )
    texts = {
        "0": "arg r1, n\nloop r1, A\nwait 1\nop P\nsignal 0\nA:\nhalt",
        "1": "signal 1\nsignal 1\narg r1, n\nloop r1, A\nwait 0\nop C\nsignal 1\nA:\nhalt",
    }
    ended = heald("check", file, programs(file, texts), "--json")
    assert (ended.code, json.loads(ended.out)["method"]) == (0, "symbolic")
    ended = heald("check", file, programs(file, texts | {"1": "signal 1\n" + texts["1"]}))
    assert ended.code == 1
    assert "with n = 3" in ended.out
