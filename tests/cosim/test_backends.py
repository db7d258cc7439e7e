"""The three simulators observe the same run of the machine, event by event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosim import observe
from cosim.amaranth_sim import Memory
from cosim.backends import simulator
from cosim.job import EventKind, Job, MachineError, Outcome, Region, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from cosim.waves import Waves
from hw import isa
from hw.assembly import assemble
from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric.toml import load as fabric
from hw.isa import Cause
from tests.machines import WIDE

#: A small machine with a grid.
GRID = WIDE.replace(cgra=fabric("mesh2x2"))

A, B, C = 0x1000, 0x2003, 0x3002
M, N, K = 4, 4, 8

LOAD = """
    parami load_stride, 8
    parami load_pitch, 8
    li r1, {address}
    li r2, {outer}
    li r3, {inner}
    {name} r1, r0, r2, r3
    signal {channel}
    halt
"""
MULTIPLY = """
    parami gemm_m, 4
    parami gemm_n, 4
    parami gemm_a_pitch, 8
    parami gemm_b_pitch, 8
    parami gemm_c_pitch, 1
    parami gemm_signed, 3
    li r1, 8
    wait 0
    wait 1
    gemm r0, r0, r0, r1
    signal 2
    @r0 signal 2
    halt
"""
STORE = """
    parami store_stride, 16
    parami store_pitch, 1
    li r1, {address}
    li r2, 4
    li r3, 16
    wait 2
    store r1, r0, r2, r3
    halt
"""


def product(small: MachineConfig, stall_seed: int | None = None) -> tuple[Job, np.ndarray]:
    """A job that multiplies 4 x 8 by 8 x 4 in four warps, and the bytes that it should store."""
    rng = np.random.default_rng(3)
    a = rng.integers(-128, 128, (M, K), dtype=np.int8)
    b = rng.integers(-128, 128, (N, K), dtype=np.int8)
    programs = {
        0: assemble(LOAD.format(address=A, outer=M, inner=K, name="load_a", channel=0)),
        1: assemble(LOAD.format(address=B, outer=N, inner=K, name="load_b", channel=1)),
        2: assemble(MULTIPLY),
        3: assemble(STORE.format(address=C)),
    }
    job = Job(
        programs=programs,
        settings=MemorySettings.of(small, stall_seed=stall_seed),
        windows=(Window(A, B + 63, write=False), Window(C, C + 63, read=False)),
        memory=((A, a.reshape(-1).view(np.uint8)), (B, b.reshape(-1).view(np.uint8))),
        outputs=(Region(C, 4 * M * N), Region(C + 4 * M * N, 8)),
        watchdog=4096,
    )
    return job, (a.astype(np.int32) @ b.astype(np.int32).T).reshape(-1).view(np.uint8)


def without_seconds(outcome: Outcome) -> tuple[object, ...]:
    return (
        outcome.events,
        outcome.cycles,
        outcome.error,
        outcome.counters,
        [o.tolist() for o in outcome.outputs],
    )


def test_three_backends_observe_the_same_runs() -> None:
    plain, expected = product(WIDE)
    stalled, _ = product(WIDE, stall_seed=9)
    illegal = Job({0: assemble("nop\n.word 0"), 1: assemble("wait 0")}, plain.settings, (), watchdog=64)
    # A division alone takes longer than this watchdog, and none is suspected while it is under way.
    divides = Job({1: assemble("li r1, 7\ndivi r2, r1, 3\nhalt")}, plain.settings, (), watchdog=64)
    jobs = [plain, illegal, stalled, divides]
    cpp, *others = (simulator(WIDE, name).run(jobs) for name in ("cpp", "verilator", "amaranth"))
    for outcomes in others:
        for one, other in zip(cpp, outcomes, strict=True):
            assert without_seconds(one) == without_seconds(other)
    assert cpp[3].error is None
    assert cpp[3].cycles > isa.DIV_TURNS * WIDE.derived.period > 64
    for outcome in (cpp[0], cpp[2]):
        assert outcome.error is None
        np.testing.assert_array_equal(outcome.outputs[0], expected)
        assert not outcome.outputs[1].any()
        assert outcome.cycles == outcome.events[-1].cycle + 1
        assert outcome.counters["WARP2_INSTRUCTIONS"] == 13
        assert [e.pc for e in outcome.events if e.warp == 2 and e.kind > EventKind.VOID] == [9, 10]
    assert cpp[1].error == MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 1)
    assert cpp[0].cycles < cpp[2].cycles


def test_a_program_runs_alike_wherever_its_memory_lies() -> None:
    """Results, events and cycles, at both ends of the memory and above 2 GiB; the model knows no base."""
    plain, expected = product(WIDE, stall_seed=9)
    bases = (0x1000, 0x3800_0000, 0x9ABC_D000, 0xFFEF_0000)
    jobs = [plain, *(replace(plain, settings=replace(plain.settings, base=base)) for base in bases)]
    first, *others = simulator(WIDE, "verilator").run(jobs)
    np.testing.assert_array_equal(first.outputs[0], expected)
    predicted = predict(WIDE, plain)
    assert (first.events, first.cycles) == (predicted.events, predicted.cycles)
    for outcome in others:
        assert without_seconds(outcome) == without_seconds(first)


@pytest.mark.parametrize("base", [4, -4096, 1 << 32])
def test_a_base_is_a_multiple_of_a_page(small: MachineConfig, base: int) -> None:
    with pytest.raises(InputError, match=r"base must be a multiple of 4,096 below 2\^32"):
        MemorySettings.of(small, base=base)


def test_an_unknown_simulator_is_refused(small: MachineConfig) -> None:
    with pytest.raises(InputError, match="--sim must be one of verilator, cpp, amaranth, not 'icarus'"):
        simulator(small, "icarus")


def test_amaranth_writes_vcd_only(small: MachineConfig) -> None:
    with pytest.raises(InputError, match=r"must end in \.vcd, not 'a\.fst'"):
        simulator(small, "amaranth", Waves(Path("a.fst")))


@pytest.mark.parametrize("warp", range(2, GRID.warps))
def test_a_run_that_fails_ends_though_memory_owes_an_answer(
    monkeypatch: pytest.MonkeyPatch, warp: int
) -> None:
    """After WATCHDOG cycles more, also if the grid has a launch, or takes one in the cycle of the stop.

    An error is told two cycles later, and a launch is taken three cycles after its issue: the error of
    warp 2 is told in that cycle.
    """
    owed = []

    def keep(memory: Memory, port: int, now: int, payload: int) -> None:
        owed.append(port)

    monkeypatch.setattr(Memory, "accept", keep)
    monkeypatch.setattr(observe, "QUIET_CYCLES", 100)
    programs = {
        0: assemble("li r1, 4096\nli r2, 1\nload_a r1, r0, r2, r2\nhalt"),
        1: assemble("nop\n" * 15 + "cgra r0, r0, r0, r0\nhalt"),
        warp: assemble("nop\n" * 15 + ".word 0"),
    }
    job = Job(programs, MemorySettings.of(GRID), (Window(A, A + 63, write=False),), watchdog=64)
    # It raises where nothing happens for much longer than the watchdog.
    (outcome,) = simulator(GRID, "amaranth").run([job])
    assert outcome.error == MachineError(Cause.ILLEGAL_INSTRUCTION, warp, 15)
    assert owed, "a load is under way"
    launched = next(e.cycle for e in outcome.events if (e.warp, e.pc) == (1, 15))
    assert outcome.cycles - launched == warp - 1
