"""The host's end of the serial line: its requests, and how it recovers from line errors."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from cosim.device import BusError, Device, UartBus, UncertainError
from cosim.device.uart import ATTEMPTS
from hw.config import MachineConfig
from hw.rtl.bus import protocol
from hw.rtl.bus.protocol import Operation
from tests.cosim.device.fakes import FakeBus, FakeLine


def quick(line: FakeLine) -> UartBus:
    """A bus whose line takes no time in the world."""
    return UartBus(line, clock=line)


def test_registers_and_memory(small: MachineConfig) -> None:
    fake = FakeBus(small)
    bus = quick(FakeLine(fake))
    assert bus.memory_bytes == 1 << 16
    bus.write_csr(fake.at["WATCHDOG"], [77])
    assert bus.read_csr(fake.at["ENABLE"], 2) == [0, 77]
    bus.write_csr(fake.at["PROGRAM_DATA"], range(600))
    assert [word for name, word in fake.log if name == "PROGRAM_DATA"] == list(range(600))


def test_any_bytes_of_memory(small: MachineConfig) -> None:
    """All alignments, less than a word to several requests; the bytes around stay."""
    fake = FakeBus(small)
    bus = quick(FakeLine(fake))
    r = random.Random(3)
    wanted = bytearray(fake.memory)
    for size in (0, 1, 2, 3, 4, 5, 7, 8, 1019, 1020, 1021, 3000):
        address = r.randrange(5000)
        data = r.randbytes(size)
        wanted[address : address + size] = data
        bus.write_memory(address, data)
        assert bus.read_memory(address, size) == data
    assert fake.memory == wanted
    with pytest.raises(BusError, match=r"65,536 bytes of memory: 5 bytes at 0xfffc"):
        bus.read_memory(0xFFFC, 5)


def test_few_requests_carry_much(small: MachineConfig) -> None:
    line = FakeLine(FakeBus(small))
    bus = quick(line)
    bus.write_memory(0, bytes(4 * 255 * 3))
    Device(bus, small)
    assert [r.operation for r in line.requests[1:]] == [Operation.WRITE_MEMORY] * 3 + [Operation.READ_CSR]


def test_a_bad_line_is_got_over(small: MachineConfig) -> None:
    """Bytes lost, damaged and invented in both directions: what arrives is right, or the bus says so."""
    r = random.Random(11)

    def harm(data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            kind = r.random()
            if kind < 0.003:
                out.append(byte ^ 1 << r.randrange(8))
            elif kind < 0.006:
                continue
            elif kind < 0.009:
                out += bytes([r.randrange(256), byte])
            else:
                out.append(byte)
        return bytes(out)

    fake = FakeBus(small)
    bus = quick(FakeLine(fake, harm, harm))
    uncertain = 0
    for number in range(300):
        data = r.randbytes(r.randrange(1, 60))
        address = r.randrange(1 << 15)
        bus.write_memory(address, data)
        assert bus.read_memory(address, len(data)) == data
        before = len(fake.log)
        try:
            bus.write_csr(fake.at["PROGRAM_DATA"], [number, number + 1])
        except UncertainError:
            uncertain += 1
            # It was executed once or not at all.
            assert [word for _, word in fake.log[before:]] in ([], [number, number + 1])
        else:
            assert [word for _, word in fake.log[before:]] == [number, number + 1]
    assert uncertain > 5
    assert bus.repeats > 50


def test_what_the_device_refuses_is_told(small: MachineConfig) -> None:
    bus = quick(FakeLine(FakeBus(small)))
    with pytest.raises(BusError, match="READ_CSR at 0xffc was answered with DECERR"):
        bus.read_csr(0xFFC)


def test_nobody_at_the_other_end(small: MachineConfig) -> None:
    line = FakeLine(FakeBus(small), down=lambda data: b"")
    with pytest.raises(BusError, match=r"no machine answers at 115200 baud: check port, baud rate and cable"):
        quick(line)
    assert line.closed


def test_another_protocol_at_the_other_end(small: MachineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    line = FakeLine(FakeBus(small), up=lambda data: monkeypatch.undo() or data)  # type: ignore[func-returns-value]
    monkeypatch.setattr(protocol, "PROTOCOL", 0x4844_0007)  # while the device answers
    with pytest.raises(BusError, match="protocol must be 0x48440002, not 0x48440007"):
        quick(line)


def test_a_request_that_never_gets_through_is_given_up(small: MachineConfig) -> None:
    line = FakeLine(FakeBus(small))
    bus = quick(line)

    def deaf(data: bytes) -> bytes:
        return data if data[:2] == bytes([protocol.SYNC_REQUEST, Operation.IDENTIFY]) else b""

    line._down = deaf
    with pytest.raises(BusError, match=rf"READ_CSR at 0x14 failed {ATTEMPTS} times"):
        bus.read_csr(0x14)
    with pytest.raises(UncertainError, match="no answer to a write of 2 words to 0x34"):
        bus.write_csr(0x34, [1, 2])


def test_ports_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(
        BusError, match=r"nothing: the serial port cannot be opened at 115200 baud: .*No such file"
    ):
        UartBus(str(tmp_path / "nothing"))
    (tmp_path / "plain").write_text("")
    with pytest.raises(BusError, match=r"plain: the serial port cannot be opened"):
        UartBus(str(tmp_path / "plain"))
    with pytest.raises(BusError, match="baud rate must be positive, not 0"):
        UartBus("x", 0)


def test_a_port_that_goes_away(small: MachineConfig) -> None:
    master, slave = os.openpty()
    name = os.ttyname(slave)
    os.close(slave)
    os.close(master)
    with pytest.raises(BusError, match="the serial port cannot be opened"):
        UartBus(name)

    class Gone(FakeLine):
        def read(self, size: int) -> bytes:
            raise OSError("device disconnected")

    with pytest.raises(BusError, match="the serial port failed: device disconnected"):
        quick(Gone(FakeBus(small)))
