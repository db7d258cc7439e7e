"""What goes with the Verilog of a machine: C header, JSON description, pages of instructions and CSRs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hw import csr, isa
from hw.config import PORTS, MachineConfig
from hw.package.text import filled

TOP = "heald"


def ports(config: MachineConfig) -> list[dict[str, Any]]:
    """Ports of the Verilog top with direction and width (docs/ports.md)."""
    streams = {"host_request": ("input", 16 + 32 + 1), "host_response": ("output", 32)}
    for port in PORTS:
        width = config.port_bytes(port)
        store = port == "store"
        streams[f"{port}_request"] = "output", 32 + (8 * width + width) * store
        streams[f"{port}_response"] = "input", 1 if store else 8 * width + 1
    found = [("clk", "input", 1), ("rst", "input", 1)]
    for name, (direction, payload) in streams.items():
        back = "output" if direction == "input" else "input"
        found += [(f"{name}__valid", direction, 1), (f"{name}__ready", back, 1)]
        found.append((f"{name}__payload", direction, payload))
    widths = {"running": 1, "done": 1, "error": 1, "cycle": 48}
    widths |= dict.fromkeys(("trace_issue", "trace_void", "trace_complete", "trace_signal"), config.warps)
    widths["trace_pc"] = 16 * config.warps
    if stores := len(config.store_pes):
        widths["trace_output"] = stores
        widths |= dict.fromkeys(("trace_output_address", "trace_output_value"), 32 * stores)
    found += [(name, "output", width) for name, width in widths.items()]
    return [{"name": name, "direction": direction, "width": width} for name, direction, width in found]


def description(config: MachineConfig, files: Mapping[str, str]) -> dict[str, Any]:
    """The JSON beside the Verilog: configuration, interface, hash, and SHA-256 of the other files."""
    return {
        "top": TOP,
        "hash": config.hash,
        "version": f"{csr.VERSION >> 16}.{csr.VERSION & 0xFFFF}",
        "configuration": config.as_dict(),
        "interface": ports(config),
        "registers": [
            {"name": r.name, "offset": r.offset, "access": r.access, "meaning": r.meaning}
            for r in csr.registers(config)
        ],
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()},
    }


def header(config: MachineConfig) -> str:
    """The C header of a machine: identification, configuration, register offsets, bits, causes."""
    return filled("heald.h", config=config, csr=vars(csr), isa=isa)


def isa_page() -> str:
    """The instruction set reference."""
    readers = {
        name: [f"`{i.name}`" for i in isa.INSTRUCTIONS.values() if name in i.parameters]
        for name in isa.PARAMETERS
    }
    return filled("isa.md", isa=isa, readers=readers)


def isa_dict() -> dict[str, Any]:
    """The instruction set as an object for JSON."""
    return {
        "word_bits": isa.WORD_BITS,
        "formats": {
            form.name: [asdict(field) | {"kind": field.kind.value} for field in form.fields]
            for form in isa.Format
        },
        "instructions": [
            {
                "name": i.name,
                "opcode": i.opcode,
                "format": i.format.name,
                "meaning": i.meaning,
                "turns": i.turns,
                "timing": i.timing,
                "engine": i.engine,
                "operands": [asdict(operand) for operand in i.operands],
                "parameters": list(i.parameters),
            }
            for i in isa.INSTRUCTIONS.values()
        ],
        "parameters": [asdict(p) for p in isa.PARAMETERS.values()],
        "causes": {c.name.lower(): c.value for c in isa.Cause},
    }


def csr_page(config: MachineConfig) -> str:
    """The register map of a machine."""
    return filled("csr.md", config=config, csr=csr)
