"""What snippets of pages take for granted: small files, jobs, and a board at a serial line."""

from __future__ import annotations

import dataclasses
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader

from cosim.device import Device
from cosim.job import Job, Outcome
from cosim.session.tile_program import prepare
from cosim.settings import MemorySettings
from hw.config import MachineConfig, load
from sw.ir.load import load_program
from tests.cosim.device.fakes import FakeBus
from tests.docs.blocks import ROOT
from tests.heald.conftest import Quick
from tests.heald.network_models import model as built
from tests.heald.network_models import perceptron, save, value
from tests.sw.models import matmul_integer

EXAMPLES = ROOT / "examples"
KERNELS = EXAMPLES / "08_grid_kernels/kernels.py"
PHASES = EXAMPLES / "06_tile_programs/phases.py"
PRODUCT = EXAMPLES / "07_tile_program_on_rtl/product.py"


def model(path: str = "model.onnx", rows: int | str = 5, **names: str) -> None:
    """A matrix product, which needs no loop of the CGRA; with other names for nodes, a perceptron."""
    proto = perceptron() if names else matmul_integer((rows, 9), (9, 7))
    for node in proto.graph.node:
        node.name = names.get(node.name, node.name)
    save(Path(path).parent, proto, Path(path).name)


def float_model() -> tuple[str, str, CalibrationDataReader]:
    """A model of floats, where its quantised form goes, and samples."""
    weights = {"w": np.ones((4, 3), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Sum", ["h", "h"], ["y"])]
    shapes = {"x": (2, 4), "y": (2, 3)}
    x, y = (value(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    save(Path(), built(nodes, [x], [y], weights), "float.onnx")
    samples = iter([{"x": np.ones((2, 4), np.float32)}, None])

    class Samples(CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(samples)

    return "float.onnx", "quantised.onnx", Samples()


def file(source: Path, path: str) -> None:
    """A copy of a file of the tree."""
    shutil.copy(source, path)


def job(config: MachineConfig) -> Job:
    """A job that multiplies matrices."""
    (made,) = prepare(load_program(PRODUCT), config, MemorySettings.of(config)).jobs
    return made


class Board(Device):
    """A device whose runs are those of a simulator, without events, as from a board."""

    def run(self, job: Job, timeout: float | None = 60.0) -> Outcome:
        """The outcome of a job."""
        return dataclasses.replace(Quick(self.config).run([job])[0], events=[])


def board(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """A machine at the serial line, and the registers and memory of one in files."""
    monkeypatch.setattr("cosim.device.open_bus", lambda _: FakeBus(load(machine)))
    monkeypatch.setattr("cosim.device.Device", Board)


def operands(path: str = "operands.npz", *, m: int, k: int, n: int) -> dict[str, np.ndarray]:
    """Matrices A and B in a file."""
    rng = np.random.default_rng(1)
    found = {
        name: rng.integers(-128, 128, s).astype(np.int8) for name, s in {"A": (m, k), "B": (k, n)}.items()
    }
    np.savez(path, **found)
    return found


def kernel(name: str) -> Callable[..., Any]:
    """A kernel of the examples."""
    found: Callable[..., Any] = runpy.run_path(str(KERNELS))[name]
    return found
