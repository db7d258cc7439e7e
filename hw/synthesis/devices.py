"""The ECP5 devices that nextpnr knows: their names, packages, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass

from hw.errors import InputError
from hw.synthesis.resources import Resources

#: Speed grades, slowest first.
SPEEDS = (6, 7, 8)
_SMALL = ("CABGA256", "CSFBGA285", "CABGA381", "TQFP144")
_MIDDLE = ("CABGA256", "CSFBGA285", "CABGA381", "CABGA554", "TQFP144")
_BIG = ("CSFBGA285", "CABGA381", "CABGA554", "CABGA756")


@dataclass(frozen=True)
class Device:
    """A device of the ECP5 family (Lattice FPGA-DS-02012), counted as nextpnr counts.

    `name` is nextpnr's option; `holds` are all of its LUTs (two per slice), registers, block RAMs of 18 Kbit
    and 18 x 18 multipliers. The die of the 12F is that of the 25F, and nextpnr lets all of it be used.
    """

    name: str
    part: str
    holds: Resources
    packages: tuple[str, ...]

    @property
    def package(self) -> str:
        """The package that is taken when none is asked for: it exists for every device."""
        return "CABGA381"

    def speed(self) -> int:
        """The speed grade that is taken when none is asked for: the quickest."""
        return SPEEDS[-1]

    def check(self, package: str, speed: int) -> None:
        """Raise `InputError` where the device does not exist so."""
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
#: The one that is taken when none is asked for: the largest and quickest, that of Lattice's evaluation board.
DEFAULT = "um5g-85k"


def find_device(name: str) -> Device:
    """The device of a name; raises `InputError` when there is none."""
    if name not in DEVICES:
        raise InputError(f"the device must be one of {', '.join(DEVICES)}, not {name!r}")
    return DEVICES[name]
