"""The page of JSON objects matches what the commands print: no key is missing, and none is extra."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosim.advice import Advice, Change
from cosim.compare import Divergence
from cosim.device import Device, DeviceSimulator
from cosim.job import Job, MachineError, Outcome
from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.cli import COMMANDS, call, cli
from heald.model_run import DeviceRun, run_model
from hw.config import load
from hw.isa import Cause
from hw.synthesis.flow import Design
from hw.synthesis.report import path
from sw.check import Verdict
from sw.check.binding import Flow
from sw.frontend.network import import_model
from sw.graph.accuracy import Accuracy
from tests.cosim.device.fakes import FakeBus
from tests.docs.blocks import ROOT, Block, blocks
from tests.docs.json_page import Compared, anchor, read, tables
from tests.heald.conftest import Quick
from tests.heald.network_models import hosted, perceptron, save
from tests.heald.report_pages import late
from tests.hw.synthesis.designs import SMALL
from tests.sw.models import matmul_integer

PAGE = ROOT / "docs/reference/json.md"
#: Commands without JSON.
WITHOUT = {"heald csr"}
#: Sections that take seconds.
SLOW = {"heald-explore", "heald-verilog", "heald-fpga"}
#: Problems, and a program that no warp can execute.
FILES = {
    "shape.json": '{"m": 24, "k": 40, "n": 16}',
    "image.json": """{"conv": {"sn": 1, "ic": 3, "h": 8, "w": 8, "oc": 8, "kh": 3, "kw": 3,
        "stride": 1, "pad": 1, "dilation": 1}}""",
    "refused.toml": 'base = "test"\n[parameters]\nacc_bytes = [256, 8192]\nrows = [8]\n',
    "limited.toml": 'base = "test"\nlimits = ["luts <= 10"]\n[parameters]\nrows = [4]\n',
    "while.py": """
@program
def p(n: int):
    a: Buffer[4]
    i = 0
    while i < n:
        A = f(read=a)
        i = i + 1
""",
}
#: A model all of whose tensors are onnxruntime's.
SAME_RESULT = "hosted.onnx --hw test --allow-host --compare onnxruntime"
#: The sections of commands that print an object of another one.
SAME = {"heald-check": "verdict"}


def stopped(outcome: Outcome) -> Outcome:
    """A machine that stopped with an error, and left wrong results."""
    outputs = [o ^ 1 for o in outcome.outputs]
    return replace(outcome, error=MachineError(Cause.WINDOW, 3, 1), outputs=outputs)


def unstored(outcome: Outcome) -> Outcome:
    """Wrong results of a loop."""
    return replace(outcome, outputs=[o ^ 1 for o in outcome.outputs])


@pytest.fixture
def heald(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command in a folder with the files of the page, and gives its output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    save(tmp_path, perceptron())
    save(tmp_path, hosted(), "hosted.onnx")
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")

    def run(line: str, code: int = 0) -> str:
        words, _, file = line.partition(" > ")
        capsys.readouterr()
        ended = call(shlex.split(words)[1:])
        printed = capsys.readouterr()
        assert ended == code, f"{line}\n{printed.err}"
        if file:
            Path(file).write_text(printed.out, encoding="utf-8")
        return "" if file else printed.out

    return run


def commands() -> Iterator[tuple[str, Block]]:
    """The blocks of the page with their sections."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for block in blocks(PAGE):
        titles = [line for line in lines[: block.line] if line.startswith("## ")]
        yield anchor(titles[-1].removeprefix("## ")), block


def compare(compared: Compared, heald: Callable[..., str], chosen: Callable[[str], bool]) -> None:
    """Run the commands of sections, and compare what they print."""
    for section, block in commands():
        if chosen(section):
            *lines, last = block.text.replace("\\\n", " ").splitlines()
            for line, code in (*((one, 0) for one in lines), (last, block.code)):
                printed = heald(line, code)
                if printed and "--json" in line:
                    compared.add(SAME.get(section, section), json.loads(printed))


def test_every_command_with_json_has_a_section() -> None:
    def names(command: Any, name: str) -> Iterator[str]:
        inner = getattr(command, "commands", {})
        if not inner:
            assert name in WITHOUT or "--json" in {o for p in command.params for o in p.opts}, name
            yield name
        for key, one in inner.items():
            yield from names(one, f"{name} {key}")

    found = {name for key in COMMANDS for name in names(cli.commands[key], f"heald {key}")}
    sections = {section for section, _ in commands()}
    assert {anchor(name) for name in found - WITHOUT} <= sections


