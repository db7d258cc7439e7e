"""`heald verilog`: the machine as Verilog, with header, register map and description."""

from __future__ import annotations

import json
from pathlib import Path

import click

from heald.cli.options import as_json, directory, hardware, machine, note, print_json
from heald.files import check_directory, write_directory
from hw.package import csr_page, description, header


@click.command("verilog")
@hardware
@directory("Directory for heald.v, heald.h, csr.md and heald.json.")
@as_json
def command(hw: str, settings: tuple[str, ...], output: Path, json_: bool) -> None:
    """Write the machine as Verilog, with C header, register map and a JSON description."""
    config = machine(hw, settings)
    check_directory(output)
    note(f"writing {config.name} ({config.hash}) to {output}")
    from hw.emit import verilog

    files = {"heald.v": verilog(config), "heald.h": header(config), "csr.md": csr_page(config)}
    about = description(config, files)
    files["heald.json"] = json.dumps(about, indent=2) + "\n"

    def fill(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")

    write_directory(output, fill)
    if json_:
        print_json({"directory": str(output)} | about)
    else:
        for name in files:
            click.echo(output / name)
