"""Control and status registers as data: RTL, C header and reference page come from this table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hw.config import ENGINES, FIELDS, MachineConfig

IDENTIFICATION = 0x4845414C  # "HEAL"
VERSION = 0x0004_0000

#: Bits of CONTROL.
START, CLEAR = 0, 1
#: Bits of STATUS.
RUNNING, DONE, ERROR, PROGRAM_OK, QUIET = 0, 1, 2, 3, 4
#: Bits of a window's permission.
READ, WRITE = 0, 1

#: Counters of every warp and of every engine, with what they count; those of the grid count other cycles.
WARP_COUNTERS = {
    "instructions": "instructions that warp {} issued",
    "stall_channel": "turns in which a wait held warp {}",
    "stall_engine": "turns in which an engine operation or a full signal queue held warp {}",
}
ENGINE_COUNTERS = {
    "operations": "operations that {} completed",
    "busy": "cycles in which {} moved a beat or multiplied",
    "stall_memory": "cycles in which memory did not accept {}'s request",
    "stall_bank": "cycles in which the array held the accumulator bank that {} needed",
    "words": "words that memory accepted of {}",
}
_GRID_COUNTERS = ENGINE_COUNTERS | {
    "busy": "cycles in which a launch of the grid was under way",
    "stall_bank": "cycles in which a step of the grid did not end, since a bank was in use",
}

WINDOW_BASE, WINDOW_STEP = 0x040, 16
WARP_BASE, WARP_STEP = 0x100, 16
ENGINE_BASE, ENGINE_STEP = 0x200, 32
CAPABILITY_BASE = 0x300

_GRID = {"cgra_rows": "rows", "cgra_cols": "cols", "cgra_contexts": "contexts"}
#: What a host can read of the configuration, in order, from CAPABILITY_BASE on: fields, sizes of the grid.
CAPABILITIES = (
    *(name for name in FIELDS if name not in ("name", "cgra") and not name.endswith("_latency")),
    *_GRID,
)


def capabilities(config: MachineConfig) -> dict[str, int]:
    """The values of the registers CONFIG_... by name in `CAPABILITIES`; sizes of no grid are 0."""
    grid = config.cgra
    return {
        name: (getattr(grid, _GRID[name]) if grid else 0) if name in _GRID else int(getattr(config, name))
        for name in CAPABILITIES
    }


@dataclass(frozen=True)
class Register:
    """One 32-bit register: byte offset, access (`ro`, `rw`, `wo`), meaning."""

    name: str
    offset: int
    access: str
    meaning: str


FIXED = (
    Register("ID", 0x000, "ro", "identification, 0x4845414C"),
    Register("VERSION", 0x004, "ro", "major [31:16], minor [15:0]"),
    Register("HASH_LOW", 0x008, "ro", "hash of the configuration, low word"),
    Register("HASH_HIGH", 0x00C, "ro", "hash of the configuration, high word"),
    Register(
        "CONTROL",
        0x010,
        "wo",
        "bit 0 start (ignored while running or done), bit 1 clear (when done and quiet)",
    ),
    Register(
        "STATUS",
        0x014,
        "ro",
        "bit 0 running, bit 1 done, bit 2 error, "
        "bit 3 programs of all enabled warps checked, bit 4 memory owes no answer",
    ),
    Register("ERROR", 0x018, "ro", "cause [7:0], warp [15:8], pc [31:16]"),
    Register("ENABLE", 0x01C, "rw", "warps that take part, one bit each; as windows, fixed during a run"),
    Register("WATCHDOG", 0x020, "rw", "cycles without progress after which the machine stops; 0: never"),
    Register("CYCLES_LOW", 0x024, "ro", "cycles of the run, low word"),
    Register("CYCLES_HIGH", 0x028, "ro", "cycles of the run, high word"),
    Register("PROGRAM_ADDRESS", 0x030, "wo", "warp * imem_words + pc of the next word; restarts the check"),
    Register(
        "PROGRAM_DATA", 0x034, "wo", "one instruction word; the address goes up by one, inside its warp"
    ),
    Register(
        "PROGRAM_CHECK",
        0x038,
        "wo",
        "CRC-32 (as zlib) of the words since PROGRAM_ADDRESS, "
        "low byte first; each warp needs it, for all its words from pc 0 on",
    ),
)


def _counters(owner: str, base: int, counters: Mapping[str, str], name: object) -> Iterator[Register]:
    for i, (counter, meaning) in enumerate(counters.items()):
        yield Register(f"{owner}_{counter.upper()}", base + 4 * i, "ro", meaning.format(name))


def registers(config: MachineConfig) -> list[Register]:
    """All registers of a machine, by offset."""
    table = list(FIXED)
    for i in range(config.windows):
        at = WINDOW_BASE + WINDOW_STEP * i
        table += [
            Register(f"WINDOW{i}_FIRST", at, "rw", f"first byte of memory window {i}"),
            Register(f"WINDOW{i}_LAST", at + 4, "rw", f"last byte of memory window {i}"),
            Register(f"WINDOW{i}_PERMIT", at + 8, "rw", "bit 0 read, bit 1 write; 0: closed"),
        ]
    for w in range(config.warps):
        table += _counters(f"WARP{w}", WARP_BASE + WARP_STEP * w, WARP_COUNTERS, w)
    for e, engine in enumerate(ENGINES):
        counters = _GRID_COUNTERS if engine == "cgra" else ENGINE_COUNTERS
        table += _counters(engine.upper(), ENGINE_BASE + ENGINE_STEP * e, counters, engine)
    for i, name in enumerate(CAPABILITIES):
        meaning = f"{_GRID[name]} of the CGRA grid, 0 without" if name in _GRID else f"configuration: {name}"
        table.append(Register(f"CONFIG_{name.upper()}", CAPABILITY_BASE + 4 * i, "ro", meaning))
    return table


def offset(config: MachineConfig, name: str) -> int:
    """Byte offset of a register by name; raises `KeyError` for a name that does not exist."""
    return {r.name: r.offset for r in registers(config)}[name]
