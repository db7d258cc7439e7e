"""Blocks that describe something: machines, fabrics, spaces, energies, tile programs, C for the host."""

from __future__ import annotations

import json as text_of_json
import shutil
import subprocess
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from cosim import energy
from heald.exploration import space
from hw import config, fabric
from hw.package.registers import register_files
from sw.ir.parse import parse_program


def toml(text: str, place: str) -> None:
    """Load a description as what its keys say; files that it names are in the current directory."""
    values = tomllib.loads(text)
    if "parameters" in values:
        space.from_values(values, Path("space.toml").resolve())
    elif "memory_byte" in values:
        energy.parse(text, place)
    else:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "described.toml"
            path.write_text(text, encoding="utf-8")
            (fabric.load if "kinds" in values else config.load)(str(path))


def program(text: str, place: str) -> None:
    """Read a tile program."""
    parse_program(text, place)


def json(text: str, place: str) -> None:
    """Read an object."""
    assert text_of_json.loads(text) is not None, place


def c(text: str, place: str) -> None:
    """Compile a driver with the header of a machine, where there is a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return
    with TemporaryDirectory() as folder:
        (Path(folder) / "heald.h").write_text(
            register_files(config.load("test"))["heald.h"], encoding="utf-8"
        )
        (Path(folder) / "driver.c").write_text(text, encoding="utf-8")
        command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", "driver.c"]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{place}\n{ended.stderr}"
