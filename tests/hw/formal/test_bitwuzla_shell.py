"""The program that makes Bitwuzla answer commands one at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hw.formal.bitwuzla_shell import commands, install


def _ask(tmp_path: Path, text: str) -> list[str]:
    program = str(install(tmp_path))
    done = subprocess.run([program, "--lang", "smt2"], input=text, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_commands_end_with_their_last_parenthesis() -> None:
    lines = ["(set-logic QF_BV) ; one (\n", "\n", "(declare-fun |a)b| ()\n", " Bool)\n", '(echo "(")\n']
    assert list(commands(lines)) == [
        "(set-logic QF_BV) ; one (\n",
        "(declare-fun |a)b| ()\n Bool)\n",
        '(echo "(")\n',
    ]


def test_levels_are_kept_and_left(tmp_path: Path) -> None:
    declared = "(declare-fun a () (_ BitVec 4))"
    script = f"""(set-logic QF_BV)
(push 1)
{declared}
(assert (= a #x5))
(check-sat)
(get-value (a))
(push 2)
(assert (= a #x6))
(check-sat)
(pop 2)
(check-sat)
(pop 1)
{declared}
(assert (= a #x6))
(check-sat)
(exit)
(check-sat)
"""
    assert _ask(tmp_path, script) == ["sat", "((a #b0101))", "unsat", "sat", "sat"]


def test_an_answer_comes_before_the_input_ends(tmp_path: Path) -> None:
    program = str(install(tmp_path))
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("(set-logic QF_BV)\n(check-sat)\n")
        process.stdin.flush()
        assert process.stdout.readline() == "sat\n"
        process.stdin.write("(exit)\n")


def test_a_command_that_is_refused_is_answered(tmp_path: Path) -> None:
    (answer,) = _ask(tmp_path, "(set-logic QF_BV)\n(assert nothing)\n")
    assert answer.startswith('(error "')
    assert "nothing" in answer


def test_the_program_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = install(tmp_path)
    when = first.stat().st_mtime_ns
    assert (install(tmp_path), first.stat().st_mtime_ns) == (first, when)
    monkeypatch.setattr("sys.executable", "/another/python")
    assert install(tmp_path) != first
    assert not list(tmp_path.rglob("*.partial"))
