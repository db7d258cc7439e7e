"""Files that accompany the Verilog of a machine: JSON description, reference pages, register map."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hw import csr, isa
from hw.config import FIELDS, MachineConfig
from hw.package.text import filled


def ports(verilog: str, top: str) -> list[dict[str, Any]]:
    """Ports of a top module of generated Verilog, with direction and width."""
    body = verilog[verilog.index(f"\nmodule {top}(") :]
    found = re.findall(
        r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", body[: body.index("\nendmodule")], re.MULTILINE
    )
    return [{"name": name, "direction": way, "width": int(high or 0) + 1} for way, high, name in found]


def description(config: MachineConfig, top: str, files: Mapping[str, str]) -> dict[str, Any]:
    """The JSON beside the Verilog of a top: configuration, interface, hash, SHA-256 of the other files."""
    return {
        "top": top,
        "hash": config.hash,
        "version": f"{csr.VERSION >> 16}.{csr.VERSION & 0xFFFF}",
        "configuration": config.as_dict(),
        "interface": ports(files[f"{top}.v"], top),
        "registers": [
            {"name": r.name, "offset": r.offset, "access": r.access, "meaning": r.meaning}
            for r in csr.registers(config)
        ],
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()},
    }


def isa_page() -> str:
    """The instruction set reference."""
    readers = {
        name: [f"`{i.name}`" for i in isa.INSTRUCTIONS.values() if name in i.parameters]
        for name in isa.PARAMETERS
    }
    return filled("isa.md", isa=isa, readers=readers)


def isa_dict() -> dict[str, Any]:
    """The instruction set as a JSON object."""
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


def fields_page() -> str:
    """The reference page of a machine's fields."""
    return filled("fields.md", fields=[f for f in FIELDS.values() if f.name != "name"])
