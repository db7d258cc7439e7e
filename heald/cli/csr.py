"""`heald csr`: the register map."""

from __future__ import annotations

import click

from heald.cli.options import hardware, machine
from hw.package import csr_page


@click.command("csr")
@hardware
def command(hw: str, settings: tuple[str, ...]) -> None:
    """Print the register map of a machine (Markdown)."""
    click.echo(csr_page(machine(hw, settings)), nl=False)
