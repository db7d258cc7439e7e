"""The harness around the machine: memory ports, host, recorder, several jobs in one process."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim import job_files, observe
from cosim.build import Build, build
from cosim.cpp import CppSimulator
from cosim.job import EventKind, Job, Region, Window
from cosim.observe import Records
from cosim.settings import MemorySettings
from cosim.verilator import VerilatorSimulator
from cosim.waves import Waves
from hw.config import PORTS, MachineConfig
from sw.layout import MEMORY_BYTES

FAKE = Path(__file__).parent / "fake_machine.v"
LOADS, ALL = (0, 1, 2), (0, 1, 2, 3)


def fake_job(
    small: MachineConfig,
    ports: tuple[int, ...],
    cycles: int = 2000,
    load: int = 0,
    store: int = 0x100000,
    memory: tuple[tuple[int, np.ndarray], ...] = (),
    outputs: tuple[Region, ...] = (),
    **settings: Any,
) -> Job:
    """A job for the fake machine: bits of ENABLE say which ports make requests in every cycle."""
    return Job(
        programs={port: [] for port in ports},
        settings=MemorySettings.of(small, **settings),
        windows=(Window(load, load), Window(store, store)),
        memory=memory,
        outputs=outputs,
        watchdog=cycles,
    )


def records(fake: Build, small: MachineConfig, job: Job, directory: Path) -> Records:
    """What the recorder wrote in a run of the plain program."""
    job_files.prepare(directory / "0", small, job)
    subprocess.run(
        [fake.directory / "plain", f"+directory={directory}", "+jobs=1"], check=True, capture_output=True
    )
    return observe.parse_records((directory / "0" / "trace.bin").read_bytes(), small.warps)


def cycles_of(mask: np.ndarray, warp: int, found: Records) -> np.ndarray:
    cycles: np.ndarray = found.cycle[(mask >> warp & 1).astype(bool)]
    return cycles


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bandwidth": {"load_a": 1, "load_b": 3, "load_c": 5, "store": 7}},
        {"stall_seed": 0},
        {"stall_seed": 0xFFFFFFFF, "stall_rate": 200, "bandwidth": {"load_b": 6}},
        {"stall_seed": 123456789, "stall_rate": 3},
    ],
)
def test_ports_accept_in_the_cycles_of_the_settings(
    fake: Build, small: MachineConfig, tmp_path: Path, settings: dict[str, Any]
) -> None:
    job = fake_job(small, ALL, **settings)
    found = records(fake, small, job, tmp_path)
    cycles = np.arange(job.watchdog, dtype=np.int64)
    for number, port in enumerate(PORTS):
        accepted = cycles_of(found.complete, number, found)
        expected = cycles[job.settings.available(port, cycles)]
        np.testing.assert_array_equal(accepted[accepted < job.watchdog], expected)


def test_answers_come_exactly_latency_cycles_after_acceptance(
    fake: Build, small: MachineConfig, tmp_path: Path
) -> None:
    latency = {"load_a": 1, "load_b": 2, "load_c": 100, "store": 500}
    found = records(fake, small, fake_job(small, ALL, latency=latency, stall_seed=5), tmp_path)
    for number, port in enumerate(PORTS):
        accepted = cycles_of(found.complete, number, found)
        answered = cycles_of(found.signal, number, found)
        np.testing.assert_array_equal(answered, accepted + latency[port])


@pytest.mark.parametrize("base", [64, 0x9000_0040, MEMORY_BYTES - 8 * 300])
def test_loads_return_the_image(fake: Build, small: MachineConfig, tmp_path: Path, base: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 8 * 300, dtype=np.uint8)
    found = records(fake, small, fake_job(small, LOADS, 300, load=base, memory=((base, data),)), tmp_path)
    expected = data.view("<u2")[::4]
    for warp in (1, 2):
        rows = (found.signal >> warp & 1).astype(bool)
        np.testing.assert_array_equal(found.pc[rows, warp][:300], expected)


@pytest.mark.parametrize("latency", [1, 2, 9])
def test_a_load_sees_what_was_stored_in_earlier_cycles_only(
    fake: Build, small: MachineConfig, tmp_path: Path, latency: int
) -> None:
    # In cycle x the fake stores the low byte of x (as strobe and data) at x, and reads the same addresses.
    job = fake_job(small, (1, 3), 200, load=0x1000, store=0x1000, latency={"load_b": latency, "store": 3})
    found = records(fake, small, job, tmp_path)
    rows = (found.signal >> 1 & 1).astype(bool)
    read = found.pc[rows, 1][:200]
    cycles = np.arange(200)
    expected = np.where(cycles & 1, cycles & 0xFF, 0)  # strobe bit 0 is bit 0 of the cycle
    np.testing.assert_array_equal(read & 0xFF, expected)


def test_addresses_beyond_the_memory_are_answered_with_an_error(
    fake: Build, small: MachineConfig, tmp_path: Path
) -> None:
    edge = MEMORY_BYTES - 8 * 50
    found = records(fake, small, fake_job(small, (0, 3), 100, load=edge, store=edge), tmp_path)
    for warp, bit in ((0, 15), (3, 0)):
        rows = (found.signal >> warp & 1).astype(bool)
        np.testing.assert_array_equal(found.pc[rows, warp][:100] >> bit & 1, np.arange(100) >= 50)


def test_jobs_of_one_process_do_not_see_each_others_memory(fake: Build, small: MachineConfig) -> None:
    data = np.full(64, 0xAB, np.uint8)
    region = (Region(0x8000, 64), Region(0x100003, 13), Region(0xC000_0000, 9))
    first = fake_job(small, (3,), 40, memory=((0x8000, data),), outputs=region)
    second = fake_job(small, (0,), 40, outputs=region)
    one, two, three = CppSimulator(small, fake).run([first, second, first])
    np.testing.assert_array_equal(one.outputs[0], data)
    assert one.outputs[1].any()
    assert not two.outputs[0].any()
    assert not two.outputs[1].any()
    np.testing.assert_array_equal(three.outputs[1], one.outputs[1])


def test_cocotb_and_plain_loop_observe_the_same(fake: Build, small: MachineConfig) -> None:
    jobs = [fake_job(small, ALL, 500, stall_seed=3), fake_job(small, LOADS, 100)]
    plain = CppSimulator(small, fake).run(jobs)
    cocotb = VerilatorSimulator(small, fake).run(jobs)
    for a, b in zip(plain, cocotb, strict=True):
        assert a.events == b.events
        assert a.cycles == b.cycles
        assert a.counters == b.counters
        assert a.counters["WARP0_INSTRUCTIONS"] == 0x12345678


@pytest.mark.parametrize("backend", [CppSimulator, VerilatorSimulator])
def test_an_answer_that_is_not_taken_ends_the_run_with_the_reason(
    fake: Build, small: MachineConfig, backend: type[CppSimulator] | type[VerilatorSimulator]
) -> None:
    # Bit 5 of ENABLE makes the fake refuse answers to stores.
    with pytest.raises(RuntimeError, match=r"job \(0 of this run\): store: .* did not take an answer"):
        backend(small, fake).run([fake_job(small, (3, 5), 50)])


def test_run_time_settings_share_one_build(fake: Build, small: MachineConfig) -> None:
    simulator = CppSimulator(small, fake)
    slow = fake_job(small, (0,), 64, bandwidth={"load_a": 1})
    fast = fake_job(small, (0,), 64)
    accepted = [
        [event.cycle for event in outcome.events if event.kind is EventKind.COMPLETE][:4]
        for outcome in simulator.run([slow, fast])
    ]
    assert accepted == [[0, 8, 16, 24], [0, 1, 2, 3]]


def test_a_machine_that_hangs_is_given_up(
    fake: Build, small: MachineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Bit 4 of ENABLE makes the fake never be done.
    monkeypatch.setattr(observe, "QUIET_CYCLES", 2000)
    with pytest.raises(RuntimeError, match="neither moved anything nor stopped"):
        CppSimulator(small, fake).run([fake_job(small, (0, 4), 50)])


@pytest.mark.slow
def test_waves_show_the_machine_from_the_first_job_to_the_last(small: MachineConfig, tmp_path: Path) -> None:
    waves = Waves(tmp_path / "run.vcd")
    traced = build(small, text=FAKE.read_text(), waves="run.vcd")
    CppSimulator(small, traced, waves).run([fake_job(small, (0,), 20), fake_job(small, (1,), 20)])
    text = waves.file.read_text(encoding="utf-8")
    assert "load_a_request__valid" in text[: text.index("$enddefinitions")]
    assert text.count("\n#") > 4000  # two runs of more than a thousand cycles, two half cycles each
