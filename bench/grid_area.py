"""Resources of CGRAs alone after Yosys synthesis for ECP5, and a check for loops and latches.

    python -m bench.grid_area                       # mesh4x4 in the machine `test` (several minutes)
    python -m bench.grid_area mesh2x2 mixed4x4      # other fabrics

Exit code 1 if there is a latch or a combinational loop, or if products do not become multipliers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from hw.config import load
from hw.emit import converted
from hw.fabric import load as load_fabric
from hw.synthesis import synthesise
from hw.synthesis.resources import NAMES
from hw.synthesis.tools import ToolError, find, run

TOP = "grid"


def grid_verilog(fabric: str, machine: str = "test") -> str:
    """Verilog of the CGRA of a fabric, with the buffers of a machine, top module `grid`."""
    from hw.rtl.cgra.grid import Grid

    return converted(Grid(load(machine).replace(cgra=load_fabric(fabric))), TOP)


def loops_and_latches(folder: Path, text: str) -> str:
    """Complaints of Yosys' check about the flattened design; empty if there are none."""
    script = f"read_verilog grid.v; hierarchy -top {TOP}; proc; flatten; opt_clean; check -assert; "
    script += "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr"
    (folder / "grid.v").write_text(text, encoding="utf-8")
    try:
        run(find("yosys"), ["-q", "-l", "log", "-p", script], folder, "log", lambda _line: None)
    except ToolError as error:
        return "\n".join(error.lines)
    return ""


@click.command()
@click.argument("fabrics", nargs=-1)
def main(fabrics: tuple[str, ...]) -> None:
    """Check and synthesise CGRAs."""
    console, failed = Console(width=110), False
    table = Table("fabric", "PEs", *NAMES.values(), "seconds", title="ECP5, the grid alone")
    with tempfile.TemporaryDirectory() as name:
        for fabric in fabrics or ("mesh4x4",):
            text = grid_verilog(fabric)
            said = loops_and_latches(Path(name), text)
            if said:
                console.print(f"{fabric}: {said}")
            found = synthesise(text, TOP, netlist=False)
            failed |= bool(said) or not found.resources.dsps
            cells = [f"{getattr(found.resources, field):,}" for field in NAMES]
            table.add_row(fabric, str(load_fabric(fabric).size), *cells, f"{found.seconds:.0f}")
    console.print(table)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
