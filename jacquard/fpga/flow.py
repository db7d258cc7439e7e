"""One build: Verilog of a top, synthesis, and placement with as many seeds as asked for."""

from __future__ import annotations

from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from hw.synthesis import Device, Placement, Resources, Synthesis, place_and_route, synthesise
from hw.synthesis.tools import Progress, ToolError
from jacquard.fpga.tops import Design

#: What the fields of `Resources` are to a reader.
NAMES = {"luts": "LUTs", "ffs": "registers", "brams": "block RAMs", "dsps": "multipliers"}


@dataclass(frozen=True)
class Target:
    """Where a design is to go: `device` is None where it is only synthesised; `frequency` is in MHz."""

    family: str
    device: Device | None
    package: str
    speed: int
    frequency: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Build:
    """What became of a design.

    `tried` are the frequencies in MHz that the seeds reached, None where nextpnr gave up; `placement` is the
    best of them, None where the design was only synthesised.
    """

    config: MachineConfig
    design: Design
    target: Target
    synthesis: Synthesis
    placement: Placement | None
    tried: dict[int, float | None]

    @property
    def fmax_mhz(self) -> float | None:
        """The clock that was reached, None where nothing was placed."""
        return self.placement.fmax_mhz if self.placement else None


def build(config: MachineConfig, design: Design, target: Target, progress: Progress) -> Build:
    """Synthesise a design, and place and route it where the target has a device.

    Raises `InputError` when the design does not fit, a tool is missing or gives up with every seed.
    """
    synthesis = synthesise(design.verilog, design.module, target.family, progress=progress)
    if target.device is None:
        return Build(config, design, target, synthesis, None, {})
    check_fit(synthesis.resources, target.device)
    placements: dict[int, Placement] = {}
    failures: dict[int, ToolError] = {}
    for seed in target.seeds:
        several = f"seed {seed}: " if len(target.seeds) > 1 else ""

        def tell(text: str, several: str = several) -> None:
            progress(several + text)

        try:
            placements[seed] = place_and_route(
                synthesis,
                target.device,
                target.frequency,
                constraints=design.constraints,
                package=target.package,
                speed=target.speed,
                seed=seed,
                progress=tell,
            )
        except ToolError as error:
            failures[seed] = error
    if not placements:
        raise failures[target.seeds[0]]
    best = max(placements.values(), key=lambda placement: placement.margin)
    tried = {seed: placements[seed].fmax_mhz if seed in placements else None for seed in target.seeds}
    return Build(config, design, target, synthesis, best, tried)


def check_fit(needed: Resources, device: Device) -> None:
    """Raise `InputError` that tells everything of which a device has too little."""
    short = [
        f"{getattr(needed, field):,} {name} (it has {getattr(device.holds, field):,})"
        for field, name in NAMES.items()
        if getattr(needed, field) > getattr(device.holds, field)
    ]
    if short:
        raise InputError(f"the design does not fit {device.name}: it needs {', '.join(short)}")
