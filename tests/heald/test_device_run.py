"""A model on a device: results against the reference, cycles as the device counts them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.device import Device, DeviceSimulator
from cosim.job import Job, Outcome
from cosim.session.network import CompiledModel, compile_model
from cosim.settings import MemorySettings
from heald.model_run import DeviceRun, ModelRun, run_model, run_on_device
from hw.config import load
from hw.errors import InputError
from sw.frontend.network import import_model
from tests.cosim.device.fakes import FakeBus
from tests.sw.models import matmul_integer

CONFIG = load("test")


class Board(Device):
    """A device whose runs are those of the RTL in another simulation, without events as from a board."""

    spoil = False

    def run(self, job: Job, timeout: float | None = 60.0) -> Outcome:
        (outcome,) = simulator(CONFIG, "cpp").run([job])
        outputs = [o ^ 1 for o in outcome.outputs] if self.spoil else outcome.outputs
        return dataclasses.replace(outcome, events=[], outputs=outputs)


def ran(model: CompiledModel, inputs: dict[str, np.ndarray], board: Board) -> ModelRun:
    """A run on a board that is there."""
    machine = DeviceSimulator(board)
    return run_model(model, inputs, MemorySettings.of(CONFIG), lambda: machine, sim="board", kind=DeviceRun)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compile_model(import_model(matmul_integer((5, 9), (9, 7))), CONFIG)


@pytest.fixture(scope="module")
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {
        "a0": rng.integers(0, 256, (5, 9)).astype(np.uint8),
        "b0": rng.integers(-128, 128, (9, 7)).astype(np.int8),
    }


def test_a_model_on_a_device(model: CompiledModel, inputs: dict[str, np.ndarray]) -> None:
    result = ran(model, inputs, Board(FakeBus(CONFIG), CONFIG))
    assert result.correct
    assert result.outputs["y0"].tolist() == (inputs["a0"].astype(int) @ inputs["b0"]).tolist()
    (program,) = result.results
    assert program.observed.cycles == result.cycles > 50
    assert (result.model_cycles, result.divergence) == (None, None)
    assert [check.name for check in result.checks] == ["results"]
    assert result.verified
    told = result.as_dict()
    assert (told["correct"], told["cycles"], told["first_wrong"]) == (True, result.cycles, None)
    assert told["outputs"] == {"y0": {"type": "int32", "shape": [5, 7]}}
    assert told["programs"][0]["error"] is None
    assert told["programs"][0]["counters"]["GEMM_OPERATIONS"] >= 1


def test_a_wrong_result_is_told(model: CompiledModel, inputs: dict[str, np.ndarray]) -> None:
    board = Board(FakeBus(CONFIG), CONFIG)
    board.spoil = True
    result = ran(model, inputs, board)
    assert not result.correct
    assert not result.verified
    assert result.first_wrong is not None
    assert result.first_wrong[0] == "product0"
    assert "35 of 35 elements differ" in result.first_wrong[1]


def test_a_device_that_is_not_there(model: CompiledModel, inputs: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError, match="/dev/nowhere: the serial port cannot be opened"):
        run_on_device(model, inputs, "uart:/dev/nowhere")
    with pytest.raises(InputError, match=r"a device must be uart:PORT\[@BAUD\] or mmio:"):
        run_on_device(model, inputs, "board")


def test_a_wrong_port_or_machine_is_told_before_the_model_is_compiled(
    heald: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_arguments: object, **_others: object) -> None:
        raise AssertionError("compiled")

    path = tmp_path / "model.onnx"
    path.write_bytes(matmul_integer((5, 9), (9, 7)).SerializeToString())
    assert heald("compile", path, "--hw", "test", "-o", tmp_path / "made").code == 0
    monkeypatch.setattr("heald.session.compile", never)
    monkeypatch.setattr("heald.session.load", never)
    for source in (path, tmp_path / "made"):
        ended = heald("run", source, "--device", "uart:/dev/nowhere")
        assert (ended.code, ended.out) == (2, "")
        assert "looking for the machine at uart:/dev/nowhere" in ended.err
        assert "/dev/nowhere: the serial port cannot be opened" in ended.err
    monkeypatch.setattr("cosim.device.open_bus", lambda address: FakeBus(CONFIG))
    monkeypatch.setattr(FakeBus, "close", lambda self: None, raising=False)
    ended = heald("run", path, "--hw", "tiny", "--device", "uart:/dev/x")
    assert ended.code == 2
    assert "the machine must be 'tiny'" in ended.err


def test_the_command_tells_what_the_device_gave(
    heald: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bus(FakeBus):
        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr("cosim.device.open_bus", lambda address: Bus(CONFIG))
    monkeypatch.setattr("cosim.device.Device", Board)
    path, outputs = tmp_path / "model.onnx", tmp_path / "out.npz"
    path.write_bytes(matmul_integer((5, 9), (9, 7)).SerializeToString())
    run = ("run", path, "--hw", "test", "--device", "uart:/dev/x")
    ended = heald(*run, "--outputs", outputs, "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert list(told) == [
        *("device", "correct", "cycles", "seconds", "first_wrong", "outputs", "ran_on_machine", "compared"),
        "programs",
    ]
    assert (told["device"], told["correct"]) == ("uart:/dev/x", True)
    with np.load(outputs) as found:
        assert found["y0"].shape == (5, 7)
    assert "every result equals the reference's, bit for bit" in heald(*run).out
    monkeypatch.setattr(Board, "spoil", True)
    ended = heald(*run)
    assert ended.code == 1
    assert "product0: 35 of 35 elements differ" in ended.out
    assert "--trace goes with a simulation, not with --device" in heald(*run, "--trace", "t.json").err
    assert "--device must be uart:PORT[@BAUD] or mmio:CSR,MEMORY, not" in heald(*run[:-1], "board").err
