"""What the host does in a run: the register accesses that load, start and read back a machine."""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from cosim.images import MEMORY_BYTES
from cosim.job import Job, Region, loaded
from hw import csr
from hw.config import MachineConfig
from hw.errors import InputError


class Op(enum.IntEnum):
    """What an entry of the script does."""

    END = 0
    WRITE = 1
    READ = 2
    WAIT = 3  # until the machine is done and every access is answered
    DUMP_FIRST = 4
    DUMP_WORDS = 5


class Entry(NamedTuple):
    """One entry: operation, register offset, data (to write, or first word and number of words to dump)."""

    op: Op
    address: int = 0
    data: int = 0

    def word(self) -> int:
        """The entry as the harness reads it."""
        return self.op << 48 | self.address << 32 | self.data


#: Registers that are read after a run, in order, before the counters.
RESULTS = ("STATUS", "ERROR", "CYCLES_LOW", "CYCLES_HIGH")


def script_words(config: MachineConfig) -> int:
    """Entries that the longest script needs: all programs, all registers, and 256 regions to dump."""
    return config.warps * (config.imem_words + 2) + 2 * len(csr.registers(config)) + 2 * 256


def counter_names(config: MachineConfig) -> list[str]:
    """The performance counters of warps and engines, in the order in which they are read."""
    return [r.name for r in csr.registers(config) if csr.WARP_BASE <= r.offset < csr.CAPABILITY_BASE]


def script(config: MachineConfig, job: Job) -> list[Entry]:
    """The accesses of a run, in order; raises `InputError` for a job that the machine cannot take."""
    _check(config, job)
    at = {r.name: r.offset for r in csr.registers(config)}

    def write(name: str, data: int) -> Entry:
        return Entry(Op.WRITE, at[name], data)

    out = [write("CONTROL", 1 << csr.CLEAR)]
    for warp, words in sorted(job.programs.items()):
        out.append(write("PROGRAM_ADDRESS", warp * config.imem_words))
        words = loaded(config, words)
        out += [write("PROGRAM_DATA", word) for word in words]
        out.append(write("PROGRAM_CHECK", check_word(words) if job.check_word is None else job.check_word))
    for i in range(config.windows):
        permit = 0
        if i < len(job.windows):
            window = job.windows[i]
            out.append(write(f"WINDOW{i}_FIRST", window.first))
            out.append(write(f"WINDOW{i}_LAST", window.last))
            permit = window.read << csr.READ | window.write << csr.WRITE
        out.append(write(f"WINDOW{i}_PERMIT", permit))
    out.append(write("ENABLE", sum(1 << warp for warp in job.programs)))
    out.append(write("WATCHDOG", job.watchdog))
    out.append(write("CONTROL", 1 << csr.START))
    out.append(Entry(Op.WAIT))
    out += [Entry(Op.READ, at[name]) for name in (*RESULTS, *counter_names(config))]
    for region in job.outputs:
        first, count = region_words(region)
        out += [Entry(Op.DUMP_FIRST, data=first), Entry(Op.DUMP_WORDS, data=count)]
    return [*out, Entry(Op.END)]


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
    for region in job.outputs:
        if region.size < 0 or not 0 <= region.address <= MEMORY_BYTES - region.size:
            raise InputError(
                f"{job.name}: outputs must lie below {MEMORY_BYTES:#x}, not at {region.address:#x} "
                f"+ {region.size} bytes"
            )
