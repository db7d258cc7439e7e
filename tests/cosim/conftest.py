"""Shared by the simulation tests: the preset `test` without its CGRA, and a fake machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim.build import Build, build
from hw import config
from hw.config import MachineConfig

FAKE = Path(__file__).parent / "fake_machine.v"


@pytest.fixture(scope="session")
def small() -> MachineConfig:
    return config.load("test").replace(cgra=None)


@pytest.fixture(scope="session")
def fake(small: MachineConfig) -> Build:
    """The harness with the fake machine in it (fake_machine.v says what it does)."""
    return build(small, text=FAKE.read_text())
