"""Machines in mapped memory: access to any bytes and to whole registers, files that cannot be mapped."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cosim.device import Area, BusError, MmioBus, open_bus
from cosim.device.address import FORMS
from cosim.device.uart import UartBus


def test_registers_and_memory_lie_where_they_are_said_to(tmp_path: Path) -> None:
    file = tmp_path / "mem"
    file.write_bytes(bytes(1 << 18))
    bus = MmioBus(Area(str(file), 0x10000), Area(str(file), 0x20004, 0x8000))
    assert bus.memory_bytes == 0x8000
    bus.write_csr(0x20, [5])
    bus.write_csr(0x34, [1, 2, 0xFFFFFFFF])
    assert bus.read_csr(0x20) == [5]
    assert bus.read_csr(0x30, 2) == [0, 0xFFFFFFFF]
    r, wanted = random.Random(1), bytearray(0x8000)
    for size in (0, 1, 2, 3, 4, 5, 8, 1000):
        address, data = r.randrange(0x7000), r.randbytes(size)
        wanted[address : address + size] = data
        bus.write_memory(address, data)
        assert bus.read_memory(address, size) == data
    bus.close()
    data = file.read_bytes()
    assert data[0x20004:0x28004] == wanted
    assert data[0x10020:0x10024] == b"\x05\0\0\0"
    assert data[0x10034:0x10038] == b"\xff\xff\xff\xff"
    assert set(data[0x28004:]) == {0}


def test_an_address_names_registers_and_memory(tmp_path: Path) -> None:
    (tmp_path / "csr").write_bytes(bytes(1 << 16))
    (tmp_path / "mem").write_bytes(bytes(0x3000))
    whole = open_bus(f"mmio:{tmp_path / 'csr'},{tmp_path / 'mem'}")
    assert whole.memory_bytes == 0x3000
    part = open_bus(f"mmio:{tmp_path / 'csr'}@0x0,{tmp_path / 'mem'}@0x1000+256")
    assert part.memory_bytes == 256
    with pytest.raises(BusError, match="1 bytes at 0x100"):
        part.write_memory(256, b"x")
    placed = open_bus(f"mmio:{tmp_path / 'csr'},{tmp_path / 'mem'}@0x1000+256=0x80000000")
    assert (whole.base, part.base, placed.base) == (0, 0, 1 << 31)
    with pytest.raises(BusError, match="its base must be a multiple of 4,096 below 2\\^32, not 0x80000004"):
        open_bus(f"mmio:{tmp_path / 'csr'},{tmp_path / 'mem'}=0x80000004")
    for bus in (whole, part, placed):
        bus.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "uart:",
        "usb:x",
        "/dev/ttyUSB0",
        "uart:x@fast",
        "mmio:a",
        "mmio:a,b,c",
        "mmio:a@z,b",
        "mmio:a,b+",
        "mmio:a,b=",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BusError) as error:
        open_bus(text)
    assert str(error.value) == f"a device must be {FORMS}, not {text!r}"


def test_a_serial_port_may_have_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []
    monkeypatch.setattr("cosim.device.address.UartBus", lambda *arguments: seen.append(arguments))
    open_bus("uart:/dev/ttyUSB0")
    open_bus("uart:/dev/ttyUSB1@921600")
    assert seen == [("/dev/ttyUSB0", 115_200), ("/dev/ttyUSB1", 921_600)]
    assert UartBus.__module__ == "cosim.device.uart"


def test_what_cannot_be_mapped(tmp_path: Path) -> None:
    csr, memory = tmp_path / "csr", tmp_path / "mem"
    csr.write_bytes(bytes(1 << 16))
    memory.write_bytes(bytes(64))
    with pytest.raises(BusError, match=r"nothing: cannot be mapped at 0x0: .*No such file"):
        MmioBus(Area(str(tmp_path / "nothing")), Area(str(memory)))
    with pytest.raises(BusError, match=r"mem: cannot be mapped at 0x0: .*greater than file size"):
        MmioBus(Area(str(csr)), Area(str(memory), 0, 128))
    with pytest.raises(BusError, match="mem: offset and size must be multiples of 4, not 0x2, None"):
        MmioBus(Area(str(csr)), Area(str(memory), 2))
    with pytest.raises(BusError, match="the size must be given for what is no plain file"):
        MmioBus(Area(str(csr)), Area("/dev/zero"))
