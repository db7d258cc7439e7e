"""The host's side of a run: the register accesses that load, start and read back a machine."""

from __future__ import annotations

import enum
import itertools
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from cosim.job import Job, Region, loaded
from hw import csr
from hw.config import MachineConfig
from hw.errors import InputError
from sw.layout import MEMORY_BYTES


class Op(enum.IntEnum):
    """Operation of a script entry."""

    END = 0
    WRITE = 1
    READ = 2
    WAIT = 3  # until the machine is done and every access has been answered
    DUMP_FIRST = 4
    DUMP_WORDS = 5


class ScriptEntry(NamedTuple):
    """One entry: operation, register offset, data (a word to write, or first word and count to dump)."""

    op: Op
    address: int = 0
    data: int = 0

    def word(self) -> int:
        """The entry as the harness reads it."""
        return self.op << 48 | self.address << 32 | self.data


class Write(NamedTuple):
    """Write words to one register, in order."""

    offset: int
    words: tuple[int, ...]


class LoadProgram(NamedTuple):
    """Load the program of a warp; repeating all writes from the first one gives the same result."""

    writes: tuple[Write, ...]


class Read(NamedTuple):
    """Read successive registers."""

    offset: int
    number: int


class Wait(NamedTuple):
    """Wait until the machine is done and quiet."""


class Dump(NamedTuple):
    """Dump words of memory: the first word and their number."""

    first: int
    words: int


Step = Write | LoadProgram | Read | Wait | Dump

#: Registers read after a run, in order, before the counters.
RESULTS = ("STATUS", "ERROR", "CYCLES_LOW", "CYCLES_HIGH")


def script_words(config: MachineConfig) -> int:
    """Number of entries in the longest script: all programs, all registers, and dumps of 256 regions."""
    return config.warps * (config.imem_words + 2) + 2 * len(csr.registers(config)) + 2 * 256


def counter_names(config: MachineConfig) -> list[str]:
    """Names of the performance counters of warps and engines, in the order in which they are read."""
    return [r.name for r in csr.registers(config) if csr.WARP_BASE <= r.offset < csr.CAPABILITY_BASE]


def steps(config: MachineConfig, job: Job, memory: int = 0) -> list[Step]:
    """The host's steps in a run, in order; `memory` is the machine's address of the memory's first byte.

    Raises `InputError` for a job that the machine cannot take.
    """
    _check(config, job)
    at = {r.name: r.offset for r in csr.registers(config)}

    def write(name: str, *words: int) -> Write:
        return Write(at[name], words)

    out: list[Step] = [write("CONTROL", 1 << csr.CLEAR)]
    for warp, words in sorted(job.programs.items()):
        words = loaded(config, words)
        check = check_word(words) if job.check_word is None else job.check_word
        place = write("PROGRAM_ADDRESS", warp * config.imem_words)
        out.append(LoadProgram((place, write("PROGRAM_DATA", *words), write("PROGRAM_CHECK", check))))
    for i in range(config.windows):
        permit = 0
        if i < len(job.windows):
            window = job.windows[i]
            out += [write(f"WINDOW{i}_FIRST", window.first), write(f"WINDOW{i}_LAST", window.last)]
            permit = window.read << csr.READ | window.write << csr.WRITE
        out.append(write(f"WINDOW{i}_PERMIT", permit))
    out.append(write("BASE", memory + job.settings.base & 0xFFFFFFFF))
    out.append(write("ENABLE", sum(1 << warp for warp in job.programs)))
    out += [write("WATCHDOG", job.watchdog), write("CONTROL", 1 << csr.START), Wait()]
    offsets = [at[name] for name in (*RESULTS, *counter_names(config))]
    for _, run in itertools.groupby(enumerate(offsets), lambda pair: pair[1] - 4 * pair[0]):
        first, *others = (offset for _, offset in run)
        out.append(Read(first, 1 + len(others)))
    return [*out, *(Dump(*region_words(region)) for region in job.placed().outputs)]


def script(config: MachineConfig, job: Job) -> list[ScriptEntry]:
    """The steps of a run as the harness takes them."""
    return [*(entry for step in steps(config, job) for entry in _entries(step)), ScriptEntry(Op.END)]


def _entries(step: Step) -> list[ScriptEntry]:
    match step:
        case Write(offset, words):
            return [ScriptEntry(Op.WRITE, offset, word) for word in words]
        case LoadProgram(writes):
            return [entry for write in writes for entry in _entries(write)]
        case Read(offset, number):
            return [ScriptEntry(Op.READ, offset + 4 * i) for i in range(number)]
        case Dump(first, number):
            return [ScriptEntry(Op.DUMP_FIRST, data=first), ScriptEntry(Op.DUMP_WORDS, data=number)]
    return [ScriptEntry(Op.WAIT)]


def check_word(words: Sequence[int]) -> int:
    """CRC-32 of instruction words, low byte first."""
    return zlib.crc32(struct.pack(f"<{len(words)}I", *words))


def region_words(region: Region) -> tuple[int, int]:
    """First word and number of words that cover a region."""
    first = region.address // 4
    return first, (region.address + region.size + 3) // 4 - first


def _check(config: MachineConfig, job: Job) -> None:
    for warp, words in job.programs.items():
        if not 0 <= warp < config.warps:
            raise InputError(f"{job.name}: warps must be 0 to {config.warps - 1}, not {warp}")
        if len(words) > config.imem_words:
            raise InputError(
                f"{job.name}: the program of warp {warp} must have at most {config.imem_words} "
                f"instructions (imem_words), not {len(words)}"
            )
    if len(job.windows) > config.windows:
        raise InputError(f"{job.name}: at most {config.windows} windows can be open, not {len(job.windows)}")
    if len(job.outputs) > 256:
        raise InputError(f"{job.name}: at most 256 regions can be returned, not {len(job.outputs)}")
    for region in job.placed().outputs:
        if region.size < 0 or not 0 <= region.address <= MEMORY_BYTES - region.size:
            raise InputError(
                f"{job.name}: outputs must lie below {MEMORY_BYTES:#x}, not at {region.address:#x} "
                f"+ {region.size} bytes"
            )
