"""A compiled model as a test bench, in simulators that know nothing of this project."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hw import csr
from hw.config import load
from tests.heald.network_models import perceptron, save

#: What is run: a compiler of Verilog, and the command that it makes.
ICARUS = ("iverilog", "-g2012", "-o", "testbench", "heald.v", "testbench.sv")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test bench of a small model whose epilogue needs the grid."""
    from heald.cli import call

    folder = tmp_path_factory.mktemp("testbench")
    model = save(folder, perceptron())
    target = folder / "out"
    assert call(["compile", str(model), "--hw", "test", "-o", str(target), "--export", "testbench"]) == 0
    return target / "testbench"


def numbers(path: Path) -> list[int]:
    """The words of a file that `$readmemh` reads."""
    return [int(line, 16) for line in path.read_text(encoding="utf-8").split() if not line.startswith("@")]


def test_files_say_what_is_done_and_what_must_come_out(bench: Path) -> None:
    expected, mask = numbers(bench / "program0.expected.hex"), numbers(bench / "program0.mask.hex")
    assert len(expected) == len(mask) > 0
    assert any(mask)
    assert not any(value & ~bits for value, bits in zip(expected, mask, strict=True))
    status, error, cycles, *_ = numbers(bench / "program0.results.hex")
    assert (status, error) == (0b11010, 0)
    assert cycles > 0
    text = (bench / "testbench.sv").read_text(encoding="utf-8")
    assert f"parameter SCRIPT = {len(numbers(bench / 'program0.script.hex'))};" in text
    assert "./testbench +program=program0" in (bench / "README.txt").read_text(encoding="utf-8")


def test_a_directory_with_a_test_bench_is_run_as_any_other(bench: Path, heald: Any) -> None:
    (bench / "testbench.sv").touch()
    ended = heald("run", bench.parent, "--sim", "cpp")
    assert ended.code == 0, ended.err


def flipped(bench: Path) -> None:
    """Expect another bit of a word of a tensor."""
    path = bench / "program0.expected.hex"
    place = next(i for i, bits in enumerate(numbers(bench / "program0.mask.hex")) if bits & 1)
    words = numbers(path)
    words[place] ^= 1
    path.write_text("".join(f"{word:08x}\n" for word in words))


def forgotten(bench: Path) -> None:
    """Leave out all that memory holds before the run."""
    (bench / "program0.memory.hex").write_text("")


def absent(bench: Path) -> None:
    """A program that is not there."""
    (bench / "program0.script.hex").unlink()


def untold(bench: Path) -> None:
    """Open a window at an address that is X."""
    offset = next(r.offset for r in csr.registers(load("test")) if r.name == "WINDOW0_FIRST")
    path = bench / "program0.script.hex"
    text = path.read_text(encoding="utf-8")
    assert f"0001{offset:04x}" in text
    path.write_text(re.sub(rf"^(0001{offset:04x}).{{8}}$", r"\1xxxxxxxx", text, flags=re.MULTILINE))


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog (Debian: iverilog) is not installed"
)
@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        (lambda bench: None, (), "PASS: "),
        (lambda bench: None, ("+base=9abcd000", "+unknown"), "PASS: "),
        (lambda bench: None, ("+base=9abcd004",), "FAIL: "),
        (flipped, (), "FAIL: 1 "),
        (forgotten, ("+unknown",), "FAIL: "),
        (untold, (), "was unknown"),
        (absent, (), "FAIL: nothing was checked"),
    ],
    ids=["right", "elsewhere, with X", "no base", "flipped", "X is read", "X in control", "no script"],
)
def test_icarus_finds_what_was_predicted(
    bench: Path, change: Callable[[Path], None], arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(bench, tmp_path / "bench")
    change(folder)
    subprocess.run(ICARUS, cwd=folder, check=True, timeout=600)
    command = ["./testbench", "+program=program0", *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    lines = ended.stdout.splitlines()
    assert any(said in line for line in lines), lines[-20:]
    right = said == "PASS: "
    assert (ended.returncode == 0) is right
    assert [line[:6] for line in lines if line[:4] in ("PASS", "FAIL")] == ["PASS: " if right else "FAIL: "]
