"""Runs the Verilog of the presets through Verilator's linter.

    python -m bench.verilog

Exit code 1 if the linter complains. `bench.fpga` synthesises the presets.
"""

from __future__ import annotations

import os
import subprocess
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


def lint(name: str, folder: Path) -> tuple[int, float, str]:
    """Lines of Verilog, seconds of linting, and the linter's output."""
    text, _ = verilog(load(name))
    path = folder / f"{name}.v"
    path.write_text(text, encoding="utf-8")
    tools = find()
    start = time.perf_counter()
    done = subprocess.run(
        [str(tools.verilator), "--lint-only", "-Wall", "--quiet", "--top-module", TOP, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "VERILATOR_ROOT": str(tools.root)},
        check=False,
    )
    said = done.stdout + done.stderr if done.returncode else ""
    return text.count("\n"), time.perf_counter() - start, said


@click.command()
def main() -> None:
    """Lint all presets."""
    console, failed = Console(width=100), False
    with tempfile.TemporaryDirectory() as folder:
        table = Table("preset", "lines", "seconds", "lint", title="Verilator lint, all warnings on")
        for name in preset_names():
            lines, seconds, said = lint(name, Path(folder))
            failed |= bool(said)
            table.add_row(name, f"{lines:,}", f"{seconds:.1f}", said.splitlines()[0] if said else "clean")
        console.print(table)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
