"""Runs a compiled model on a device and compares what it leaves with the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cosim.device import Device, DeviceSimulator, open_bus
from cosim.settings import MemorySettings
from heald.network_results import ModelRecord
from heald.network_run import CompiledModel, run_model


@dataclass(frozen=True)
class ProgramOnDevice:
    """One program: cycles by the device's own counter, seconds from start to end as the host saw them."""

    name: str
    cycles: int
    seconds: float
    error: str | None
    counters: Mapping[str, int]


@dataclass(frozen=True)
class DeviceRun:
    """What became of a model on a device.

    `outputs` are those of the model, `wrong` is the first operator whose result differs from the reference
    with how it does, None where all are the same bit for bit. Cycles are compared with nothing: how quick the
    memory of a device is, is not known.
    """

    outputs: Mapping[str, np.ndarray]
    programs: tuple[ProgramOnDevice, ...]
    wrong: tuple[str, str] | None

    @property
    def correct(self) -> bool:
        """Whether all results are the reference's."""
        return self.wrong is None

    @property
    def cycles(self) -> int:
        """Cycles of all programs together."""
        return sum(p.cycles for p in self.programs)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a run on a device."""
        return {
            "correct": self.correct,
            "cycles": self.cycles,
            "seconds": sum(p.seconds for p in self.programs),
            "first_wrong": self.wrong and {"operator": self.wrong[0], "difference": self.wrong[1]},
            "outputs": {n: {"type": str(a.dtype), "shape": list(a.shape)} for n, a in self.outputs.items()},
            "programs": [asdict(p) for p in self.programs],
        }


def run_on_device(
    model: CompiledModel,
    inputs: Mapping[str, np.ndarray],
    device: Device,
    *,
    timeout: float | None = 60.0,
    progress: Callable[[str], None] = lambda text: None,
) -> DeviceRun:
    """Run a model on a device that is its machine; `timeout` in seconds is for each of its programs.

    Raises `InputError` for inputs that are missing, unknown or of another type or shape, `BusError` (one of
    those) when the device has too little memory, does not end in time, or cannot be reached.
    """
    machine = DeviceSimulator(device, timeout)
    report = run_model(
        model, inputs, MemorySettings.of(model.config), lambda: machine, sim="device", progress=progress
    )
    return _result(report)


def run_at(
    model: CompiledModel,
    inputs: Mapping[str, np.ndarray],
    address: str,
    *,
    timeout: float | None = 60.0,
    progress: Callable[[str], None] = lambda text: None,
) -> DeviceRun:
    """Run a model on the device at `uart:...` or `mmio:...` (`cosim.device.open_bus`)."""
    bus = open_bus(address)
    try:
        return run_on_device(model, inputs, Device(bus, model.config), timeout=timeout, progress=progress)
    finally:
        bus.close()


def _result(report: ModelRecord) -> DeviceRun:
    programs = []
    for name, o in ((run.name, run.observed) for run in report.runs):
        e = o.error
        text = None if e is None else f"{e.cause.name.lower()}, warp {e.warp}, pc {e.pc}"
        programs.append(ProgramOnDevice(name, o.cycles, o.seconds, text, o.counters))
    return DeviceRun(report.outputs, tuple(programs), report.first_wrong)
