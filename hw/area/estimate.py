"""Resources and clock of a machine from its configuration, without synthesis."""

from __future__ import annotations

from dataclasses import dataclass

from hw.area.clock import features
from hw.area.model import RESOURCES, load
from hw.area.parts import parts
from hw.config import MachineConfig


@dataclass(frozen=True)
class Estimate:
    """What a machine takes of an FPGA.

    `luts` are 4-input LUTs for ECP5 (carry and LUT RAM included, as nextpnr counts them), LUTs of any size
    for Xilinx; `brams` are block RAMs of 18 Kbit. `fmax_mhz` is None where no clock was measured for the
    family. `luts_by_part` says where the LUTs are.
    """

    luts: int
    ffs: int
    brams: int
    dsps: int
    fmax_mhz: float | None
    luts_by_part: dict[str, int]


def estimate(config: MachineConfig, family: str = "ecp5") -> Estimate:
    """Estimate a machine; raises `InputError` for a family without a model."""
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
