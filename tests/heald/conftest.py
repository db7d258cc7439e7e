"""A command line to call, and a simulator without a build: cycles from the model, bytes interpreted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cosim.job import Job, Outcome
from cosim.models.cycle import predict
from cosim.models.functional import Memories
from heald.cli import call
from hw.config import MachineConfig
from tests.heald import chromium, page_layout
from tests.sw.functional import Machine

#: What a problem file says beside its shape.
MACHINE: dict[str, Any] = {
    "elem_bytes": 1,
    "acc_elem_bytes": 4,
    "bw_a": 8,
    "bw_b": 32,
    "buf_a": 32768,
    "buf_b": 32768,
    "acc_max": 65536,
    "macs_per_cycle": 4096,
    "block_m": 16,
    "block_n": 16,
    "sync_granularity": 64,
}


@dataclass
class Ended:
    """How a command ended: exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def heald(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Calls the command line in this process."""

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = call([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


@dataclass
class Quick:
    """A simulator without RTL; `spoil` changes outcomes. Buffers keep what one job leaves to the next."""

    config: MachineConfig
    build_seconds: float = 0.0
    spoil: Callable[[Outcome], Outcome] = lambda outcome: outcome
    memories: Memories | None = None

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Outcomes as the RTL would give them."""
        outcomes = []
        for job in jobs:
            ends = (a + len(data) for a, data in job.memory), (r.address + r.size for r in job.outputs)
            memory = np.zeros(max(1 << 20, *itertools.chain(*ends)), np.uint8)
            for address, data in job.memory:
                memory[address : address + len(data)] = data
            self.memories = self.memories or Memories(self.config, memory)
            Machine(self.config, job.programs, memory, memories=self.memories).run()
            outputs = [memory[r.address : r.address + r.size].copy() for r in job.outputs]
            outcomes.append(self.spoil(replace(predict(self.config, job), outputs=outputs, seconds=0.001)))
        return outcomes


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Outcome], Outcome]], None]:
    """Makes `heald run` and `cgra run` use the quick simulator; call it to spoil outcomes."""

    def install(spoil: Callable[[Outcome], Outcome] = lambda outcome: outcome) -> None:
        monkeypatch.setattr("heald.session.simulator", lambda config, name, waves: Quick(config, spoil=spoil))
        monkeypatch.setattr("heald.loops.simulator", lambda config, name: Quick(config, spoil=spoil))

    install()
    return install


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, for all tests of a module."""
    driver = chromium.started(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


@pytest.fixture(
    params=[
        pytest.param((width, colours), marks=[pytest.mark.slow] * (width != 1280), id=f"{width}-{colours}")
        for width, colours in itertools.product((900, 1280, 1600), ("light", "dark"))
    ]
)
def look(request: pytest.FixtureRequest, browser: Any) -> Iterator[int]:
    """The width of the window; pages are light or dark."""
    width, colours = request.param
    page_layout.scheme(browser, colours)
    yield width
    page_layout.scheme(browser, "")
