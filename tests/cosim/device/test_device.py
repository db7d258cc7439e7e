"""The host library with a machine of registers and memory only: its accesses, and its refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cosim import host
from cosim.device import BusError, Device, UncertainError
from cosim.device.device import zeros
from cosim.host import Op
from cosim.job import Job, Region, Window
from cosim.settings import MemorySettings
from hw import csr
from hw.config import MachineConfig, load, preset_names
from hw.errors import InputError
from hw.isa import Cause
from tests.cosim.device.fakes import FakeBus
from tests.machines import MIXED


def job(config: MachineConfig, **changes: object) -> Job:
    made = Job(
        programs={0: [1, 2, 3], 2: [4]},
        settings=MemorySettings.of(config),
        windows=(Window(0x100, 0x1FF), Window(0x300, 0x33F, read=False)),
        memory=((0x102, np.arange(5, dtype=np.uint8)), (0x800, np.ones(4, np.uint8))),
        outputs=(Region(0x101, 6),),
        name="a job",
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_the_accesses_are_those_of_the_script(small: MachineConfig) -> None:
    bus = FakeBus(small)
    Device(bus, small).run(job(small))
    names = {r.offset: r.name for r in csr.registers(small)}
    script = host.script(small, job(small))
    assert bus.log == [(names[e.address], e.data) for e in script if e.op is Op.WRITE]


def test_what_windows_hold_besides_the_jobs_arrays_becomes_zero(small: MachineConfig) -> None:
    bus = FakeBus(small)
    outcome = Device(bus, small).run(job(small))
    assert bus.memory[0xFF:0x10A].hex() == "ee" + "000000" + "01020304" + "000000"
    assert set(bus.memory[0x10A:0x200]) == set(bus.memory[0x300:0x340]) == {0}
    assert set(bus.memory[0x200:0x300]) == {0xEE}
    assert bus.memory[0x7FF:0x805].hex() == "ee01010101ee"
    assert [o.tolist() for o in outcome.outputs] == [[0, 0, 1, 2, 3, 4]]


def test_a_job_lies_behind_its_base_and_the_machine_finds_it_behind_that_of_the_memory(
    small: MachineConfig,
) -> None:
    bus = FakeBus(small)
    bus.base = 0x8000_0000
    made = job(small, settings=MemorySettings.of(small, base=0x4000))
    outcome = Device(bus, small).run(made)
    assert bus.registers[bus.at["BASE"]] == 0x8000_4000
    assert bus.memory[0x47FF:0x4805].hex() == "ee01010101ee"
    assert set(bus.memory[0x100:0x810]) == {0xEE}
    assert [o.tolist() for o in outcome.outputs] == [[0, 0, 1, 2, 3, 4]]


def test_zeros_cover_each_byte_of_the_windows_once() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        given = [(int(rng.integers(0, 90)), int(rng.integers(1, 20))) for _ in range(rng.integers(0, 5))]
        ends = [sorted(rng.integers(0, 99, 2).tolist()) for _ in range(rng.integers(0, 4))]
        windows = [Window(first, last, bool(rng.integers(2)), bool(rng.integers(2))) for first, last in ends]
        wanted = np.zeros(120, int)
        for w in windows:
            if w.read or w.write:
                wanted[w.first : w.last + 1] = 1
        for address, size in given:
            wanted[address : address + size] = 0
        found = np.zeros(120, int)
        for address, size in zeros(given, windows):
            assert size > 0
            found[address : address + size] += 1
        assert found.tolist() == wanted.tolist()


def test_results_and_errors_are_read_back(small: MachineConfig) -> None:
    bus = FakeBus(small, done=0b10110)
    bus.set("ERROR", 7 << 16 | 2 << 8 | Cause.BUS)
    bus.set("CYCLES_LOW", 5)
    bus.set("CYCLES_HIGH", 1)
    bus.set("WARP1_INSTRUCTIONS", 12)
    outcome = Device(bus, small).run(job(small))
    assert outcome.error == (Cause.BUS, 2, 7)
    assert outcome.cycles == 5 + (1 << 32)
    assert outcome.counters["WARP1_INSTRUCTIONS"] == 12
    assert outcome.events == []


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_identified(name: str) -> None:
    assert Device(FakeBus(load(name))).config == load(name)


def test_other_machines_are_identified_by_their_registers(small: MachineConfig) -> None:
    found = Device(FakeBus(small.replace(cols=8, load_b_bytes=16, warps=3))).config
    assert found.hash == small.replace(cols=8, load_b_bytes=16, warps=3).hash
    grid = load("test").replace(warps=3)
    assert Device(FakeBus(grid)).config.hash == grid.hash


@pytest.mark.parametrize(
    ("register", "value", "message"),
    [
        ("ID", 0, "register ID must be 0x4845414c, not 0x00000000: what answers is no Heald machine"),
        ("VERSION", 0x10000, "register VERSION must be 4.1, not 1.0"),
        ("CONFIG_ROWS", 3, r"CONFIG_\.\.\. describe an invalid machine: rows .* power of two"),
        ("CONFIG_ROWS", 2, "its registers contradict its hash"),
    ],
)
def test_what_is_no_known_machine_is_refused(
    small: MachineConfig, register: str, value: int, message: str
) -> None:
    bus = FakeBus(small)
    bus.set(register, value)
    with pytest.raises(BusError, match=message):
        Device(bus)


def test_a_machine_with_a_grid_of_its_own_has_to_be_told() -> None:
    config = MIXED
    with pytest.raises(BusError, match=r"not known \(its fabric is not a preset\): give its configuration"):
        Device(FakeBus(config))
    assert Device(FakeBus(config), config).config is config


def test_another_machine_than_the_one_wanted_is_refused(small: MachineConfig) -> None:
    with pytest.raises(BusError, match=r"must be 'test' .*, not one with hash .*: cols is 8, not 4"):
        Device(FakeBus(small.replace(cols=8, load_b_bytes=16)), small)


def test_what_does_not_fit_or_is_at_work_is_refused(small: MachineConfig) -> None:
    with pytest.raises(BusError, match=r"2,048 bytes of memory: 4 bytes at 0x800"):
        Device(FakeBus(small, 2048), small).run(job(small))
    with pytest.raises(BusError, match="lie in it"):
        Device(FakeBus(small, 0x320), small).run(job(small, memory=()))
    with pytest.raises(InputError, match="a job: warps must be 0 to 5, not 9"):
        Device(FakeBus(small), small).run(job(small, programs={9: [1]}))
    bus = FakeBus(small)
    bus.set("STATUS", 1)
    with pytest.raises(BusError, match="at rest before a run, not: running"):
        Device(bus, small).run(job(small))
    assert bus.log == []


def test_a_machine_that_does_not_end_is_told_of(small: MachineConfig) -> None:
    bus = FakeBus(small, done=0b00011)
    with pytest.raises(
        BusError, match=r"done and quiet within 0\.01 s, not: running, done \(WATCHDOG 1048576"
    ):
        Device(bus, small).run(job(small), timeout=0.01)
    assert bus.idles > 0


def test_stop_makes_use_of_the_watchdog(small: MachineConfig) -> None:
    bus = FakeBus(small)
    device = Device(bus, small)
    device.stop()
    assert bus.log == []
    bus.set("STATUS", 1)
    with pytest.raises(BusError, match="done and quiet"):
        device.stop(timeout=0.0)
    assert bus.log == [("WATCHDOG", 1)]


def test_a_program_is_loaded_again_from_its_first_word_when_a_write_was_cut_off(small: MachineConfig) -> None:
    class Cut(FakeBus):
        left = 2

        def write_csr(self, offset: int, words: object) -> None:
            super().write_csr(offset, words)  # type: ignore[arg-type]
            if offset == self.at["PROGRAM_DATA"] and self.left:
                self.left -= 1
                raise UncertainError("cut off")

    bus = Cut(small)
    Device(bus, small).run(job(small, programs={1: [8, 9]}))
    loads = [("PROGRAM_ADDRESS", small.imem_words), ("PROGRAM_DATA", 8), ("PROGRAM_DATA", 9)]
    check = ("PROGRAM_CHECK", host.check_word([8, 9, 0]))
    once = [*loads, ("PROGRAM_DATA", 0)]
    assert [entry for entry in bus.log if entry[0].startswith("PROGRAM")] == [*once, *once, *once, check]
    bus.left = 99
    with pytest.raises(UncertainError):
        Device(bus, small).run(job(small))
