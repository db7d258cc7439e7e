"""All presets on FPGAs: resources, and for the small ones the clock on an ECP5-85k and what limits it.

    python -m bench.fpga                       # hours: every preset synthesised, two placed and routed
    python -m bench.fpga --only tiny           # one preset; repeatable
    python -m bench.fpga --device um5g-85k     # placed on another device
    python -m bench.fpga --synth-only          # no placement
    python -m bench.fpga --top axi --seeds 4   # behind AXI4; the best of four seeds
    python -m bench.fpga --family xilinx       # 7 series, synthesised only

Earlier results come from the cache, so the table can be completed preset by preset. Exit code 1 if a placed
preset misses its clock, does not fit, or a tool gives up.
"""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.table import Table

from hw.config import load, preset_names
from hw.errors import InputError
from hw.synthesis import DEVICES, FAMILIES, Device, Resources, find_device
from hw.synthesis.flow import FREQUENCY, TOPS, Build, Target, build, design
from hw.synthesis.report import TOP, path
from hw.synthesis.resources import NAMES, grouped

#: Presets that are placed and routed.
PLACED = ("tiny", "test")


def target(
    preset: str, family: str, device: Device, frequency: float, seeds: int, synth_only: bool
) -> Target:
    """The target of a preset."""
    place = preset in PLACED and family == "ecp5" and not synth_only
    return Target(
        family,
        device if place else None,
        device.package,
        device.speed(),
        frequency,
        tuple(range(1, seeds + 1)),
    )


def row(made: Build, device: Device) -> list[str]:
    """A row of the table."""
    resources = made.synthesis.resources
    cells = [f"{getattr(resources, field):,}" for field in NAMES]
    cells.append(f"{resources.luts / device.holds.luts:.0%}" if made.target.family == "ecp5" else "")
    seconds = f"{made.synthesis.seconds:,.0f}"
    if made.placement is None:
        return [*cells, "", "", "", seconds]
    critical = path(made.placement)
    through = (
        "" if critical is None else f"{critical['delay_ns']:.1f} ns, {critical['routing_ns']:.1f} routing"
    )
    ends = "" if critical is None else f"{critical['from']} to {critical['to']}"
    seconds += f" + {made.placement.seconds:,.0f}"
    return [*cells, f"{made.fmax_mhz:.1f}", ends, through, seconds]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(preset_names()), help="Presets; repeatable.")
@click.option("--family", type=click.Choice(FAMILIES), default="ecp5", show_default=True)
@click.option("--top", type=click.Choice(["core", "axi", "uart"]), default="core", show_default=True)
@click.option("--device", "device_name", type=click.Choice(list(DEVICES)), default="85k", show_default=True)
@click.option("--frequency", type=click.FloatRange(1), default=FREQUENCY, show_default=True, help="MHz.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="The best of so many.")
@click.option("--synth-only", is_flag=True, help="Do not place and route.")
def main(
    only: tuple[str, ...],
    family: str,
    top: str,
    device_name: str,
    frequency: float,
    seeds: int,
    synth_only: bool,
) -> None:
    """Build all presets for FPGAs."""
    console, device, failed = Console(width=160), find_device(device_name), False
    title = f"{TOPS[top].module}, {family}" + (
        f", {device.name} at {frequency:g} MHz" if not synth_only else ""
    )
    columns = [*NAMES.values(), f"of {device.name}", "MHz", "critical path", "its delay", "seconds"]
    table = Table("preset", *columns, title=title)
    components = Table("preset", "component", *NAMES.values(), title="the largest components")
    for preset in only or sorted(preset_names(), key=lambda preset: load(preset).rows):
        begin = time.perf_counter()
        try:
            config = load(preset)
            made = build(
                config,
                design(config, TOPS[top]),
                target(preset, family, device, frequency, seeds, synth_only),
                lambda _text: None,
            )
        except InputError as error:
            failed = True
            table.add_row(preset, *[""] * (len(columns) - 3), str(error), "", "")
            console.print(f"{preset}: {error}", highlight=False)
            continue
        failed |= made.placement is not None and not made.placement.reached
        table.add_row(preset, *row(made, device))
        for part, resources in _largest(made):
            components.add_row(preset, part, *(f"{getattr(resources, field):,}" for field in NAMES))
        console.print(f"{preset}: {time.perf_counter() - begin:.0f} s", highlight=False)
    console.print(table)
    console.print(components)
    raise SystemExit(failed)


def _largest(made: Build, count: int = 10) -> list[tuple[str, Resources]]:
    """The components with the most LUTs."""
    return [(part or TOP, r) for part, r in list(grouped(made.synthesis.components).items())[:count]]


if __name__ == "__main__":
    main()
