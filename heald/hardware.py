"""Machines in Python: from a preset, a file or a configuration; their Verilog and resource estimates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heald.progress import Progress, shown
from hw.area import Estimate, estimate
from hw.config import FIELDS, MachineConfig, load
from hw.errors import InputError
from hw.html import table


@dataclass(frozen=True)
class Machine:
    """The description of an accelerator; the fields of its `config` are attributes too (`machine.rows`)."""

    config: MachineConfig

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS:
            return getattr(self.config, name)
        raise AttributeError(f"a machine has no field {name!r}")

    def replace(self, **fields: Any) -> Machine:
        """A copy with other values of some fields; raises `InputError` if that cannot be built."""
        return machine(self, **fields)

    def verilog(self, top: str = "core", *, progress: Progress | None = None) -> str:
        """Generate the machine's Verilog, as text.

        `top` selects the bare machine (`core`), AXI buses around it (`axi`), or memory and a UART (`uart`).
        Raises `InputError` for another `top`.
        """
        from hw.synthesis.flow import TOPS, design

        names = [name for name in TOPS if name != "board"]
        if top not in names:
            raise InputError(f"top must be one of {', '.join(names)}, not {top!r}")
        with shown(progress) as say:
            say(f"generating the Verilog of {self.config.name!r} ({top})")
            return design(self.config, TOPS[top]).verilog

    def estimate(self, family: str = "ecp5") -> Estimate:
        """Estimate LUTs, registers, block RAMs, multipliers and clock without synthesis (docs/area.md).

        Raises `InputError` for an FPGA family without a model.
        """
        return estimate(self.config, family)

    def _repr_html_(self) -> str:
        values = {n: getattr(self.config, n) for n in FIELDS}
        rows = [(n, getattr(v, "name", v), FIELDS[n].metadata.get("meaning", "")) for n, v in values.items()]
        return table(("field", "value", "meaning"), rows)


def machine(source: str | Path | MachineConfig | Machine = "default", **fields: Any) -> Machine:
    """Make a machine from a preset's name, a TOML file or a configuration, and override some of its fields.

    The field `cgra` takes the name or file of a fabric, or None. Raises `InputError` if the machine cannot be
    read or built.
    """
    given = source.config if isinstance(source, Machine) else source
    plain = {n: int(v) if isinstance(v, np.integer) else v for n, v in fields.items()}
    try:
        return Machine(load(given if isinstance(given, MachineConfig) else str(given), plain))
    except InputError as error:
        raise InputError(str(error).replace("--hw must", "a machine must")) from None
