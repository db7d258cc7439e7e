"""The host's script: the writes before a run, their order, and the reads after it."""

from __future__ import annotations

import zlib

import pytest

from cosim.host import RESULTS, Op, ScriptEntry, check_word, counter_names, script, script_words
from cosim.job import Job, Region, Window
from cosim.settings import MemorySettings
from hw import csr
from hw.config import MachineConfig
from hw.errors import InputError


def job(small: MachineConfig, **values: object) -> Job:
    return Job(**{"programs": {0: [1, 2]}, "settings": MemorySettings.of(small), "windows": ()} | values)  # type: ignore[arg-type]


def writes(small: MachineConfig, entries: list[ScriptEntry]) -> list[tuple[str, int]]:
    names = {r.offset: r.name for r in csr.registers(small)}
    return [(names[e.address], e.data) for e in entries if e.op is Op.WRITE]


def test_a_run_clears_loads_checks_opens_and_starts_in_this_order(small: MachineConfig) -> None:
    entries = script(
        small, job(small, programs={2: [7, 8]}, windows=(Window(16, 31, write=False),), watchdog=9)
    )
    assert writes(small, entries) == [
        ("CONTROL", 2),
        ("PROGRAM_ADDRESS", 2 * small.imem_words),
        ("PROGRAM_DATA", 7),
        ("PROGRAM_DATA", 8),
        ("PROGRAM_DATA", 0),
        ("PROGRAM_CHECK", zlib.crc32(bytes([7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]))),
        ("WINDOW0_FIRST", 16),
        ("WINDOW0_LAST", 31),
        ("WINDOW0_PERMIT", 1),
        ("WINDOW1_PERMIT", 0),
        ("BASE", 0),
        ("ENABLE", 4),
        ("WATCHDOG", 9),
        ("CONTROL", 1),
    ]


def test_results_counters_and_regions_are_read_after_the_wait(small: MachineConfig) -> None:
    entries = script(small, job(small, outputs=(Region(6, 3),)))
    after = entries[[e.op for e in entries].index(Op.WAIT) + 1 :]
    names = {r.offset: r.name for r in csr.registers(small)}
    assert [names[e.address] for e in after if e.op is Op.READ] == [*RESULTS, *counter_names(small)]
    assert after[-3:] == [
        ScriptEntry(Op.DUMP_FIRST, data=1),
        ScriptEntry(Op.DUMP_WORDS, data=2),
        ScriptEntry(Op.END),
    ]


def test_a_job_may_give_a_wrong_check_word(small: MachineConfig) -> None:
    entries = script(small, job(small, check_word=5))
    assert ("PROGRAM_CHECK", 5) in writes(small, entries)
    assert check_word([1, 2]) != 5


def test_counters_are_those_of_warps_and_engines(small: MachineConfig) -> None:
    names = counter_names(small)
    assert len(names) == 3 * small.warps + 5 * 6
    assert names[0] == "WARP0_INSTRUCTIONS"
    assert names[-1] == "STORE_WORDS"


def test_the_longest_script_fits(small: MachineConfig) -> None:
    full = {warp: [1] * small.imem_words for warp in range(small.warps)}
    windows = tuple(Window(0, 1) for _ in range(small.windows))
    outputs = tuple(Region(4 * i, 4) for i in range(256))
    assert len(script(small, job(small, programs=full, windows=windows, outputs=outputs))) <= script_words(
        small
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"programs": {6: [1]}}, "warps must be 0 to 5, not 6"),
        ({"programs": {0: [1] * 1025}}, r"at most 1024 instructions \(imem_words\), not 1025"),
        ({"windows": (Window(0, 1),) * 3}, "at most 2 windows can be open, not 3"),
        ({"outputs": (Region(0xFFEFFFFF, 2),)}, "outputs must lie below 0xfff00000"),
        ({"outputs": (Region(0, 1),) * 257}, "at most 256 regions can be returned, not 257"),
    ],
)
def test_what_the_machine_cannot_take_is_refused(
    small: MachineConfig, values: dict[str, object], text: str
) -> None:
    with pytest.raises(InputError, match=f"job: {text}|job: the program of warp 0 must have {text}"):
        script(small, job(small, **values))
