"""A machine in Python: a preset, a file or a configuration, with its Verilog and what it takes of an FPGA."""

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
    """A configuration of the hardware; its fields can be read here too (`machine.rows`)."""

    config: MachineConfig

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS:
            return getattr(self.config, name)
        raise AttributeError(f"a machine has no field {name!r}")

    def replace(self, **fields: Any) -> Machine:
        """The machine with other values of fields; raises `InputError` for what cannot be built."""
        return machine(self, **fields)

    def verilog(self, top: str = "core", *, progress: Progress | None = None) -> str:
        """Verilog text of the machine (`core`), behind AXI buses (`axi`), or with memory and UART (`uart`).

        Raises `InputError` for another top.
        """
        from hw.synthesis.flow import TOPS, design

        names = [name for name in TOPS if name != "board"]
        if top not in names:
            raise InputError(f"top must be one of {', '.join(names)}, not {top!r}")
        with shown(progress) as say:
            say(f"generating the Verilog of {self.config.name!r} ({top})")
            return design(self.config, TOPS[top]).verilog

    def estimate(self, family: str = "ecp5") -> Estimate:
        """LUTs, registers, block RAMs, multipliers and clock without synthesis (docs/area.md).

        Raises `InputError` for a family without a model.
        """
        return estimate(self.config, family)

    def _repr_html_(self) -> str:
        values = {n: getattr(self.config, n) for n in FIELDS}
        rows = [(n, getattr(v, "name", v), FIELDS[n].metadata.get("meaning", "")) for n, v in values.items()]
        return table(("field", "value", "meaning"), rows)


def machine(source: str | Path | MachineConfig | Machine = "default", **fields: Any) -> Machine:
    """A machine: the name of a preset, the path of a TOML file, or a configuration, then single fields.

    `cgra` is the name or file of a fabric, or None. Raises `InputError` for what cannot be read or built.
    """
    given = source.config if isinstance(source, Machine) else source
    plain = {n: int(v) if isinstance(v, np.integer) else v for n, v in fields.items()}
    try:
        return Machine(load(given if isinstance(given, MachineConfig) else str(given), plain))
    except InputError as error:
        raise InputError(str(error).replace("--hw must", "a machine must")) from None
