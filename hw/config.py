"""The configuration of a machine: a frozen dataclass, named presets, and a short TOML form.

`MachineConfig` holds what a person chooses; `Derived` computes everything that follows from it and rejects
combinations that cannot be built. RTL, compiler and cycle model read sizes only from here.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hw import isa, toml_text
from hw.errors import InputError, unknown
from hw.fabric import Fabric, Unit
from hw.fabric import toml as fabrics

#: Memory ports in the order of their numbers (harness, stall patterns, counters).
PORTS = ("load_a", "load_b", "load_c", "store")

#: Engines in the order of their numbers (counters, traces).
ENGINES = ("load_a", "load_b", "load_c", "gemm", "cgra", "store")


#: Maximum latency of a memory in cycles: for this long, loaders can track outstanding answers.
MOST_LATENCY = 500

#: Fields that are not numbers.
_OTHERS = ("name", "cgra")
#: The value of `cgra` in files and settings that removes the CGRA of a preset.
NO_GRID = "none"


def _switch(default: bool, meaning: str) -> Any:
    return field(default=default, metadata={"low": 0, "high": 1, "meaning": meaning, "power_of_two": False})


def _setting(default: int, low: int, high: int, meaning: str, *, power_of_two: bool = False) -> Any:
    limits = {"low": low, "high": high, "meaning": meaning, "power_of_two": power_of_two}
    return field(default=default, metadata=limits)


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """The fields that a hardware architect chooses; every field has a range and a meaning.

    Sizes are in bytes, bandwidths in bytes per cycle, latencies in cycles. `derived` holds everything that
    follows from them. Raises `InputError` if a field is out of range or fields contradict each other.
    """

    name: str = "default"
    rows: int = _setting(16, 2, 64, "rows of the GEMM array", power_of_two=True)
    cols: int = _setting(16, 2, 64, "columns of the GEMM array", power_of_two=True)
    buffer_a_bytes: int = _setting(65536, 64, 1 << 20, "input buffer A", power_of_two=True)
    buffer_b_bytes: int = _setting(65536, 64, 1 << 20, "input buffer B", power_of_two=True)
    acc_bytes: int = _setting(65536, 64, 1 << 22, "accumulator", power_of_two=True)
    acc_banks: int = _setting(2, 1, 16, "banks of the accumulator", power_of_two=True)
    scratch_bytes: int = _setting(16384, 64, 1 << 20, "scratchpad (load C)", power_of_two=True)
    out_bytes: int = _setting(16384, 64, 1 << 20, "output buffer (CGRA)", power_of_two=True)
    load_a_bytes: int = _setting(32, 4, 128, "bytes per cycle of port load A", power_of_two=True)
    load_b_bytes: int = _setting(32, 4, 128, "bytes per cycle of port load B", power_of_two=True)
    load_c_bytes: int = _setting(32, 4, 128, "bytes per cycle of port load C", power_of_two=True)
    store_bytes: int = _setting(32, 4, 128, "bytes per cycle of port store", power_of_two=True)
    load_a_latency: int = _setting(20, 1, MOST_LATENCY, "read latency of port load A")
    load_b_latency: int = _setting(20, 1, MOST_LATENCY, "read latency of port load B")
    load_c_latency: int = _setting(20, 1, MOST_LATENCY, "read latency of port load C")
    store_latency: int = _setting(20, 1, MOST_LATENCY, "write response latency of port store")
    warps: int = _setting(6, 1, 16, "warps, which share one sequencer")
    registers: int = _setting(32, 8, 32, "scalar registers per warp, including r0 (always 0)")
    channels: int = _setting(16, 1, 64, "sync channels")
    channel_depth: int = _setting(8, 8, 255, "tokens that a channel can hold")
    imem_words: int = _setting(512, 32, 16384, "instruction words per warp", power_of_two=True)
    loop_depth: int = _setting(6, 1, 16, "nesting depth of hardware loops")
    queue_depth: int = _setting(2, 1, 16, "operations that an engine's queue can hold")
    windows: int = _setting(2, 1, 12, "memory windows that the host can open")
    convolutions: bool = _switch(True, "load B can form the patches of convolutions (load_b_conv)")
    cgra: Fabric | None = field(default=None, metadata={"meaning": "the CGRA; None for no CGRA"})

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            if f.name not in _OTHERS:
                _check_field(f, getattr(self, f.name))
        if self.cgra is not None and not isinstance(self.cgra, Fabric):
            raise InputError(f"cgra must be a fabric, not {self.cgra!r}")
        Derived(self)

    @functools.cached_property
    def derived(self) -> Derived:
        """Everything that follows from the fields, computed and checked in one place."""
        return Derived(self)

    @functools.cached_property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that identify the hardware.

        The name and the latencies are excluded: latencies belong to the memories that a run attaches to the
        ports.
        """
        values = self.hardware()
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """The fields by name; a CGRA as its name and everything that its hardware depends on."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if self.cgra is not None:
            values["cgra"] = {"name": self.cgra.name, **self.cgra.as_dict()}
        return values

    def hardware(self) -> dict[str, Any]:
        """The fields that the RTL depends on, by name; without a CGRA, there is no `cgra`."""
        values = {k: v for k, v in self.as_dict().items() if k != "name" and not k.endswith("_latency")}
        del values["cgra"]
        return values if self.cgra is None else values | {"cgra": dict(self.cgra.as_dict())}

    def replace(self, **changes: Any) -> MachineConfig:
        """A copy with some fields changed; raises `InputError` if that cannot be built."""
        return dataclasses.replace(self, **changes)

    def port_bytes(self, port: str) -> int:
        """Width of a memory port in bytes per cycle."""
        width: int = getattr(self, f"{port}_bytes")
        return width

    def port_latency(self, port: str) -> int:
        """Latency of a memory port in cycles, which a run may override."""
        latency: int = getattr(self, f"{port}_latency")
        return latency

    def lacks(self, instruction: str) -> str | None:
        """What this machine lacks to execute an instruction; None if it lacks nothing."""
        for name, (what, instructions) in isa.NEEDED.items():
            if instruction in instructions and not getattr(self, name):
                return what
        return None

    @property
    def store_pes(self) -> tuple[int, ...]:
        """The PEs that can store, once for each lane, in ascending order; empty without a CGRA."""
        grid = self.cgra
        return (
            tuple(pe for pe in grid.having(Unit.MEMORY) for _ in range(grid.kinds[pe].lanes)) if grid else ()
        )

    @property
    def macs_per_cycle(self) -> int:
        """Peak of the array in multiply-accumulates per cycle."""
        return self.rows * self.cols


def _check_field(f: dataclasses.Field[Any], value: Any) -> None:
    low, high = f.metadata["low"], f.metadata["high"]
    if isinstance(f.default, bool):
        if not isinstance(value, bool):
            raise InputError(f"{f.name} ({f.metadata['meaning']}) must be true or false, not {value!r}")
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{f.name} must be a whole number from {low} to {high}, not {value!r}")
    if not low <= value <= high:
        raise InputError(f"{f.name} ({f.metadata['meaning']}) must be {low} to {high}, not {value}")
    if f.metadata["power_of_two"] and value & (value - 1):
        raise InputError(f"{f.name} ({f.metadata['meaning']}) must be a power of two, not {value}")


@dataclass(frozen=True)
class BufferShape:
    """Geometry of a byte-banked buffer: columns of `lanes` bytes in `banks` memories.

    Column `c`, lane `r` lies in bank `(r + c) % banks` at address `(c // banks) * lanes + c % lanes`
    (docs/machine.md, "Input buffers").
    """

    lanes: int
    banks: int
    columns: int

    @property
    def depth(self) -> int:
        """Bytes in each bank."""
        return self.lanes * self.columns // self.banks


class Derived:
    """Everything that follows from a `MachineConfig`; raises `InputError` if it contradicts itself.

    `buffer_a`, `buffer_b`, `scratch`, `out` are `BufferShape`s. `acc_word_bytes`, `acc_words` and
    `acc_bank_words` size the accumulator, whose word is one row of a block. `period` is the number of cycles
    from one turn of a warp to its next.
    """

    def __init__(self, c: MachineConfig):
        self.buffer_a = self._buffer("buffer_a_bytes", c.buffer_a_bytes, c.rows, c.load_a_bytes)
        self.buffer_b = self._buffer("buffer_b_bytes", c.buffer_b_bytes, c.cols, c.load_b_bytes)
        # The CGRA reads and writes one word per lane at once.
        lanes = c.cgra.lanes if c.cgra is not None else 1
        if lanes > c.cols:
            raise InputError(
                f"cols must be at least {lanes}, as many as cgra has lanes, not {c.cols}: "
                "set more columns, or take a fabric with fewer lanes"
            )
        wide = max(c.load_c_bytes, c.store_bytes, 4 * lanes * (lanes > 1))
        self.scratch = self._buffer("scratch_bytes", c.scratch_bytes, 1, wide)
        self.out = self._buffer("out_bytes", c.out_bytes, 1, max(4 * lanes, c.store_bytes))
        self.period = max(isa.TIMING.sequencer, c.warps)
        self.acc_word_bytes = 4 * c.cols
        self.acc_words = c.acc_bytes // self.acc_word_bytes
        self.acc_bank_words = self.acc_words // c.acc_banks
        if self.acc_bank_words < c.rows:
            raise InputError(
                f"acc_bytes must give each of the {c.acc_banks} banks the {c.rows} rows of a block: "
                f"{c.rows * self.acc_word_bytes * c.acc_banks} bytes are needed, not {c.acc_bytes}"
            )
        if c.store_bytes > self.acc_word_bytes:
            raise InputError(
                f"store_bytes must be at most the {self.acc_word_bytes} bytes of an accumulator row "
                f"(4 x cols), not {c.store_bytes}"
            )

    @staticmethod
    def _buffer(name: str, size: int, lanes: int, port: int) -> BufferShape:
        banks = max(lanes, port)
        least = max(16, lanes) * banks  # a whole group of columns, and at least 16 bytes per bank
        if size < least:
            raise InputError(
                f"{name} must hold {least // banks} bytes in each of its {banks} byte banks "
                f"(the wider of array edge and port): {least} are needed, not {size}"
            )
        return BufferShape(lanes=lanes, banks=banks, columns=size // lanes)


FIELDS = {f.name: f for f in dataclasses.fields(MachineConfig)}


def unknown_field(name: str, known: Iterable[str] = FIELDS) -> str:
    """The message for a name that is no field of a machine."""
    return unknown("field", name, known, "`heald config show default` lists all fields")


def preset_names() -> list[str]:
    """Names of the presets that come with Heald, smallest machine first."""
    return sorted(toml_text.presets("hw"), key=lambda n: (load(n).macs_per_cycle, n))


def load(
    source: str | MachineConfig, settings: Mapping[str, Any] | None = None, *, text: str | None = None
) -> MachineConfig:
    """Loads a preset by name or a TOML file by path, or takes a configuration; then overrides single fields.

    A TOML file holds fields of `MachineConfig` at top level and may start from `preset = "NAME"`. `cgra` is
    the name of a fabric, the path of its file (relative to this one), a table (`hw.fabric.toml`), or `none`.
    `text` is the contents of the file, if already read. Overridden fields become part of the name, as in
    `tiny with rows=8`, unless `name` is one of them. Raises `InputError` for an unknown name, an unreadable
    file, unknown fields or bad values.
    """
    if isinstance(source, MachineConfig):
        values, source = {name: getattr(source, name) for name in FIELDS}, source.name
    else:
        values = _found(source, text)
    own, settings = values, dict(settings or {})
    values = own | settings
    for key in values:
        if key not in FIELDS:
            raise InputError(f"{source}: {unknown_field(key)}")
    name = values["name"]
    if not isinstance(name, str) or not name.isprintable():
        raise InputError(f"{source}: name must be text that can be printed, not {name!r}")
    if isinstance(grid := values.get("cgra"), Mapping):
        values["cgra"] = fabrics.from_values(grid, f"{source}: cgra")
    try:
        if isinstance(grid, str):
            values["cgra"] = None if grid == NO_GRID else fabrics.load(grid)
        made = MachineConfig(**values)
        return made if not settings or "name" in settings else made.replace(name=_name(made, own, settings))
    except InputError as error:
        raise InputError(f"{source}: {'cgra: ' * isinstance(values.get('cgra'), str)}{error}") from None


def _name(made: MachineConfig, own: Mapping[str, Any], settings: Iterable[str]) -> str:
    """The name of a machine some of whose own fields were set: the own name, and the fields that differ."""
    told = {key: _shown(getattr(made, key)) for key in settings}
    told = {k: v for k, v in told.items() if v != _shown(own.get(k, FIELDS[k].default))}
    base, _, earlier = made.name.partition(" with ")
    kept = [part for part in earlier.split(", ") if part and part.partition("=")[0] not in told]
    parts = ", ".join(kept + [f"{k}={v}" for k, v in told.items()])
    return f"{base} with {parts}" if parts else base


def _shown(value: Any) -> str:
    """A field's value as `--set` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return NO_GRID if value is None else str(getattr(value, "name", value))


