"""The UART top, bit by bit on its pins, behind a pseudo-terminal: the same host library as for a board."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cosim.bus.uart import BAUD, CYCLES, PATIENCE, SteppedLine, UartSimulation
from cosim.device import BusError, Device, UartBus
from cosim.host import script
from cosim.models.cycle import predict
from tests.cosim.bus_machines import SMALL, cases

#: A top of its own is a build of its own; frames, bridge and host library are tested without.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def simulation() -> Iterator[UartSimulation]:
    with UartSimulation(SMALL) as made:
        yield made


def test_a_terminal_is_opened_by_its_name_like_that_of_a_board() -> None:
    with UartSimulation(SMALL, terminal=True) as made:
        assert made.port.startswith("/dev/")
        bus = UartBus(made.port, BAUD, PATIENCE)
        assert Device(bus).config.hash == SMALL.hash
        bus.close()


def test_a_run_over_the_serial_line(simulation: UartSimulation) -> None:
    bus = simulation.bus()
    assert (bus.identity.memory_bytes, bus.identity.baud) == (1 << 16, BAUD)
    device = Device(bus)
    assert device.config.hash == SMALL.hash
    for case in cases(SMALL):
        outcome = device.run(case.job)
        assert case.right(outcome)
        predicted = predict(SMALL, case.job)
        assert outcome.counters["STORE_WORDS"] == predicted.counters["STORE_WORDS"]
    with pytest.raises(BusError, match="READ_CSR at 0xffc was answered with DECERR"):
        bus.read_csr(0xFFC)
    assert bus.repeats == 0
    bus.close()


def test_memory_keeps_all_bytes(simulation: UartSimulation) -> None:
    bus, r = simulation.bus(), random.Random(4)
    wanted = bytearray(bus.read_memory(0, 2048))
    for size in (1, 2, 3, 5, 1030):
        address, data = r.randrange(1000), r.randbytes(size)
        wanted[address : address + size] = data
        bus.write_memory(address, data)
    assert bus.read_memory(0, 2048) == wanted
    assert bus.repeats == 0
    bus.close()


def test_a_reset_in_the_middle_of_a_run(simulation: UartSimulation) -> None:
    bus = simulation.bus()
    device = Device(bus, SMALL)
    case = cases(SMALL)[1]
    device.load(case.job)
    for entry in script(SMALL, case.job):
        if entry.op.name == "WAIT":
            break
        bus.write_csr(entry.address, [entry.data])
    bus.reset()
    status = device.status
    assert (status.running, status.done, status.quiet) == (False, False, True)
    assert case.right(device.run(case.job))
    bus.close()


def test_whatever_came_before_the_host_gets_through(simulation: UartSimulation) -> None:
    """Noise, and requests that somebody else did not finish."""
    r = random.Random(6)
    line = SteppedLine(simulation._near, CYCLES * BAUD)
    for left in (r.randbytes(300), b"\xa5\x21\x07\xff\0\0\0\0" + r.randbytes(100), b"\xa5", b""):
        line.write(left)
        bus = simulation.bus()
        assert Device(bus).config.hash == SMALL.hash


def test_a_bad_line_is_got_over() -> None:
    """Bits flipped, bytes lost and invented on both wires, in the middle of everything."""
    with UartSimulation(SMALL, wrong=200, seed=2) as made:
        bus = made.bus()
        device = Device(bus, SMALL)
        for case in cases(SMALL)[1:]:
            assert case.right(device.run(case.job))
        assert bus.repeats > 3
