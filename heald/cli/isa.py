"""`heald isa`: the instruction set reference."""

from __future__ import annotations

import click

from heald.cli.options import as_json, print_json
from hw.package import isa_dict, isa_page


@click.command("isa")
@as_json
def command(json_: bool) -> None:
    """Print the instruction set reference (Markdown)."""
    if json_:
        print_json(isa_dict())
    else:
        click.echo(isa_page(), nl=False)