def board(found: Compared) -> None:
    """A model on a board, which stops with an error and leaves wrong results, or does not."""
    config = load("test")

    class Board(Device):
        spoil = staticmethod(lambda outcome: outcome)

        def run(self, job: Job, timeout: float | None = 60.0) -> Outcome:
            (outcome,) = Quick(config, spoil=self.spoil).run([job])
            return replace(outcome, events=[])

    model = compile_model(import_model(matmul_integer((5, 9), (9, 7))), config)
    given = {"a0": np.ones((5, 9), np.uint8), "b0": np.ones((9, 7), np.int8)}
    for spoil in (stopped, lambda outcome: outcome):
        Board.spoil = staticmethod(spoil)
        machine = DeviceSimulator(Board(FakeBus(config), config))
        ran = run_model(
            model, given, MemorySettings.of(config), lambda machine=machine: machine, kind=DeviceRun
        )
        found.add("heald-run---device", ran.as_dict())


def rare() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Objects by section that only broken machines, models or programs have."""
    yield "divergence", Divergence("output", 5, None, 5, pe=1, stored=(4, 7), got_stored=(4, 8)).as_dict()
    other = Divergence("issue", None, 7, 7, 0, 3, "halt", got_pc=4, got_instruction="nop").as_dict()
    yield "divergence", other | {"operator": None, "program": "p"}
    flows = {0: Flow((0, 1), (2, 3), 4, 1), 1: Flow((), (), 0, 0)}
    broken = Verdict(False, "sampled", "a wait is missing", ("warp 0: P",), {"q": 1}, channels=flows)
    yield "verdict", broken.as_dict()
    yield "advice", Advice(9, {"gemm": 9}, (Change("twice the rows", "gemm", None, "too large"),)).as_dict()
    yield "accuracy", Accuracy("node", -1.0, 1.0, 0.01, bits=8).as_dict()
    yield "accuracy", Accuracy("node", -1.0, 1.0, 0.01, step=0.1).as_dict()


def test_the_page_says_what_commands_print(heald: Callable[..., str], spoil: Callable[..., None]) -> None:
    found = Compared(read(PAGE))
    compare(found, heald, lambda section: section not in SLOW)
    for broken in (late, stopped):
        spoil(broken)
        for line in ("model.onnx", "--matmul 9x9x9"):
            found.add("heald-run", json.loads(heald(f"heald run {line} --hw test --json", 1)))
    loop = "heald cgra run examples/08_grid_kernels/kernels.py:saxpy --json"
    for broken in (late, unstored):
        spoil(broken)
        found.add("heald-cgra-run", json.loads(heald(loop, 1)))
    spoil()
    found.add("heald-run", json.loads(heald(f"heald run {SAME_RESULT} --json")))
    heald("heald run --matmul 9x9x9 --hw test --json > m.json")
    found.add("heald-compare", json.loads(heald("heald compare a.json m.json --json")))
    found.add("heald-compare", json.loads(heald("heald compare m.json a.json --json")))
    found.add("heald-opt", json.loads(heald("heald opt while.py --json")))
    board(found)
    for section, value in rare():
        found.add(section, json.loads(json.dumps(value)))
    assert sorted(found.problems) == []
    assert list(found.missing([s for s in found.sections if s not in SLOW])) == []


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A small design stands for the machine on the FPGA; call it with the name of its board."""

    def install(board: str | None = None) -> None:
        text = SMALL.replace("module small", "module heald")
        monkeypatch.setattr("heald.cli.fpga.design", lambda config, top, *_: Design(top, text, board=board))

    install()
    return install


@pytest.mark.slow
def test_the_page_says_what_slow_commands_print(
    heald: Callable[..., str], spoil: Callable[..., None], small: Callable[..., None]
) -> None:
    found = Compared(read(PAGE))
    compare(found, heald, SLOW.__contains__)
    spoil(late)
    options = "model.onnx --executor processes:1 --json"
    found.add("heald-explore", json.loads(heald(f"heald explore refused.toml {options} --confirm 1", 1)))
    found.add("heald-explore", json.loads(heald(f"heald explore limited.toml {options}")))
    found.add("heald-fpga", json.loads(heald("heald fpga --hw tiny --device 85k --frequency 900 --json", 1)))
    small("ulx3s")
    placed = json.loads(heald("heald fpga --hw tiny --device 85k --json"))
    found.add("heald-fpga", placed)
    found.add("heald-fpga", placed | {"critical_path": path(SimpleNamespace(critical_path=()))})
    assert sorted(found.problems) == []
    assert list(found.missing(sorted(SLOW))) == []


def test_what_is_missing_is_found() -> None:
    page = "## A\n| `a` | number | 1 |\n"
    page += "| `b` (optional) | list of object | 2 |\n| `b[].c` | string or null | 3 |\n"
    found = Compared(tables(page))
    found.add("a", {"a": 1, "b": [{"c": None}], "d": 2})
    found.add("a", {"a": "text", "b": []})
    assert found.problems == {"a: d is not on the page", "a: a is number, not text"}
    assert set(found.missing(["a"])) == {"a: b is always there", "a: b.c was never string"}
