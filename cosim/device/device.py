"""A machine behind a bus: load, start, wait, read back. The same code drives boards and simulations."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cosim import host, images, observe
from cosim.device import identify
from cosim.device.bus import Bus, BusError, UncertainError, check_range
from cosim.host import Dump, LoadProgram, Read, Wait, Write
from cosim.job import Job, Outcome, Window
from hw import csr
from hw.config import MachineConfig

#: Attempts to load a warp's program over a bus that loses responses.
ATTEMPTS = 8
#: Bytes written at once where memory must be 0.
ZEROS = 1 << 16


@dataclass(frozen=True)
class Status:
    """The register STATUS."""

    running: bool
    done: bool
    error: bool
    programs_checked: bool
    quiet: bool

    @staticmethod
    def of(word: int) -> Status:
        """Decode a register value."""
        bits = (csr.RUNNING, csr.DONE, csr.ERROR, csr.PROGRAM_OK, csr.QUIET)
        return Status(*(bool(word >> bit & 1) for bit in bits))

    def __str__(self) -> str:
        names = [name.replace("_", " ") for name, value in vars(self).items() if value]
        return ", ".join(names) or "nothing set"


class Device:
    """A machine behind a bus.

    `config` is the configuration that the machine must have; without it, the machine is identified
    (`cosim.device.identify`). Raises `BusError` if no machine answers, or a different one.
    """

    def __init__(self, bus: Bus, config: MachineConfig | None = None):
        self.bus = bus
        if config is None:
            config = identify.identify(bus)
        else:
            identify.check(bus, config)
        self.config = config
        self._offsets = {r.name: r.offset for r in csr.registers(config)}

    def read(self, name: str) -> int:
        """Read a register by name (docs/csr.md); raises `KeyError` for an unknown name."""
        return self.bus.read_csr(self._offsets[name])[0]

    def write(self, name: str, value: int) -> None:
        """Write a register by name; the write is repeated if its answer is lost."""
        self._write(Write(self._offsets[name], (value,)))

    @property
    def status(self) -> Status:
        """The machine's current status."""
        return Status.of(self.read("STATUS"))

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until the machine is done and has no outstanding memory requests.

        Raises `BusError` after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not ((status := self.status).done and status.quiet):
            if end is not None and time.monotonic() > end:
                raise BusError(
                    f"the machine must be done and quiet within {timeout:g} s, not: {status} "
                    f"(WATCHDOG {self.read('WATCHDOG')} cycles)"
                )
            self.bus.idle()
        return status

    def stop(self, timeout: float = 1.0) -> None:
        """Stop a run that makes no progress, whatever its watchdog setting."""
        if self.status.running:
            self.write("WATCHDOG", 1)
            self.wait(timeout)

    def load(self, job: Job) -> None:
        """Write a job's memory: its arrays, and zeros in the rest of its windows.

        Raises `BusError` if the device has less memory.
        """
        job = job.placed()
        given = [(4 * first, words.astype("<u4").tobytes()) for first, words in images.segments(job.memory)]
        held = [(address, len(data)) for address, data in given]
        empty = list(zeros(held, job.windows))
        for address, size in (*held, *empty):
            check_range(self.bus, address, size)
        for address, size in empty:
            for at in range(address, address + size, ZEROS):
                self.bus.write_memory(at, bytes(min(ZEROS, address + size - at)))
        for address, data in given:
            self.bus.write_memory(address, data)

    def run(self, job: Job, timeout: float | None = 60.0) -> Outcome:
        """Load, run and read back a job, with the accesses of `cosim.host.steps`.

        The outcome has no events, as a device does not report them. `timeout` is in seconds from the start.
        Raises `InputError` for what the machine cannot take, and `BusError` if it is already running, does
        not finish in time, or the bus fails.
        """
        steps = host.steps(self.config, job, self.bus.base)
        if (status := self.status).running:
            raise BusError(
                f"the machine must be at rest before a run, not: {status} (Device.stop, or a reset)"
            )
        self.load(job)
        results: list[int] = []
        dump: list[bytes] = []
        begin = end = time.monotonic()
        for step in steps:
            match step:
                case Wait():
                    begin = time.monotonic()
                    self.wait(timeout)
                    end = time.monotonic()
                case Read(offset, count):
                    results += self.bus.read_csr(offset, count)
                case Dump(first, words):
                    dump.append(self.bus.read_memory(4 * first, 4 * words))
                case Write() | LoadProgram():
                    self._write(step)
        held = np.frombuffer(b"".join(dump), "<u4")
        nothing = observe.parse_records(b"", self.config.warps)
        return observe.outcome(self.config, job, nothing, results, held, end - begin)

    def _write(self, step: Write | LoadProgram) -> None:
        """Execute the writes of a step; if one is interrupted, repeat all of them."""
        for attempt in range(ATTEMPTS):
            try:
                for write in step.writes if isinstance(step, LoadProgram) else (step,):
                    self.bus.write_csr(write.offset, write.words)
                return
            except UncertainError:
                if attempt == ATTEMPTS - 1:
                    raise


def zeros(given: Sequence[tuple[int, int]], windows: Sequence[Window]) -> Iterator[tuple[int, int]]:
    """Address and size of the parts of windows outside the given (address, size) ranges, without overlaps."""
    taken = sorted(given)
    for window in sorted(windows):
        if not (window.read or window.write):
            continue
        at, stop = window.first, window.last + 1
        for address, size in taken:
            if at < min(address, stop):
                yield at, min(address, stop) - at
            at = max(at, address + size)
        if at < stop:
            yield at, stop - at
        taken = sorted([*taken, (window.first, window.last + 1 - window.first)])


class DeviceSimulator:
    """A device as a `cosim.job.Simulator`; its outcomes have no events."""

    def __init__(self, device: Device, timeout: float | None = 60.0):
        self.config = device.config
        self.build_seconds = 0.0
        self._device, self._timeout = device, timeout

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the jobs in order; see `Device.run`."""
        return [self._device.run(job, self._timeout) for job in jobs]
