"""The files of a build, the FuseSoC description (CAPI2) and constraints among them.

All are made in a place of their own, then get their names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heald.fpga.flow import TOPS, Build
from heald.fpga.result import report
from heald.report.package import csr_page, header
from hw import csr
from hw.emit import LINT_OFF
from hw.errors import InputError
from hw.synthesis.tools import find, run

#: A part of the 7 series for a description to be whole.
PART = "xc7a200tfbg484-1"


def core_file(build: Build, verilog: str, constraints: str) -> str:
    """The text of the `.core` file; `verilog` and `constraints` are the names of the files beside it."""
    ecp5 = build.target.family == "ecp5"
    kind = "LPF" if ecp5 else "xdc"
    name = re.sub(r"[^A-Za-z0-9_]", "_", build.config.name)
    version = f"{csr.VERSION >> 16}.{csr.VERSION & 0xFFFF}"
    about = f"Heald machine {build.config.name} ({build.config.hash}): {build.design.top.meaning}"
    lint = ["-Wall", *(f"-Wno-{rule}" for rule in LINT_OFF)]
    top = f"    toplevel: {build.design.module}"
    # Strings and lists of YAML may be those of JSON.
    lines = [
        "CAPI=2:",
        f"name: heald:machine:{name}_{build.design.top.name}:{version}",
        f"description: {json.dumps(about)}",
        "filesets:",
        "  rtl:",
        f"    files: [{verilog}]",
        "    file_type: verilogSource",
        "  constraints:",
        f"    files: [{constraints}]",
        f"    file_type: {kind}",
        "targets:",
        "  default:",
        "    filesets: [rtl]",
        top,
        "  lint:",
        "    flow: lint",
        "    flow_options:",
        "      tool: verilator",
        f"      verilator_options: {json.dumps(lint)}",
        "    filesets: [rtl]",
        top,
        "  synth:",
        *(_trellis(build) if ecp5 else _vivado()),
        "    filesets: [rtl, constraints]",
        top,
    ]
    return "\n".join(lines) + "\n"


def _trellis(build: Build) -> list[str]:
    """Yosys, and for a board nextpnr with the options of this build: there is no bitstream without pins."""
    target = build.target
    lines = ["    flow: trellis", "    flow_options:"]
    if build.design.constraints is None or target.device is None:
        return [*lines, "      pnr: none"]
    options = [f"--{target.device.name}", "--package", target.package, "--speed", str(target.speed)]
    options += ["--freq", f"{target.frequency:g}"]
    if build.placement is not None:
        options += ["--seed", str(build.placement.seed)]
    return [*lines, "      pnr: next", f"      nextpnr_options: {json.dumps(options)}"]


def _vivado() -> list[str]:
    """Vivado up to synthesis; the part is the user's to change."""
    return [
        "    flow: vivado",
        "    flow_options:",
        "      synth: vivado",
        "      pnr: none",
        f"      part: {PART}",
    ]


def _constraints(build: Build) -> str:
    """What an LPF file, or XDC, says about the clock; pins are the board's."""
    clock, frequency = build.design.top.clock, build.target.frequency
    if build.target.family == "ecp5":
        pins, said = "LOCATE and IOBUF lines", f'FREQUENCY PORT "{clock}" {frequency:g} MHZ;'
    else:
        pins = "PACKAGE_PIN and IOSTANDARD properties"
        said = f"create_clock -name {clock} -period {1000 / frequency:.3f} [get_ports {clock}]"
    return f"# The clock. Add {pins} for the pins of your board.\n{said}\n"


#: Endings of the files that carry the name of the top.
_ENDINGS = (".v", ".f", ".lpf", ".xdc", ".core", ".config", ".bit")
_OTHERS = ("heald.h", "csr.md", "report.md", "netlist.json", "nextpnr.json", "nextpnr.log")
#: Names of all files that builds write, whichever top they are of.
_KNOWN = {f"{top.module}{ending}" for top in TOPS.values() for ending in _ENDINGS} | set(_OTHERS)


def check_directory(path: Path) -> None:
    """Raise `InputError` where a directory cannot be made or written, before work is done for it."""
    try:
        real, nearest = _place(path)
        if real == nearest and not real.is_dir():
            raise InputError(f"{path}: must be a directory")
        for name in sorted(_KNOWN):
            if (real / name).is_dir():
                raise InputError(f"{path / name}: must be a file, not a directory")
        with _part(nearest) as part:
            # Directories that are still to be made are tried where they leave nothing behind.
            (part / real.relative_to(nearest)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: directory cannot be made or written: {error.strerror or error}") from None


def write(build: Build, target: Path) -> list[Path]:
    """Write the files of a build to a directory and take away those of an earlier one; gives their paths.

    Nothing in the directory changes before all files are complete. Raises `InputError` when it cannot be
    written.
    """
    try:
        real, nearest = _place(target)
        with _part(nearest) as part:
            _make(build, part)
            names = sorted(path.name for path in part.iterdir())
            real.mkdir(parents=True, exist_ok=True)
            for name in names:
                os.replace(part / name, real / name)
            for name in _KNOWN - set(names):
                (real / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None
    return [target / name for name in names]


def _place(path: Path) -> tuple[Path, Path]:
    """A path without links, and what exists of it: itself, or the nearest directory above."""
    real = Path(os.path.realpath(path))
    return real, next(place for place in (real, *real.parents) if os.path.lexists(place))


@contextmanager
def _part(nearest: Path) -> Iterator[Path]:
    """A directory inside of another, thus on the same file system, that is gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix=".heald-", dir=nearest, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _make(build: Build, folder: Path) -> None:
    """All files of a build, in a fresh directory."""
    module = build.design.module
    constraints = f"{module}.{'lpf' if build.target.family == 'ecp5' else 'xdc'}"
    texts = {
        f"{module}.v": build.design.verilog,
        f"{module}.f": f"{module}.v\n",
        constraints: build.design.constraints or _constraints(build),
        f"{module}.core": core_file(build, f"{module}.v", constraints),
        "heald.h": header(build.config),
        "csr.md": csr_page(build.config),
        "report.md": report(build),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    if build.synthesis.netlist is not None:
        shutil.copyfile(build.synthesis.netlist, folder / "netlist.json")
    placement = build.placement
    if placement is not None:
        shutil.copyfile(placement.report, folder / "nextpnr.json")
        shutil.copyfile(placement.log, folder / "nextpnr.log")
        if placement.config is not None:
            shutil.copyfile(placement.config, folder / f"{module}.config")
            _bitstream(folder, module)


def _bitstream(folder: Path, module: str) -> None:
    """The bitstream for the device, packed from Trellis' text."""
    run(find("ecppack"), ["--compress", f"{module}.config", f"{module}.bit"], folder, "ecppack.log")
    (folder / "output.txt").unlink(missing_ok=True)
