"""`heald config`: list, show and check machines."""

from __future__ import annotations

from typing import Any

import click

from heald.cli.options import as_json, print_json
from heald.report.console import plain_table, stdout
from hw.config import MachineConfig, load, preset_names, to_toml


@click.group("config")
def command() -> None:
    """List, show and check machine configurations."""


@command.command("list")
@as_json
def list_(json_: bool) -> None:
    """List the presets, smallest machine first."""
    machines = [load(name) for name in preset_names()]
    if json_:
        print_json({"presets": [_summary(m) for m in machines]})
        return
    buffers = ("buffer A", "buffer B", "accumulator", "A / B / store bytes per cycle")
    table = plain_table("preset", "array", *buffers, "hash", no_wrap=True)
    for m in machines:
        table.add_row(
            m.name,
            f"{m.rows}×{m.cols}",
            *(f"{size // 1024} KiB" for size in (m.buffer_a_bytes, m.buffer_b_bytes, m.acc_bytes)),
            f"{m.load_a_bytes} / {m.load_b_bytes} / {m.store_bytes}",
            m.hash,
        )
    stdout(120).print(table)


@command.command("show")
@click.argument("name", metavar="PRESET|FILE.toml")
@as_json
def show(name: str, json_: bool) -> None:
    """Print all fields of a machine as TOML."""
    m = load(name)
    if json_:
        print_json(_summary(m))
    else:
        click.echo(to_toml(m), nl=False)


@command.command("check")
@click.argument("file", metavar="FILE.toml|PRESET")
@as_json
def check(file: str, json_: bool) -> None:
    """Check a machine; exits with code 2 and the reason if it is invalid."""
    m = load(file)
    if json_:
        print_json({"ok": True} | _summary(m))
    else:
        click.echo(f"{file}: valid: {m.rows}×{m.cols} array, {m.macs_per_cycle} MAC/cycle, machine {m.hash}")


def _summary(m: MachineConfig) -> dict[str, Any]:
    return {"name": m.name, "hash": m.hash, "macs_per_cycle": m.macs_per_cycle, "configuration": m.as_dict()}
