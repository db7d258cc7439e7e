"""ECP5 resources of each component of a machine, and the longest path that ends in it, without placement.

    python -m bench.paths                         # tiny
    python -m bench.paths test --set cgra=none    # another machine

Synthesis takes minutes and is cached. Delays of nets are those of `hw.synthesis.paths`.
"""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from hw.config import load, parse_setting
from hw.errors import InputError
from hw.synthesis import synthesise
from hw.synthesis.flow import TOPS, design
from hw.synthesis.paths import longest
from hw.synthesis.report import TOP
from hw.synthesis.resources import NAMES, grouped


@click.command()
@click.argument("machine", default="tiny")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a field; repeatable.")
def main(machine: str, settings: tuple[str, ...]) -> None:
    """Print the components of the core, largest first."""
    top = TOPS["core"]
    try:
        config = load(machine, dict(map(parse_setting, settings)))
        made = synthesise(
            design(config, top).verilog, top.module, "ecp5", progress=lambda said: click.echo(said, err=True)
        )
    except InputError as error:
        raise click.UsageError(str(error).replace("--hw must", "MACHINE must")) from None
    assert made.netlist is not None
    paths = longest(made.netlist, top.module)
    table = Table("component", *NAMES.values(), "longest path (ns)", "from")
    for part, resources in grouped(made.components, share=1).items():
        path = paths.get(part)
        ends = ("", "") if path is None else (f"{path.delay:.1f}", path.start.partition(".")[0])
        table.add_row(part or TOP, *(f"{getattr(resources, field):,}" for field in NAMES), *ends)
    worst = max(paths.values(), key=lambda path: path.delay)
    total = (f"{getattr(made.resources, field):,}" for field in NAMES)
    table.add_row("all", *total, f"{worst.delay:.1f}", f"{worst.start} to {worst.end}"[:60])
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