def _found(source: str, text: str | None) -> dict[str, Any]:
    """The values of a preset or file, including its name."""
    known, place = toml_text.presets("hw"), source
    if text is None:
        needed = f"--hw must be a preset ({', '.join(known)}) or a TOML file"
        text, place = toml_text.found(source, known, needed)
    path = Path(source)
    values = {"name": source if source in known else path.stem} | _read(text, place)
    if source not in known and isinstance(grid := values.get("cgra"), str) and toml_text.path_like(grid):
        values["cgra"] = str(path.parent / grid)
    return values


def _read(text: str, place: str) -> dict[str, Any]:
    values = toml_text.parsed(text, place)
    base = values.pop("preset", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise InputError(f"{place}: preset must be text, not {base!r}")
    known = toml_text.presets("hw")
    if base not in known:
        raise InputError(f"{place}: {unknown('preset', base, known)}")
    return _read(known[base].read_text("utf-8"), f"preset {base}") | values


def parse_setting(text: str) -> tuple[str, Any]:
    """Parses `key=value` from the command line into a field and its value."""
    key, sign, value = text.partition("=")
    if key not in FIELDS:
        raise InputError(f"--set: {unknown_field(key)}")
    if not sign or not value:
        raise InputError(f"--set {key} needs a value, as in --set {key}={_example(key)}")
    if key in _OTHERS:
        return key, value
    if isinstance(FIELDS[key].default, bool):
        return key, {"true": True, "false": False}.get(value.lower(), value)
    try:
        return key, int(value, 0)
    except ValueError:
        limits = FIELDS[key].metadata
        needed = f"a whole number from {limits['low']} to {limits['high']}"
        raise InputError(f"--set {key} must be {needed}, not {value!r:.80}") from None


def _example(key: str) -> Any:
    """An example value for a field."""
    return next(iter(toml_text.presets("hw.fabric"))) if key == "cgra" else FIELDS[key].default


def to_toml(config: MachineConfig) -> str:
    """The configuration as TOML text that `load` reads back to an equal object."""
    lines = [f"name = {json.dumps(config.name, ensure_ascii=False)}"]
    for f in dataclasses.fields(config):
        if f.name not in _OTHERS:
            value = json.dumps(getattr(config, f.name))
            lines.append(f"{f.name} = {value}".ljust(28) + f"# {f.metadata['meaning']}")
    if config.cgra is not None:
        # Tables come last; those of the fabric are nested in the machine's.
        nested = re.sub(r"^(\[+)", r"\1cgra.", fabrics.to_toml(config.cgra), flags=re.MULTILINE)
        lines += ["", "[cgra]", nested.rstrip()]
    return "\n".join(lines) + "\n"
