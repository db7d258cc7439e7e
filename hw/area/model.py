"""Area model: estimates resources and clock of a machine from its configuration, fitted to synthesis."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from math import log2

from hw.area.parts import parts
from hw.config import PORTS, MachineConfig
from hw.errors import InputError
from hw.fabric import Unit
from hw.html import table

FAMILIES = ("ecp5", "xilinx")
#: Metrics, in the order of reports.
RESOURCES = ("luts", "ffs", "brams", "dsps")


@dataclass(frozen=True)
class Model:
    """Coefficients by part, resource and feature, and of the longest path in nanoseconds by machine feature.

    `whole` scales the sum of the parts to the whole machine, by resource. `clock` is empty if no clock was
    measured.
    """

    coefficients: Mapping[str, Mapping[str, Mapping[str, float]]]
    whole: Mapping[str, float]
    clock: Mapping[str, float]

    def part(self, kind: str, resource: str, features: Mapping[str, float]) -> float:
        """The amount of a resource that a part uses."""
        weights = self.coefficients[kind][resource]
        return sum(weight * features[name] for name, weight in weights.items())

    def delay(self, features: Mapping[str, float]) -> float:
        """The longest path in nanoseconds of a machine with these `features`; 0 if no clock was measured."""
        return sum(weight * features[name] for name, weight in self.clock.items())


def is_fitted(family: str) -> bool:
    """Whether there is a model of a family."""
    return family in FAMILIES and (resources.files("hw.area") / f"{family}.json").is_file()


@functools.cache
def load(family: str) -> Model:
    """Loads the model of a family; raises `InputError` if there is none."""
    if not is_fitted(family):
        fitted = " or ".join(f for f in FAMILIES if is_fitted(f))
        raise InputError(f"family must be one that has an area model, {fitted}, not {family!r}")
    values = json.loads((resources.files("hw.area") / f"{family}.json").read_text(encoding="utf-8"))
    return Model(values["coefficients"], values["whole"], values["clock"])


#: The device for which clocks are estimated, the default of `heald fpga`, with its only speed grade; its
#: LUTs.
DEVICE, LUTS = "um5g-85k", 83_640


def features(config: MachineConfig, luts: float) -> dict[str, float]:
    """The features of a machine that determine its longest path, each to be multiplied by its nanoseconds.

    The longest path of a part placed alone hardly depends on its size. What matters is how far signals travel
    in a machine, so how full the device is and what is connected to what. `luts` are those of the whole
    machine; a machine larger than the device counts as a full one.
    """
    grid = config.cgra
    multiplies = grid is not None and any(Unit.MULTIPLIER in kind.units for kind in grid.kinds)
    return {
        "one": 1.0,
        "full": min(1.0, luts / LUTS),
        "multiplier": float(multiplies),
        "array": log2(config.rows * config.cols),
        "port": log2(max(config.port_bytes(port) for port in PORTS)),
        "banks": log2(1 + (len(grid.having(Unit.MEMORY)) if grid else 0) * config.acc_banks),
    }


@dataclass(frozen=True)
class Estimate:
    """The estimated FPGA resources and clock of a machine.

    `luts` are 4-input LUTs on ECP5 (including carry and LUT RAM, as nextpnr counts them) and LUTs of any size
    on Xilinx. `brams` are 18-Kbit block RAMs. `fmax_mhz` is the clock in MHz, or None for a family without
    clock measurements. `luts_by_part` has the LUTs of each component.
    """

    luts: int
    ffs: int
    brams: int
    dsps: int
    fmax_mhz: float | None
    luts_by_part: dict[str, int]

    def _repr_html_(self) -> str:
        clock = [] if self.fmax_mhz is None else [("clock (MHz)", self.fmax_mhz)]
        kinds = ("LUTs", self.luts), ("registers", self.ffs), ("block RAMs", self.brams)
        rows = [*kinds, ("multipliers", self.dsps), *clock]
        return table(("resource", "estimate"), rows) + table(("part", "LUTs"), self.luts_by_part.items())


def estimate(config: MachineConfig, family: str = "ecp5") -> Estimate:
    """Estimates a machine; raises `InputError` for a family without a model."""
    model = load(family)
    totals = dict.fromkeys(RESOURCES, 0.0)
    by_part: dict[str, int] = {}
    for part in parts(config):
        for resource in RESOURCES:
            amount = part.count * model.part(part.kind, resource, part.features) * model.whole[resource]
            totals[resource] += amount
            if resource == "luts":
                by_part[part.kind] = by_part.get(part.kind, 0) + round(amount)
    delay = model.delay(features(config, totals["luts"]))
    clock = 1000 / delay if delay else None
    luts, ffs, brams, dsps = (round(totals[r]) for r in RESOURCES)
    return Estimate(luts, ffs, brams, dsps, None if clock is None else round(clock, 1), by_part)
