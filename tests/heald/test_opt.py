"""`heald opt`: what it prints, and how it refuses."""

from __future__ import annotations

import io
import json
import random
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hw.errors import InputError
from sw.ir.parse import parse_program
from sw.passes import PASSES, Stage, named
from tests.budget import cases
from tests.sw.random_tile_programs import random_program

TEXT = """@program
def f(x: int[0, 8], p: bool):
    a: Buffer[64]
    for i in range(4):
        for j in range(4):
            t0 = touch(read=a[j + 4 * i + x:j + 4 * i + x + 1], when=p)
    w0 = touch(write=a[0:8])
    w1 = touch(write=a[0:8])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.py"
    path.write_text(TEXT)
    return path


def test_without_passes_the_program_is_printed(heald: Any, file: Path) -> None:
    ended = heald("opt", file)
    assert (ended.code, ended.out, ended.err) == (0, TEXT, "")


def test_standard_input(heald: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TEXT.encode())))
    assert heald("opt", "-").out == TEXT


def test_json_has_the_program_the_passes_and_counts(heald: Any, file: Path) -> None:
    ended = heald("opt", file, "-p", "canonicalize, hoist", "-p", "dead-store", "--registers", 16, "--json")
    assert (ended.code, ended.err) == (0, "")
    values = json.loads(ended.out)
    assert list(values) == ["program", "passes", "before", "after"]
    assert values["passes"] == ["canonicalize", "hoist", "dead-store"]
    assert values["before"].keys() == values["after"].keys()
    before, after = values["before"], values["after"]
    assert (before["tile_instructions"], after["tile_instructions"]) == (3, 2)
    assert before["scalar_operations"] == 7
    assert after["scalar_executed"] < before["scalar_executed"]
    assert after["registers"] <= 16
    assert "w0" not in values["program"]
    assert str(parse_program(values["program"])) == values["program"]


def test_counts_of_a_while_are_those_of_the_text(heald: Any, tmp_path: Path) -> None:
    path = tmp_path / "w.py"
    path.write_text("@program\ndef f():\n    s = 0\n    while s < 4:\n        s = s + 1\n")
    values = json.loads(heald("opt", path, "--json").out)
    assert (values["before"]["scalar_operations"], values["before"]["registers"]) == (2, None)


def test_print_after_all_shows_every_pass_on_stderr(heald: Any, file: Path) -> None:
    ended = heald("opt", file, "-p", "canonicalize,dead-store", "--print-after-all")
    parts = re.split(r"# ----- after (.*) -----\n", ended.err)
    assert parts[:2] == ["", "canonicalize"]
    assert parts[3] == "dead-store"
    assert "w0" in parts[2]
    assert parts[4].strip() == ended.out.strip()


def test_mlir(heald: Any, file: Path) -> None:
    ended = heald("opt", file, "--emit", "mlir")
    assert ended.out.startswith("module {\n")
    assert ended.out.count("scf.for") == 2
    assert json.loads(heald("opt", file, "--emit", "mlir", "--json").out)["program"] == ended.out


def test_passes_by_name() -> None:
    made = named(list(PASSES), registers=9)
    assert [step.name for step in made] == list(PASSES)
    assert all(isinstance(step, Stage) for step in made)
    assert made[1].registers == 9  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="pass 'x' is unknown"):
        named(["x"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["-p", "fold"],
            "pass 'fold' is unknown; valid are canonicalize, hoist, strength-reduce, dead-store, ",
        ),
        (["-p", "hoist,"], "pass '' is unknown"),
        (["--registers", "0"], "0 is not in the range"),
        (["--emit", "llvm"], "'llvm' is not one of"),
    ],
)
def test_bad_options(heald: Any, file: Path, arguments: list[str], text: str) -> None:
    ended = heald("opt", file, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert text in ended.err
    assert ended.err.count("\n") == 1


def test_bad_programs(heald: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    for body, text in (
        ("t(read=a[0:9])", "4:12: found a[0:9], which ends at 9, expected a region inside of a[0:8]"),
        ("t(read=b)", "4:12: found b, expected a region of a buffer, like a[0:16], or ANY"),
        ("s = p + 1", "4:9: found p of kind bool, expected int"),
        ("while True: pass", "4:5: found while True, which always holds, expected a loop that can end"),
        ("for i in range(0, 4, 0): pass", "4:5: found step 0 of the loop over 'i', which is zero, expected"),
        ("s = (", "4:9: found a syntax error ('(' was never closed), expected Python syntax"),
    ):
        path.write_text(f"@program\ndef f(p: bool):\n    a: Buffer[8]\n    {body}\n")
        ended = heald("opt", path, "--json")
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith(f"heald: {path}:{text}")
        assert ended.err.count("\n") == 1
    assert heald("opt", tmp_path / "none.py").code == 2


WORDS = (
    *(
        "if",
        "else",
        "while",
        "for",
        "in",
        "range",
        "min",
        "max",
        "and",
        "or",
        "not",
        "True",
        "False",
        "lambda",
    ),
    *(
        "def",
        "class",
        "return",
        "yield",
        "async",
        "await",
        "import",
        "ANY",
        "Buffer",
        "int",
        "bool",
        "int8",
        "acc",
    ),
    *("None", "0", "-1", "1", "2147483647", "99999999999", "0x1F", "'x'", "é", "f'{i}'"),
    *"()[]:,=.;@~&|^",
    *("==", ":=", "**", "//", "%", "<<", ">>"),
)


def mutated(rng: random.Random, text: str) -> str:
    """A text with some characters, words or lines deleted, doubled, turned, replaced or swapped."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.randrange(9)
        lines, words = text.split("\n"), re.findall(r"\w+|\s+|.", text)
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        k, m = rng.randrange(len(words)), rng.randrange(len(words))
        at = rng.randrange(len(text))
        to = min(len(text), at + rng.choice((1, 1, 3, 9)))
        if kind == 0:
            text = text[:at] + text[to:]
        elif kind == 1:
            text = text[:to] + text[at:]
        elif kind == 2:
            text = text[:at] + text[at:to][::-1] + text[to:]
        elif kind == 3:
            words[k] = rng.choice(WORDS)
            text = "".join(words)
        elif kind == 4:
            words[k], words[m] = words[m], words[k]
            text = "".join(words)
        elif kind == 5:
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
        elif kind == 6:
            text = "\n".join(lines[:i] + lines[i + 1 :] if len(lines) > 1 else lines)
        else:
            # Names and numbers for others of their kind: most of these are programs again.
            alike = [w for w in words if w[0].isdigit() == words[k][0].isdigit() and w[0].isalnum()]
            if words[k][0].isalnum():
                words[k] = rng.choice([*alike, "0", "-1"]) if words[k][0].isdigit() else rng.choice(alike)
            text = "".join(words)
        text = text or " "
    return text


@pytest.mark.drawn
def test_mutated_programs_are_taken_or_refused(heald: Any, tmp_path: Path) -> None:
    codes: Counter[int] = Counter()
    path = tmp_path / "m.py"
    options: list[list[str]] = [
        [],
        ["--json"],
        ["--emit", "mlir"],
        *(["-p", name] for name in PASSES),
    ]
    count = cases(60, 500)
    for seed in range(count):
        rng = random.Random(seed)
        text = mutated(rng, str(random_program(rng, instructions=rng.choice((2, 5)))))
        path.write_text(text)
        chosen = rng.choice(options)
        ended = heald("opt", path, *chosen)
        codes[ended.code] += 1
        assert ended.code in (0, 2), text + ended.err
        assert "Traceback" not in ended.err
        if ended.code:
            assert ended.out == ""
            # A pass may refuse what the machine cannot run, as a whole.
            place = r"\S*m\.py:\d+:\d+: found .*, expected .*"
            assert re.fullmatch(rf"heald: ({place}{'|sample: .*' if '-p' in chosen else ''})\n", ended.err)
    assert min(codes[0], codes[2]) > count // 10
