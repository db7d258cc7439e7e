"""What each component of a machine takes of an ECP5, and the longest path that ends in it, without placement.

    python -m bench.paths                         # tiny
    python -m bench.paths test --set cgra=none    # another machine

Minutes for the synthesis, which is kept in the cache. Nets count as `hw.synthesis.paths` says.
"""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from hw.config import load, parse_setting
from hw.synthesis import Resources, synthesise
from hw.synthesis.flow import TOPS, design
from hw.synthesis.paths import longest


@click.command()
@click.argument("machine", default="tiny")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a field; repeatable.")
def main(machine: str, settings: tuple[str, ...]) -> None:
    """Tell components of the core, largest first."""
    config = load(machine, dict(map(parse_setting, settings)))
    top = TOPS["core"]
    made = synthesise(design(config, top).verilog, top.module, "ecp5")
    assert made.netlist is not None
    paths = longest(made.netlist, top.module)
    parts: dict[str, Resources] = {}
    for name, resources in made.components.items():
        part = name.partition(".")[0]
        parts[part] = parts.get(part, Resources()) + resources
    table = Table("component", "LUTs", "registers", "block RAMs", "multipliers", "longest path (ns)", "from")
    for part, own in sorted(parts.items(), key=lambda item: -item[1].luts):
        path = paths.get(part)
        ends = ("", "") if path is None else (f"{path.delay:.1f}", path.start.partition(".")[0])
        numbers = (f"{n:,}" for n in (own.luts, own.ffs, own.brams, own.dsps))
        table.add_row(part or "(top)", *numbers, *ends)
    total, worst = made.resources, max(paths.values(), key=lambda path: path.delay)
    numbers = (f"{n:,}" for n in (total.luts, total.ffs, total.brams, total.dsps))
    table.add_row("all", *numbers, f"{worst.delay:.1f}", f"{worst.start} to {worst.end}"[:60])
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
