"""Identifies the machine behind a bus."""

from __future__ import annotations

from cosim.device.bus import Bus, BusError
from hw import csr
from hw.config import FIELDS, MachineConfig, load, preset_names
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric import toml as fabrics

_AT = {r.name: r.offset for r in csr.FIXED}


def read_hash(bus: Bus) -> str:
    """The configuration's hash. Raises `BusError` if no machine of this version answers."""
    identification, version, low, high = bus.read_csr(_AT["ID"], 4)
    if identification != csr.IDENTIFICATION:
        raise BusError(
            f"register ID must be {csr.IDENTIFICATION:#010x}, not {identification:#010x}: "
            "what answers is no Heald machine, or its registers lie elsewhere"
        )
    if version != csr.VERSION:
        raise BusError(f"register VERSION must be {_version(csr.VERSION)}, not {_version(version)}")
    return f"{high:08x}{low:08x}"


def check(bus: Bus, config: MachineConfig) -> None:
    """Raise `BusError` unless the machine behind a bus has this configuration."""
    found = read_hash(bus)
    if found == config.hash:
        return
    sizes = capabilities(bus)
    wanted = csr.capabilities(config)
    apart = [f"{name} is {sizes[name]}, not {wanted[name]}" for name in sizes if sizes[name] != wanted[name]]
    raise BusError(
        f"the machine must be {config.name!r} (hash {config.hash}), not one with hash {found}: "
        + (", ".join(apart) if apart else "its grid differs")
    )


def identify(bus: Bus) -> MachineConfig:
    """The configuration of the machine behind a bus.

    It is a preset, or follows from the registers CONFIG_... These give only the size of the CGRA, so a
    machine with a custom fabric is not recognised. No register holds the latencies; they are the preset's or
    the defaults. Raises `BusError` if no machine answers or its configuration cannot be identified.
    """
    found = read_hash(bus)
    for name in preset_names():
        if (config := load(name)).hash == found:
            return config
    sizes = capabilities(bus)
    grid = {name: sizes.pop(name) for name in list(sizes) if name.startswith("cgra_")}
    values = {n: bool(v) if isinstance(FIELDS[n].default, bool) else v for n, v in sizes.items()}
    try:
        base = MachineConfig(name="device").replace(**values)
    except InputError as error:
        raise BusError(f"the registers CONFIG_... describe an invalid machine: {error}") from None
    candidates: list[Fabric | None] = [None]
    if all(grid.values()):
        size = grid["cgra_rows"], grid["cgra_cols"]
        candidates = [fabric for name in fabrics.preset_names() if (fabric := _fabric(name, size))]
    for fabric in candidates:
        if (config := base.replace(cgra=fabric)).hash == found:
            return config
    what = "its fabric is not a preset" if any(grid.values()) else "its registers contradict its hash"
    raise BusError(f"the machine with hash {found} is not known ({what}): give its configuration")


def _fabric(name: str, size: tuple[int, int]) -> Fabric | None:
    """A preset in the given size, or None if it does not come in that size."""
    try:
        return fabrics.load(name, size)
    except InputError:
        return None


def capabilities(bus: Bus) -> dict[str, int]:
    """The registers CONFIG_..., by name in `hw.csr.CAPABILITIES`."""
    values = bus.read_csr(csr.CAPABILITY_BASE, len(csr.CAPABILITIES))
    return dict(zip(csr.CAPABILITIES, values, strict=True))


def _version(word: int) -> str:
    return f"{word >> 16}.{word & 0xFFFF}"
