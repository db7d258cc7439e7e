"""A reader of pages, and a simulator that stands for the RTL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cosim.backends import simulator
from cosim.job import Outcome
from heald.cli import call
from hw.config import MachineConfig, load
from tests.docs.blocks import ROOT
from tests.docs.reader import Reader
from tests.heald.conftest import Ended, Quick

#: Modules that make simulators.
_USERS = ("heald.session", "heald.loops", "heald.exploration.evaluate", "cosim.backends")


def install(monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any]) -> None:
    """Let `make` make all simulators."""
    for name in _USERS:
        monkeypatch.setattr(f"{name}.simulator", make)
    monkeypatch.setattr("heald.exploration.command.check_tools", lambda sim: None)


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A simulator without RTL stands for the RTL; call it to spoil outcomes."""

    def spoilt(spoil: Callable[[Outcome], Outcome] = lambda outcome: outcome) -> None:
        install(monkeypatch, lambda config, *_: Quick(config, spoil=spoil))

    spoilt()
    return spoilt


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The RTL of `test`, which other tests build too; of other machines a simulator without RTL."""
    known = load("test").hash

    def make(config: MachineConfig, *options: Any) -> Any:
        return simulator(config, *options) if config.hash == known else Quick(config)

    install(monkeypatch, make)


@pytest.fixture
def reader(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_plugins_after: None,
) -> Reader:
    """A reader at the root of a clone that has no `build/` of its own."""

    def captured(run: Callable[[], int]) -> Ended:
        capsys.readouterr()
        code = run()
        return Ended(code, *capsys.readouterr())

    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    for name in ("bench", "docs", "examples", "hw", "sw", "cosim", "heald", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    read = Reader(call, captured)
    read.names["monkeypatch"] = monkeypatch
    return read
