"""Control and status registers as data, from which RTL, C header and reference page are generated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hw.config import ENGINES, FIELDS, MachineConfig

IDENTIFICATION = 0x4845414C  # "HEAL"
VERSION = 0x0004_0001

#: Bits of CONTROL.
START, CLEAR = 0, 1
#: Bits of STATUS.
RUNNING, DONE, ERROR, PROGRAM_OK, QUIET = 0, 1, 2, 3, 4
#: Bits of a window's permission.
READ, WRITE = 0, 1

#: Alignment of BASE, chosen so that no AXI burst crosses a multiple of it.
BASE_STEP = 4096

#: Counters of every warp and of every engine, with what they count.
WARP_COUNTERS = {
    "instructions": "instructions that warp {} issued",
    "stall_channel": "turns in which warp {} stalled on a wait",
    "stall_engine": "turns in which warp {} stalled on an engine operation or a full signal queue",
}
ENGINE_COUNTERS = {
    "operations": "operations that {} completed",
    "busy": "cycles in which {} moved a beat",
    "stall_memory": "cycles in which memory did not accept a request of {}",
    "stall_bank": "always 0: {} never waits for a bank",
    "words": "words exchanged between memory and {}",
}
#: Engines whose counters count something else.
_OTHERS = {
    "gemm": {
        "busy": "cycles in which {} multiplied",
        "stall_memory": "always 0: {} has no memory port",
        "words": "always 0: {} has no memory port",
    },
    "cgra": {
        "busy": "cycles in which {} executed a launch",
        "stall_memory": "always 0: {} has no memory port",
        "stall_bank": "cycles in which {} stalled because a bank was in use",
        "words": "always 0: {} has no memory port",
    },
    "store": {
        "stall_bank": "cycles in which {} waited for an accumulator bank that the array used",
        "words": "words that {} wrote",
    },
    **{f"load_{x}": {"words": "words that {} read"} for x in "abc"},
}
#: Names of the engines in register descriptions.
_NAMES = {
    **{"load_a": "the loader of A", "load_b": "the loader of B", "load_c": "the loader of the scratchpad"},
    **{"gemm": "the array", "cgra": "the CGRA", "store": "the storer"},
}

WINDOW_BASE, WINDOW_STEP = 0x040, 16
WARP_BASE, WARP_STEP = 0x100, 16
ENGINE_BASE, ENGINE_STEP = 0x200, 32
CAPABILITY_BASE = 0x300

_GRID = {"cgra_rows": "rows", "cgra_cols": "cols", "cgra_contexts": "contexts"}
#: Configuration values that a host can read, in order, from CAPABILITY_BASE on: fields, then sizes of the
#: CGRA.
CAPABILITIES = (
    *(name for name in FIELDS if name not in ("name", "cgra") and not name.endswith("_latency")),
    *_GRID,
)


def capabilities(config: MachineConfig) -> dict[str, int]:
    """The values of the registers CONFIG_..., by name in `CAPABILITIES`; CGRA sizes are 0 without one."""
    grid = config.cgra
    return {
        name: (getattr(grid, _GRID[name]) if grid else 0) if name in _GRID else int(getattr(config, name))
        for name in CAPABILITIES
    }


def constants(config: MachineConfig) -> dict[str, int]:
    """The values of the registers that never change, by name."""
    found = {"ID": IDENTIFICATION, "VERSION": VERSION}
    found |= {"HASH_LOW": int(config.hash[8:], 16), "HASH_HIGH": int(config.hash[:8], 16)}
    return found | {f"CONFIG_{name.upper()}": value for name, value in capabilities(config).items()}


@dataclass(frozen=True)
class Field:
    """Bits of a register, from `low` on."""

    name: str
    low: int
    width: int
    meaning: str

    @property
    def text(self) -> str:
        """Bit range and meaning, as in the register map."""
        high = self.low + self.width - 1
        return f"{f'bit {high}' if self.width == 1 else f'bits {high}:{self.low}'} {self.meaning}"


def _bits(**meanings: str) -> tuple[Field, ...]:
    """One-bit fields, in order from bit 0."""
    return tuple(Field(name, bit, 1, meaning) for bit, (name, meaning) in enumerate(meanings.items()))


@dataclass(frozen=True)
class Register:
    """One 32-bit register: byte offset, access (`ro`, `rw`, `wo`), meaning, and fields if it has several."""

    name: str
    offset: int
    access: str
    meaning: str
    fields: tuple[Field, ...] = ()

    @property
    def text(self) -> str:
        """Meaning and fields in one line."""
        return "; ".join([self.meaning, *(field.text for field in self.fields)])


_VERSIONS = (Field("MINOR", 0, 16, "minor"), Field("MAJOR", 16, 16, "major"))
_CONTROL = _bits(
    START="start a run (ignored while running or done)", CLEAR="clear the state (when done and quiet)"
)
_STATUS = _bits(
    RUNNING="running",
    DONE="done",
    ERROR="error",
    PROGRAM_OK="programs of all enabled warps checked",
    QUIET="no memory answer outstanding",
)
_ERROR = (Field("CAUSE", 0, 8, "cause"), Field("WARP", 8, 8, "warp"), Field("PC", 16, 16, "pc"))
_PERMIT = _bits(READ="read", WRITE="write")

FIXED = (
    Register("ID", 0x000, "ro", f"identification, {IDENTIFICATION:#010x}"),
    Register("VERSION", 0x004, "ro", "version of the register map", _VERSIONS),
    Register("HASH_LOW", 0x008, "ro", "hash of the configuration, low word"),
    Register("HASH_HIGH", 0x00C, "ro", "hash of the configuration, high word"),
    Register("CONTROL", 0x010, "wo", "control of runs", _CONTROL),
    Register("STATUS", 0x014, "ro", "state of the machine", _STATUS),
    Register("ERROR", 0x018, "ro", "why the machine stopped", _ERROR),
    Register("ENABLE", 0x01C, "rw", "enabled warps, one bit each; fixed during a run"),
    Register("WATCHDOG", 0x020, "rw", "cycles without progress after which the machine stops; 0: never"),
    Register("CYCLES_LOW", 0x024, "ro", "cycles of the run, low word"),
    Register("CYCLES_HIGH", 0x028, "ro", "cycles of the run, high word"),
    Register(
        "BASE",
        0x02C,
        "rw",
        "memory address of address 0 of programs and windows: a multiple of 4,096, lower bits are 0; "
        "fixed during a run; 0 after a reset",
    ),
    Register("PROGRAM_ADDRESS", 0x030, "wo", "warp * imem_words + pc of the next word; restarts the check"),
    Register("PROGRAM_DATA", 0x034, "wo", "one instruction word; increments the address within its warp"),
    Register(
        "PROGRAM_CHECK",
        0x038,
        "wo",
        "CRC-32 (as zlib) of the words since PROGRAM_ADDRESS, "
        "low byte first; required for each warp, over all its words from pc 0 on",
    ),
)


def _setting(name: str) -> str:
    meaning = FIELDS[name].metadata["meaning"]
    return f"configuration: {meaning}" + ", in bytes" * (name.endswith("_bytes") and "bytes" not in meaning)


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
            Register(
                f"WINDOW{i}_PERMIT",
                at + 8,
                "rw",
                f"access that memory window {i} permits; 0: closed",
                _PERMIT,
            ),
        ]
    for w in range(config.warps):
        table += _counters(f"WARP{w}", WARP_BASE + WARP_STEP * w, WARP_COUNTERS, w)
    for e, engine in enumerate(ENGINES):
        counters = ENGINE_COUNTERS | _OTHERS[engine]
        table += _counters(engine.upper(), ENGINE_BASE + ENGINE_STEP * e, counters, _NAMES[engine])
    for i, name in enumerate(CAPABILITIES):
        meaning = f"{_GRID[name]} of the CGRA; 0 without a CGRA" if name in _GRID else _setting(name)
        table.append(Register(f"CONFIG_{name.upper()}", CAPABILITY_BASE + 4 * i, "ro", meaning))
    return table


def offset(config: MachineConfig, name: str) -> int:
    """Byte offset of a register by name; raises `KeyError` for a name that does not exist."""
    return {r.name: r.offset for r in registers(config)}[name]
