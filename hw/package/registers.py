"""The register map as SystemRDL, and PeakRDL's exports of it: a C header and IP-XACT."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hw import csr, isa
from hw.config import MachineConfig
from hw.package import csr_page
from hw.package.text import filled

#: Names of the files that `register_files` makes.
REGISTERS = ("heald.rdl", "heald.h", "heald.xml", "csr.md")
_ACCESS = {"ro": "r", "rw": "rw", "wo": "w"}


def system_rdl(config: MachineConfig) -> str:
    """The registers of a machine in SystemRDL 2.0; constant registers have their value as reset."""
    return filled(
        "heald.rdl",
        config=config,
        csr=csr,
        isa=isa,
        access=_ACCESS,
        constants=csr.constants(config),
        whole=csr.Field("VALUE", 0, 32, ""),
    )


def register_files(config: MachineConfig) -> dict[str, str]:
    """The register map by file name: SystemRDL, C header, IP-XACT, Markdown page.

    The header has a struct of the registers, `heald_t`, and masks, positions and resets of their fields.
    PeakRDL omits enumerations, so Heald adds the error causes itself.
    """
    from peakrdl_cheader.exporter import CHeaderExporter  # slow to import, because of the compiler behind it
    from peakrdl_ipxact import IPXACTExporter
    from systemrdl import RDLCompiler

    files = {"heald.rdl": system_rdl(config)}
    with tempfile.TemporaryDirectory(prefix="heald-") as name:
        source, header, component = (Path(name) / file for file in ("heald.rdl", "heald.h", "heald.xml"))
        source.write_text(files["heald.rdl"], encoding="utf-8")
        compiler = RDLCompiler()
        compiler.compile_file(str(source))
        top = compiler.elaborate().top
        CHeaderExporter().export(top, str(header))
        IPXACTExporter(vendor="heald", library="machine").export(top, str(component))
        text, end, _ = header.read_text(encoding="utf-8").rpartition("#endif")
        files["heald.h"] = text + filled("causes.h", isa=isa) + end + "\n"
        return files | {"heald.xml": component.read_text(encoding="utf-8"), "csr.md": csr_page(config)}
