"""The FuseSoC description of a build (CAPI2), with targets for synthesis and lint."""

from __future__ import annotations

import json
import re

from hw import csr
from hw.emit import LINT_OFF
from jacquard.fpga.flow import Build

#: A part of the 7 series for a description to be whole.
PART = "xc7a200tfbg484-1"


def core_file(build: Build, verilog: str, constraints: str) -> str:
    """The text of the `.core` file; `verilog` and `constraints` are the names of the files beside it."""
    ecp5 = build.target.family == "ecp5"
    kind = "LPF" if ecp5 else "xdc"
    name = re.sub(r"[^A-Za-z0-9_]", "_", build.config.name)
    version = f"{csr.VERSION >> 16}.{csr.VERSION & 0xFFFF}"
    about = f"Jacquard machine {build.config.name} ({build.config.hash}): {build.design.top.meaning}"
    lint = ["-Wall", *(f"-Wno-{rule}" for rule in LINT_OFF)]
    top = f"    toplevel: {build.design.module}"
    lines = [
        "CAPI=2:",
        f"name: jacquard:machine:{name}_{build.design.top.name}:{version}",
        f"description: {_text(about)}",
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
        f"      verilator_options: {_texts(lint)}",
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
    return [*lines, "      pnr: next", f"      nextpnr_options: {_texts(options)}"]


def _vivado() -> list[str]:
    """Vivado up to synthesis; the part is the user's to change."""
    return [
        "    flow: vivado",
        "    flow_options:",
        "      synth: vivado",
        "      pnr: none",
        f"      part: {PART}",
    ]


def _text(text: str) -> str:
    """A string of YAML, which takes those of JSON."""
    return json.dumps(text)


def _texts(texts: list[str]) -> str:
    return json.dumps(texts)
