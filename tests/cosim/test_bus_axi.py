"""The AXI top: runs over the bus, errors of the memory, planted violations, resets."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cosim.bus.axi import AxiSimulation
from cosim.bus.environment import CALM, DECERR, SLVERR, Environment, Fault
from cosim.device import BusError, Device
from cosim.host import script
from cosim.models.cycle import predict
from hw import csr
from hw.assembly import decode
from hw.isa import Cause
from tests.cosim.bus_machines import UNEVEN, UNEVEN_BEATS, cases
from tests.cosim.bus_worlds import PLANTS, rough


def fresh(stock: bool = False) -> tuple[AxiSimulation, Device]:
    bus = AxiSimulation(UNEVEN, beats=UNEVEN_BEATS, stock=stock)
    return bus, Device(bus, UNEVEN)


@pytest.fixture(scope="module")
def machine() -> Iterator[tuple[AxiSimulation, Device]]:
    bus, device = fresh()
    yield bus, device
    bus.close()


@pytest.mark.parametrize("stock", [False, True], ids=["own memory", "AxiRam"])
def test_random_runs_are_right_and_break_no_rule(stock: bool) -> None:
    bus, device = fresh(stock)
    with bus:
        assert Device(bus).config.hash == UNEVEN.hash
        for seed in range(6):
            bus.behave(rough(seed))
            case = cases(UNEVEN)[seed % len(cases(UNEVEN))]
            outcome = device.run(case.job)
            assert case.right(outcome)
            predicted = predict(UNEVEN, case.job)
            for name, value in predicted.counters.items():
                if name.endswith(("_WORDS", "_OPERATIONS", "_INSTRUCTIONS")):
                    assert (name, outcome.counters[name]) == (name, value)
        state = bus.state()
        assert bus.violations() == []
        assert (state["axi_open"], state["lite_open"], state["irq"]) == (0, 0, 1)
        assert state["transfers"] > 500
        device.write("CONTROL", 1 << csr.CLEAR)
        assert bus.state()["irq"] == 0


def test_memory_may_begin_anywhere_in_the_machines_address_space() -> None:
    with AxiSimulation(UNEVEN, beats=UNEVEN_BEATS, base=0x9ABC_D000) as bus:
        bus.behave(rough(3))
        case = cases(UNEVEN)[0]
        outcome = Device(bus).run(case.job)
        assert case.right(outcome)
        assert outcome.counters["STORE_WORDS"] > 0
        assert bus.violations() == []


def test_slow_memory_makes_runs_longer_and_no_other(machine: tuple[AxiSimulation, Device]) -> None:
    bus, device = machine
    bus.behave(CALM)
    quick = device.run(cases(UNEVEN)[0].job)
    bus.behave(Environment(1, (0.5,), (100, 200), shuffle=True))
    slow = device.run(cases(UNEVEN)[0].job)
    assert cases(UNEVEN)[0].right(quick)
    assert cases(UNEVEN)[0].right(slow)
    assert slow.cycles > 1.5 * quick.cycles
    same = [n for n in quick.counters if n.endswith(("_WORDS", "_INSTRUCTIONS"))]
    assert [quick.counters[n] for n in same] == [slow.counters[n] for n in same]


def test_errors_of_memory_stop_the_machine_cleanly(machine: tuple[AxiSimulation, Device]) -> None:
    """At any transfer, of both kinds: error BUS with its instruction, quiet, and the next run is right."""
    bus, device = machine
    r = random.Random(5)
    case = cases(UNEVEN)[0]
    bus.behave(CALM)
    before = bus.state()["transfers"]
    outcome = device.run(case.job)
    moved = bus.state()["transfers"] - before
    reads = sum(v for n, v in outcome.counters.items() if n.startswith("LOAD") and n.endswith("WORDS"))
    assert moved == reads + outcome.counters["STORE_WORDS"]
    engines = {True: ("load_a", "load_b", "load_c"), False: ("store",)}
    for number in range(16):
        read = number % 2 == 0
        fault = Fault(read, r.randrange(reads) if read else r.randrange(2), r.choice([SLVERR, DECERR]))
        bus.behave(rough(number, (fault,)))
        outcome = device.run(case.job)
        assert outcome.error is not None
        assert outcome.error.cause is Cause.BUS
        words = case.job.programs[outcome.error.warp]
        assert engine_of(words[outcome.error.pc]) in engines[read]
        status = device.status
        assert (status.running, status.done, status.error, status.quiet) == (False, True, True, True)
        state = bus.state()
        assert (state["axi_open"], state["lite_open"], state["irq"]) == (0, 0, 1)
        bus.behave(rough(number))
        assert case.right(device.run(case.job))
    assert bus.violations() == []


def engine_of(word: int) -> str:
    instruction = decode(word)
    assert instruction is not None
    assert instruction.spec.engine is not None
    return instruction.spec.engine


def test_registers_answer_as_documented(machine: tuple[AxiSimulation, Device]) -> None:
    bus, device = machine
    with pytest.raises(BusError, match="read of 1 registers at 0xffc was answered with DECERR"):
        bus.read_csr(0xFFC)
    with pytest.raises(BusError, match="write of a register at 0xffc was answered with DECERR"):
        bus.write_csr(0xFFC, [1])
    device.write("ENABLE", 5)
    assert device.read("ENABLE") == 5
    assert bus.violations() == []


def test_a_reset_in_the_middle_of_a_run_leaves_a_machine_that_works() -> None:
    bus, device = fresh()
    with bus:
        case = cases(UNEVEN)[0]
        for seed in range(3):
            bus.behave(Environment(seed, (0.3,), (50, 90)))
            device.load(case.job)
            for entry in script(UNEVEN, case.job):
                if entry.op.name == "WAIT":
                    break
                bus.write_csr(entry.address, [entry.data])
            assert device.status.running
            bus.reset()
            status = device.status
            assert (status.running, status.done, status.error, status.quiet) == (False, False, False, True)
            assert case.right(device.run(case.job))
        assert bus.violations() == []


@pytest.mark.parametrize("number", list(PLANTS))
def test_planted_violations_are_noticed(number: int) -> None:
    bus, device = fresh()
    with bus:
        bus.behave(Environment(3, (0.5,)))
        bus.plant(number)
        device.run(cases(UNEVEN)[0].job)
        assert PLANTS[number] in bus.violations()
