"""`jacquard run --device`: a compiled model on a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from jacquard.cli.options import note, print_json
from jacquard.cli.run_files import Files, write_outputs

if TYPE_CHECKING:
    from jacquard.device_run import DeviceRun
    from jacquard.network_run import CompiledModel


def run_at(
    model: CompiledModel, inputs: Mapping[str, np.ndarray], address: str, files: Files, json_: bool
) -> int:
    """Run a model on the device at an address and say what it gave; the exit code."""
    from jacquard.device_run import run_at as on_device

    run = on_device(model, inputs, address, progress=note)
    if files.outputs is not None:
        write_outputs(files.outputs, run.outputs)
    if json_:
        print_json({"device": address} | run.as_dict())
    else:
        _show(run)
    return 0 if run.correct else 1


def _show(run: DeviceRun) -> None:
    """Cycles and results for people."""
    table = Table("program", "cycles", "seconds", "stopped by", box=None)
    for program in run.programs:
        table.add_row(program.name, f"{program.cycles:,}", f"{program.seconds:.2f}", program.error or "")
    Console().print(table)
    if run.wrong is None:
        click.echo("\N{CHECK MARK} every result equals the reference's, bit for bit")
    else:
        click.echo(f"\N{BALLOT X} {run.wrong[0]}: {run.wrong[1]}")
