"""Simulates the UART top and connects it to a pseudo-terminal that any program can open."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import socket
import subprocess
import sys
import tty
from typing import Self

from cosim.build import Build, Main, generated
from cosim.bus import build
from cosim.device.uart import UartBus
from hw import processes
from hw.config import MachineConfig
from hw.rtl.bus.protocol import Serial

#: Clock cycles per bit; few, to keep simulations short.
CYCLES = 8
#: Bytes of the machine's memory.
MEMORY_BYTES = 1 << 16
#: The baud rate that the host assumes; the simulation is about that fast.
BAUD = 19_200
#: Seconds that a response may be late in real time, as other processes use the computer too.
PATIENCE = 60.0
#: The same if time passes only while the host waits: then the machine is never late.
STEPPED_PATIENCE = 0.05
#: Bit times after which the device drops an incomplete request.
TIMEOUT_BITS = 2048


class UartSimulation:
    """The top `heald_uart` in a process that moves bytes to and from its pins.

    With `terminal`, the simulation runs in real time, and `port` is the name of a pseudo-terminal that any
    program can open. Otherwise `bus` is the only access, and time passes only while it waits, so nothing
    depends on the speed of the computer. Of 100,000 bytes in each direction, `wrong` have a flipped bit, are
    lost, or are preceded by a spurious byte, in a pattern drawn from `seed`.
    """

    def __init__(self, config: MachineConfig, *, terminal: bool = False, wrong: int = 0, seed: int = 1):
        made = program(config)
        self.build_seconds = made.seconds
        self.port = ""
        if terminal:
            device, self._near = os.openpty()
            tty.setraw(self._near)
            self.port = os.ttyname(self._near)
        else:
            ends = socket.socketpair()
            device, self._near = (end.detach() for end in ends)
        options = {"fd": device, "steps": int(not terminal), "cycles": CYCLES, "wrong": wrong, "seed": seed}
        command = [str(made.directory / "program"), *(f"+{name}={value}" for name, value in options.items())]
        self._undo = contextlib.ExitStack()
        try:
            self._process = self._undo.enter_context(
                processes.started(command, pass_fds=[device], stdin=subprocess.DEVNULL)
            )
        finally:
            os.close(device)

    def bus(self) -> UartBus:
        """The host's end of the line."""
        if self.port:
            return UartBus(self.port, BAUD, PATIENCE)
        line = SteppedLine(self._near, CYCLES * BAUD)
        return UartBus(line, BAUD, STEPPED_PATIENCE, line)

    def close(self) -> None:
        """End the simulation."""
        os.close(self._near)
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SteppedLine:
    """A line to a simulation whose time passes only during calls; also the `cosim.device.uart.Clock`."""

    timeout: float | None = None

    def __init__(self, descriptor: int, rate: int):
        self._descriptor, self._rate = descriptor, rate
        self._seconds = 0.0
        self._received = b""
        self._pass(0.0)  # gets the current time

    @property
    def in_waiting(self) -> int:
        """Number of bytes received."""
        return len(self._received)

    def read(self, size: int, /) -> bytes:
        """See `Line`."""
        if not self._received:
            self._pass(self.timeout or 0.0)
        data, self._received = self._received[:size], self._received[size:]
        return data

    def write(self, data: bytes, /) -> int:
        """See `Line`."""
        os.write(self._descriptor, b"w" + len(data).to_bytes(4, sys.byteorder) + data)
        return len(data)

    def close(self) -> None:
        """See `Line`; the simulation goes on."""

    def monotonic(self) -> float:
        """Simulated seconds."""
        return self._seconds

    def sleep(self, seconds: float, /) -> None:
        """Let time pass."""
        end = self._seconds + seconds
        while self._seconds < end:
            self._pass(end - self._seconds)

    def _pass(self, seconds: float) -> None:
        """Let `seconds` pass, or less if a byte comes."""
        cycles = max(1, math.ceil(seconds * self._rate))
        os.write(self._descriptor, b"r" + cycles.to_bytes(4, sys.byteorder))
        self._seconds = int.from_bytes(self._take(8), sys.byteorder) / self._rate
        self._received += self._take(int.from_bytes(self._take(4), sys.byteorder))

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = os.read(self._descriptor, size - len(data))
            if not part:
                raise OSError("the simulation has ended")
            data += part
        return data


@functools.lru_cache
def program(config: MachineConfig) -> Build:
    """The simulation of a machine with a UART, built or from the cache."""
    from hw.rtl.bus import emit  # importing Amaranth takes half a second

    serial = Serial(MEMORY_BYTES, CYCLES * BAUD, BAUD, TIMEOUT_BITS)
    key = f"uart, {CYCLES}, {MEMORY_BYTES}"
    made, took = generated(config, key, lambda: emit.uart_verilog(config, serial))
    main = Main(build.HARNESS / "uart.cpp", vpi=False)
    return build.program(made, build.HARNESS / "uart", main=main, seconds=took)
