"""Every error of docs/machine.md, provoked on the RTL: it stops, reports what and where, and runs again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Job, MachineError, Outcome, Region, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.assembly import assemble
from hw.config import MachineConfig
from hw.isa import Cause
from tests.machines import TEST, WIDE

MACHINES = {"grid": TEST, "no grid": WIDE}
OPEN = (Window(0, 0xFFFF),)
LOAD = "li r1, 64\nli r2, 0\nli r3, 1\nli r4, 8\nparami load_stride, 8\nparami load_pitch, 8\n"
GEMM = "parami gemm_m, 4\nparami gemm_n, 4\nli r4, 4\n"
STORE = "li r1, 512\nli r2, 0\nli r3, 3\nli r4, 16\nparami store_stride, 16\nparami store_pitch, 1\n"
LOOPS = "li r1, 2\n" + "".join(f"loop r1, {13 - 2 * i}\n" for i in range(7)) + "nop\n" * 7 + "halt"

#: Name, programs, windows, the error that the machine must report.
CASES: list[tuple[str, list[str], tuple[Window, ...], MachineError]] = [
    ("empty word", ["nop\n.word 0"], OPEN, MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 1)),
    ("unknown opcode", ["halt", ".word 0xffffffff"], OPEN, MachineError(Cause.ILLEGAL_INSTRUCTION, 1, 0)),
    ("past the end", ["nop\nnop"], OPEN, MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 2)),
    ("no such channel", ["wait 16\nhalt"], OPEN, MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 0)),
    ("no grid", ["cgra r0, r0, r0, r0\nhalt"], OPEN, MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 0)),
    ("too wide", ["li r1, 300\nparam load_fill, r1\nhalt"], OPEN, MachineError(Cause.OPERAND, 0, 1)),
    (
        "too wide, held by another warp",
        ["nop\nparami load_fill, 1\nnop\nhalt", "nop\nparami load_fill, 256\nhalt"],
        OPEN,
        MachineError(Cause.OPERAND, 1, 1),
    ),
    (
        "too wide, held by a full queue",
        [GEMM + "li r5, 100\nli r6, -1\n" + "gemm r0, r0, r0, r5\n" * 5 + "gemm r0, r0, r0, r6\nhalt"],
        OPEN,
        MachineError(Cause.OPERAND, 0, 10),
    ),
    ("no rows", [LOAD + "load_a r1, r2, r0, r4\nhalt"], OPEN, MachineError(Cause.OPERAND, 0, 6)),
    (
        "pitch that collides",
        ["parami load_pitch, 8\nli r1, 8\nload_b_t r1, r0, r1, r1\nhalt"],
        OPEN,
        MachineError(Cause.OPERAND, 0, 2),
    ),
    ("no depth", [GEMM + "gemm r0, r0, r0, r0\nhalt"], OPEN, MachineError(Cause.OPERAND, 0, 3)),
    (
        "store unaligned",
        [STORE + "store_scratch r1, r3, r3, r4\nhalt"],
        OPEN,
        MachineError(Cause.OPERAND, 0, 6),
    ),
    (
        "buffer A too small",
        [LOAD + "li r2, 1020\nload_a r1, r2, r3, r4\nhalt"],
        OPEN,
        MachineError(Cause.BUFFER_RANGE, 0, 7),
    ),
    (
        "scratchpad too small",
        [LOAD + f"li r2, {TEST.scratch_bytes - 6}\nload_c r1, r2, r3, r4\nhalt"],
        OPEN,
        MachineError(Cause.BUFFER_RANGE, 0, 7),
    ),
    (
        "columns past buffer B",
        [GEMM + "li r1, 1021\ngemm r0, r1, r0, r4\nhalt"],
        OPEN,
        MachineError(Cause.BUFFER_RANGE, 0, 4),
    ),
    (
        "deeper than a buffer",
        [GEMM + "li r4, 1026\ngemm r0, r0, r0, r4\nhalt"],
        OPEN,
        MachineError(Cause.BUFFER_RANGE, 0, 4),
    ),
    (
        "rows past the accumulator",
        [GEMM + "parami gemm_c_pitch, 1\nli r1, 254\ngemm r0, r0, r1, r4\nhalt"],
        OPEN,
        MachineError(Cause.BUFFER_RANGE, 0, 5),
    ),
    (
        "store past the accumulator",
        [STORE + "li r2, 254\nstore r1, r2, r3, r4\nhalt"],
        OPEN,
        MachineError(Cause.BUFFER_RANGE, 0, 7),
    ),
    ("closed memory", [LOAD + "load_a r1, r2, r3, r4\nhalt"], (), MachineError(Cause.WINDOW, 0, 6)),
    (
        "one byte outside",
        [LOAD + "load_a r1, r2, r3, r4\nhalt"],
        (Window(0, 70),),
        MachineError(Cause.WINDOW, 0, 6),
    ),
    (
        "read only",
        [STORE + "store r1, r2, r3, r4\nhalt"],
        (Window(0, 0xFFFF, write=False),),
        MachineError(Cause.WINDOW, 0, 6),
    ),
    ("overflow", ["signal 3\n" * 9 + "halt"], OPEN, MachineError(Cause.CHANNEL_OVERFLOW, 0, 8)),
    (
        "two signallers",
        ["signal 3\n" * 4 + "halt", "signal 3\n" * 5 + "halt"],
        OPEN,
        MachineError(Cause.CHANNEL_OVERFLOW, 1, 4),
    ),
    (
        "two waiters for one token",
        ["wait 3\nhalt", "wait 3\nhalt", "signal 3\nhalt"],
        OPEN,
        MachineError(Cause.WATCHDOG, 1, 0),
    ),
    ("nothing to wait for", ["halt", "nop\nwait 3\nhalt"], OPEN, MachineError(Cause.WATCHDOG, 1, 1)),
    ("nobody else to wait for", ["nop\nnop\nwait 3\nhalt"], OPEN, MachineError(Cause.WATCHDOG, 0, 2)),
    ("seven loops", [LOOPS], OPEN, MachineError(Cause.LOOP_DEPTH, 0, 7)),
    ("division", ["li r1, 1\ndiv r1, r1, r0\nhalt"], OPEN, MachineError(Cause.DIVIDE_BY_ZERO, 0, 1)),
    ("remainder", ["li r1, 1\nremi r1, r1, 0\nhalt"], OPEN, MachineError(Cause.DIVIDE_BY_ZERO, 0, 1)),
]


#: What is no error on a machine of another size.
SIZES = (("no grid", "pitch that collides"), ("no grid", "buffer A too small"))


def job(programs: list[str], windows: tuple[Window, ...], **more: object) -> Job:
    words = {i: assemble(text) for i, text in enumerate(programs)}
    return Job(words, MemorySettings.of(TEST), windows, watchdog=300, **more)  # type: ignore[arg-type]


def on(config: MachineConfig, made: Job) -> Job:
    """A job with the memories of a machine."""
    return dataclasses.replace(made, settings=MemorySettings.of(config))


def good_job() -> Job:
    """A small product: the identity times a matrix."""
    text = (
        "li r1, 64\nli r4, 4\nparami load_stride, 8\nparami load_pitch, 4\nload_a r1, r0, r4, r4\n"
        "li r1, 128\nload_b_t r1, r0, r4, r4\n"
        "parami gemm_m, 4\nparami gemm_n, 4\nparami gemm_a_pitch, 4\nparami gemm_b_pitch, 4\n"
        "parami gemm_c_pitch, 1\nparami gemm_signed, 3\n"
        "gemm r0, r0, r0, r4\nli r1, 512\nparami store_stride, 16\nparami store_pitch, 1\nli r2, 16\n"
        "store r1, r0, r4, r2\nhalt"
    )
    identity, matrix = np.zeros((4, 8), np.uint8), np.zeros((4, 8), np.uint8)
    identity[:, :4] = np.eye(4, dtype=np.uint8)
    matrix[:, :4] = np.arange(16).reshape(4, 4)
    memory = ((64, identity.ravel()), (128, matrix.ravel()))
    return job([text], OPEN, memory=memory, outputs=(Region(512, 64),))


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], tuple[Outcome, Outcome]]:
    """All cases in one simulation of each machine, each followed by a run that must be right."""
    jobs = []
    for _, programs, windows, _ in CASES:
        jobs += [job(programs, windows), good_job()]
    made = {}
    for machine, config in MACHINES.items():
        found = iter(simulator(config, "verilator").run([on(config, job) for job in jobs]))
        made |= {(machine, name): (next(found), next(found)) for name, *_ in CASES}
    return made


@pytest.mark.parametrize(
    ("case", "machine"),
    [pytest.param(c, m, id=f"{c[0]}-{m}") for c in CASES for m in MACHINES if (m, c[0]) not in SIZES],
)
def test_an_error_stops_the_machine_and_says_where(
    case: tuple[str, list[str], tuple[Window, ...], MachineError],
    machine: str,
    outcomes: dict[tuple[str, str], tuple[Outcome, Outcome]],
) -> None:
    name, programs, windows, expected = case
    if (machine, name) == ("grid", "no grid"):
        expected = MachineError(Cause.BITSTREAM, 0, 0)  # address 0 of the scratchpad holds none
    stopped, following = outcomes[machine, name]
    assert stopped.error == expected
    config = MACHINES[machine]
    assert predict(config, on(config, job(programs, windows))).error == expected
    assert following.error is None
    assert following.outputs[0].view(np.int32).tolist() == list(range(16))
    assert following.events == predict(config, on(config, good_job())).events


def test_a_machine_without_patches_refuses_them_and_loads_rows() -> None:
    config = WIDE.replace(convolutions=False)
    jobs = [on(config, job(["load_b_conv r0, r0, r0, r0\nhalt"], OPEN)), good_job()]
    for made, outcome in zip(jobs, simulator(config, "amaranth").run(jobs), strict=True):
        assert compare(config, made, predict(config, made), outcome) is None
    assert predict(config, jobs[0]).error == MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 0)


def test_every_cause_is_provoked() -> None:
    elsewhere = {Cause.NONE, Cause.CHECK_WORD, Cause.BUS}
    elsewhere |= {Cause.GRID_RANGE, Cause.BITSTREAM}  # test_grid_random.py
    assert {c[3].cause for c in CASES} | elsewhere == set(Cause)


def test_programs_and_memory_that_fail_on_the_way_in() -> None:
    """A wrong check word, and a memory that answers with errors."""
    wrong = job(["halt"], OPEN, check_word=1)
    beyond = "li r1, -1\nshli r1, r1, 12\nli r4, 4\n"
    read = job([beyond + "load_a r1, r0, r4, r4\nhalt"], (Window(0, 0xFFFFFFFF),))
    write = job([beyond + "store r1, r0, r4, r4\nhalt"], (Window(0, 0xFFFFFFFF),))
    found = simulator(TEST, "verilator").run([wrong, good_job(), read, good_job(), write, good_job()])
    assert [o.error for o in found] == [
        MachineError(Cause.CHECK_WORD, 0, 0),
        None,
        MachineError(Cause.BUS, 0, 3),
        None,
        MachineError(Cause.BUS, 0, 3),
        None,
    ]
    assert predict(TEST, wrong).error == MachineError(Cause.CHECK_WORD, 0, 0)
    assert all(o.outputs[0].view(np.int32).tolist() == list(range(16)) for o in found[1::2])


def test_nothing_is_written_outside_a_window() -> None:
    """The third row of a store leaves the window: rows before it may be written, nothing beyond is."""
    filler = np.full(256, 0xAA, np.uint8)
    stopping = job(
        [STORE + "store r1, r2, r3, r4\nhalt"],
        (Window(512, 512 + 32 + 8),),
        memory=((448, filler),),
        outputs=(Region(448, 64), Region(512 + 32, 160)),
    )
    outcome = simulator(TEST, "verilator").run([stopping])[0]
    assert outcome.error == MachineError(Cause.WINDOW, 0, 6)
    assert (outcome.outputs[0] == 0xAA).all()
    assert (outcome.outputs[1] == 0xAA).all()
