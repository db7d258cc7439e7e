"""The files of an FPGA build, including the FuseSoC description (CAPI2) and constraints."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from heald.files import check_directory, write_directory
from hw import csr
from hw.emit import LINT_OFF
from hw.errors import InputError
from hw.package.registers import REGISTERS, register_files
from hw.package.text import filled
from hw.synthesis.flow import TOPS, Build
from hw.synthesis.report import report
from hw.synthesis.tools import find, run

#: Default 7-series part, which makes the description complete.
PART = "xc7a200tfbg484-1"


def core_file(build: Build, verilog: str, constraints: str) -> str:
    """The text of the `.core` file; `verilog` and `constraints` are the names of the files beside it.

    Without pins there is no bitstream: Vivado stops after synthesis, and users may change the part.
    """
    design, target = build.design, build.target
    options: list[str] = []
    if design.constraints is not None and target.device is not None:
        options += [f"--{target.device.name}", "--package", target.package, "--speed", str(target.speed)]
        options += ["--freq", f"{target.frequency:g}"]
        options += ["--seed", str(build.placement.seed)] if build.placement is not None else []
    return filled(
        "fusesoc.core",
        build=build,
        name=re.sub(r"[^A-Za-z0-9]+", "_", f"{build.config.name}_{build.config.hash[:8]}"),
        version=f"{csr.VERSION >> 16}.{csr.VERSION & 0xFFFF}",
        about=f"Heald machine {build.config.name} ({build.config.hash}): {design.top.meaning}",
        verilog=verilog,
        constraints=constraints,
        ecp5=target.family == "ecp5",
        lint=["-Wall", *(f"-Wno-{rule}" for rule in LINT_OFF)],
        options=options,
        part=PART,
    )


def _constraints(build: Build) -> str:
    """The clock constraint as LPF or XDC; pins are the board's."""
    clock, frequency = build.design.top.clock, build.target.frequency
    if build.target.family == "ecp5":
        pins, said = "LOCATE and IOBUF lines", f'FREQUENCY PORT "{clock}" {frequency:g} MHZ;'
    else:
        pins = "PACKAGE_PIN and IOSTANDARD properties"
        said = f"create_clock -name {clock} -period {1000 / frequency:.3f} [get_ports {clock}]"
    return f"# The clock. Add {pins} for the pins of your board.\n{said}\n"


#: Suffixes of files named after the top.
_ENDINGS = (".v", ".f", ".lpf", ".xdc", ".core", ".config", ".bit")
_OTHERS = (*REGISTERS, "report.md", "netlist.json", "nextpnr.json", "nextpnr.log")
#: Names of all files that builds write, for any top.
_KNOWN = {f"{top.module}{ending}" for top in TOPS.values() for ending in _ENDINGS} | set(_OTHERS)


def check_target(path: Path) -> None:
    """Raise `InputError` if the files of a build cannot be written, before any work is done."""
    check_directory(path)
    for name in sorted(_KNOWN):
        if (path / name).is_dir():
            raise InputError(f"{path / name}: must be a file, not a directory")


def write(build: Build, target: Path) -> list[Path]:
    """Write the files of a build to a directory and remove those of an earlier one; returns their paths.

    Raises `InputError` if it cannot be written.
    """
    return write_directory(target, lambda folder: _make(build, folder), _KNOWN.__contains__)


def _make(build: Build, folder: Path) -> None:
    module = build.design.module
    constraints = f"{module}.{'lpf' if build.target.family == 'ecp5' else 'xdc'}"
    texts = {
        f"{module}.v": build.design.verilog,
        f"{module}.f": f"{module}.v\n",
        constraints: build.design.constraints or _constraints(build),
        f"{module}.core": core_file(build, f"{module}.v", constraints),
        **register_files(build.config),
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
    """Pack the bitstream for the device from Trellis' text format."""
    run(find("ecppack"), ["--compress", f"{module}.config", f"{module}.bit"], folder, "ecppack.log")
    (folder / "output.txt").unlink(missing_ok=True)
