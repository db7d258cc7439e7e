"""The files of a build: all of them are made beside the directory, then get their names in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hw.errors import InputError
from hw.synthesis.tools import find, run
from jacquard.fpga.constraints import lpf, xdc
from jacquard.fpga.core_file import core_file
from jacquard.fpga.flow import Build
from jacquard.fpga.result import report
from jacquard.report.package import header
from jacquard.report.pages import csr_page

#: Endings of the files that carry the name of the top.
_ENDINGS = (".v", ".f", ".lpf", ".xdc", ".core", ".config", ".bit")
_OTHERS = ("jacquard.h", "csr.md", "report.md", "netlist.json", "nextpnr.json", "nextpnr.log")


def check_directory(path: Path) -> None:
    """Raise `InputError` where a directory cannot be made or written, before work is done for it."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: must be a directory")
    nearest = path
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"{path}: directory cannot be made or written")


def write(build: Build, target: Path) -> list[Path]:
    """Write the files of a build to a directory and take away those of an earlier one; gives their paths.

    Nothing in the directory changes before all files are complete. Raises `InputError` when it cannot be
    written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _beside(target) as part:
            _make(build, part)
            names = sorted(path.name for path in part.iterdir())
            target.mkdir(exist_ok=True)
            for name in names:
                os.replace(part / name, target / name)
            for name in _known(build) - set(names):
                (target / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None
    return [target / name for name in names]


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A directory on the same file system that is gone when the block ends."""
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _known(build: Build) -> set[str]:
    """Names that a build of this top can write."""
    return {f"{build.design.module}{ending}" for ending in _ENDINGS} | set(_OTHERS)


def _make(build: Build, folder: Path) -> None:
    """All files of a build, in a fresh directory."""
    module, clock = build.design.module, build.design.top.clock
    ecp5 = build.target.family == "ecp5"
    constraints = f"{module}.{'lpf' if ecp5 else 'xdc'}"
    said = (lpf if ecp5 else xdc)(clock, build.target.frequency)
    texts = {
        f"{module}.v": build.design.verilog,
        f"{module}.f": f"{module}.v\n",
        constraints: build.design.constraints or said,
        f"{module}.core": core_file(build, f"{module}.v", constraints),
        "jacquard.h": header(build.config),
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
