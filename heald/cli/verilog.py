"""`heald verilog`: write a machine as Verilog, with C header, register map and description."""

from __future__ import annotations

import json
from pathlib import Path

import click

from heald.cli.options import as_json, directory, hardware, machine, note, print_json
from heald.files import check_directory, write_directory
from hw.package import description
from hw.package.registers import register_files
from hw.synthesis.flow import TOPS, design


@click.command("verilog")
@hardware
@click.option("--top", type=click.Choice(("core", "axi", "uart")), default="core", help="Bus interface.")
@directory("Output directory, for TOP.v, TOP.json, heald.rdl, heald.h, heald.xml and csr.md.")
@as_json
def command(hw: str, settings: tuple[str, ...], top: str, output: Path, json_: bool) -> None:
    """Write a machine as Verilog, with register map (SystemRDL, C, IP-XACT, Markdown), JSON description."""
    config = machine(hw, settings)
    check_directory(output)
    note(f"writing {config.name} ({config.hash}) to {output}")
    module, text = TOPS[top].module, design(config, TOPS[top], trace=True).verilog
    files = {f"{module}.v": text, **register_files(config)}
    about = description(config, module, files)
    files[f"{module}.json"] = json.dumps(about, indent=2) + "\n"
    write_directory(output, lambda folder: [(folder / n).write_text(files[n], "utf-8") for n in files])
    if json_:
        print_json({"directory": str(output)} | about)
    else:
        for name in files:
            click.echo(output / name)
