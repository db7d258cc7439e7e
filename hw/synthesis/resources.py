"""FPGA devices, and the resources that the cells of a netlist use, by instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hw.errors import InputError
from hw.synthesis.nets import SCOPE, component

#: Resources of ECP5 cells. LUTs are counted as nextpnr's "Total LUT4s": a carry cell counts as two; sixteen
#: words of four bits are four LUTs that hold data and two that address the writes.
_ECP5 = {
    "LUT4": {"luts": 1},
    "CCU2C": {"luts": 2},
    "TRELLIS_DPR16X4": {"luts": 6},
    "TRELLIS_FF": {"ffs": 1},
    **{cell: {"brams": 1} for cell in ("DP16KD", "PDPW16KD")},
    "MULT18X18D": {"dsps": 1},
    **{cell: {"latches": 1} for cell in ("$_DLATCH_P_", "$_DLATCH_N_")},
}
#: Resources of Xilinx 7-series cells (UG474 for LUTs as memory, UG473, UG479). Block RAM counts in 18 Kbit,
#: as for ECP5; the wide multiplexers and carry chains of a slice come with its LUTs.
_XILINX = {
    **{cell: {"luts": 1} for cell in (*(f"LUT{n}" for n in range(1, 7)), "INV")},
    **{cell: {"luts": 1} for cell in ("SRL16E", "SRLC16E", "SRLC32E", "RAM32X1S", "RAM64X1S")},
    **{cell: {"luts": 2} for cell in ("RAM128X1S", "RAM32X1D", "RAM64X1D")},
    **{cell: {"luts": 4} for cell in ("RAM256X1S", "RAM128X1D", "RAM32M", "RAM64M")},
    **{f"{name}{edge}": {"ffs": 1} for name in ("FDRE", "FDSE", "FDCE", "FDPE") for edge in ("", "_1")},
    "RAMB18E1": {"brams": 1},
    "RAMB36E1": {"brams": 2},
    "DSP48E1": {"dsps": 1},
    **{cell: {"latches": 1} for cell in ("LDCE", "LDPE")},
}
_WEIGHTS = {"ecp5": _ECP5, "xilinx": _XILINX}

#: Families that synthesis supports.
FAMILIES = tuple(_WEIGHTS)


@dataclass(frozen=True)
class Resources:
    """LUTs, registers, 18-Kbit block RAMs, multipliers, latches."""

    luts: int = 0
    ffs: int = 0
    brams: int = 0
    dsps: int = 0
    latches: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


#: Names of the fields of `Resources` in messages and reports.
NAMES = {"luts": "LUTs", "ffs": "registers", "brams": "block RAMs", "dsps": "multipliers"}


def of_cells(cells: Mapping[str, int], family: str) -> Resources:
    """The resources of a number of cells of each type."""
    totals = dict.fromkeys((f.name for f in fields(Resources)), 0)
    for kind, number in cells.items():
        for resource, weight in _WEIGHTS[family].get(kind, {}).items():
            totals[resource] += weight * number
    return Resources(**totals)


#: Clock pins of cells.
CLOCK_PINS = frozenset({"CLK", "WCK", "CLKA", "CLKB", "CLK0", "CLK1", "CLK2", "CLK3"})


def by_component(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Number of cells by type, for each instance path; the path of the top itself is ""."""
    paths = frozenset(name for name, cell in cells.items() if cell["type"] == SCOPE)
    found: dict[str, Counter[str]] = {}
    for name, cell in cells.items():
        if cell["type"] != SCOPE:
            found.setdefault(component(name, paths), Counter())[cell["type"]] += 1
    for path in paths:
        found.setdefault(path, Counter())
    return found


def grouped(components: Mapping[str, Resources], share: float = 0.5) -> dict[str, Resources]:
    """The sums over the groups of `groups`, largest first."""
    sums: dict[str, Resources] = {}
    for path, group in groups(components, share).items():
        sums[group] = sums.get(group, Resources()) + components[path]
    return dict(sorted(sums.items(), key=lambda item: (-item[1].luts, item[0])))


def groups(components: Mapping[str, Resources], share: float) -> dict[str, str]:
    """The group of each instance path: the instance of the top in which it lies.

    An instance with more than `share` of all LUTs is split into its own instances; its name then stands for
    its own cells alone.
    """
    total = sum(resources.luts for resources in components.values())
    level = dict.fromkeys(components, 1)  # for each path, how many of its components form the group's name
    while True:
        members: dict[str, list[str]] = {}
        for path in components:
            members.setdefault(".".join(path.split(".")[: level[path]]), []).append(path)
        large = [
            paths
            for paths in members.values()
            if len(paths) > 1 and sum(components[path].luts for path in paths) > share * total
        ]
        if not large:
            return {path: group for group, paths in members.items() for path in paths}
        for paths in large:
            for path in paths:
                level[path] += 1


#: Speed grades, slowest first.
SPEEDS = (6, 7, 8)
_SMALL = ("CABGA256", "CSFBGA285", "CABGA381", "TQFP144")
_MIDDLE = ("CABGA256", "CSFBGA285", "CABGA381", "CABGA554", "TQFP144")
_BIG = ("CSFBGA285", "CABGA381", "CABGA554", "CABGA756")


@dataclass(frozen=True)
class Device:
    """A device of the ECP5 family (Lattice FPGA-DS-02012), counted as nextpnr counts.

    `name` is nextpnr's option; `holds` are all of its LUTs (two per slice), registers, 18-Kbit block RAMs and
    18 x 18 multipliers. The 12F has the die of the 25F, and nextpnr lets a design use all of it.
    """

    name: str
    part: str
    holds: Resources
    packages: tuple[str, ...]

    @property
    def package(self) -> str:
        """The default package, which exists for every device."""
        return "CABGA381"

    def speed(self) -> int:
        """The default speed grade: the fastest."""
        return SPEEDS[-1]

    def check(self, package: str, speed: int) -> None:
        """Raises `InputError` if the device does not exist in this package or speed grade."""
        if package not in self.packages:
            raise InputError(
                f"the package of {self.name} must be one of {', '.join(self.packages)}, not {package}"
            )
        if speed not in SPEEDS:
            raise InputError(f"the speed grade must be one of {', '.join(map(str, SPEEDS))}, not {speed}")
        if self.part.startswith("LFE5UM5G") and speed != 8:
            raise InputError(f"the speed grade of {self.name} must be 8, not {speed}")


def _devices() -> dict[str, Device]:
    dies = {
        "12": (24288, 56, 28, _SMALL),
        "25": (24288, 56, 28, _SMALL),
        "45": (43848, 108, 72, _MIDDLE),
        "85": (83640, 208, 156, _BIG),
    }
    found = {}
    for prefix, part in (("", "LFE5U"), ("um-", "LFE5UM"), ("um5g-", "LFE5UM5G")):
        for size, (luts, brams, dsps, packages) in dies.items():
            if prefix and size == "12":
                continue
            name = f"{prefix}{size}k"
            holds = Resources(luts=luts, ffs=luts, brams=brams, dsps=dsps)
            found[name] = Device(name, f"{part}-{size}F", holds, packages)
    return found


#: Devices by name.
DEVICES = _devices()
#: The default device: the largest and fastest, the one on Lattice's evaluation board.
DEFAULT = "um5g-85k"


def find_device(name: str) -> Device:
    """The device of a name; raises `InputError` if there is none."""
    if name not in DEVICES:
        raise InputError(f"the device must be one of {', '.join(DEVICES)}, not {name!r}")
    return DEVICES[name]
