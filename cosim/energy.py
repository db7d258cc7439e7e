"""Energy model: counts of operations and accesses times a table of energies (docs/explore.md, "Energy")."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path

from cosim.job import Outcome
from cosim.session.machine_program import MachineProgram, executed
from hw import toml_text
from hw.config import PORTS, MachineConfig
from hw.errors import InputError
from hw.fabric import Unit
from sw.dfg.graph import Graph

#: The table that is used by default.
DEFAULT = (resources.files("cosim") / "energy.toml").read_text(encoding="utf-8")

#: Largest number in a table, and the smallest and largest memory of a machine.
MOST = 1e12
SIZES = (64, 1 << 22)


@dataclass(frozen=True)
class Table:
    """Energies in pJ per byte, per operation, per cycle.

    A memory of `sram_bytes` takes `sram_byte` per byte; other sizes scale with the power `sram_exponent`.
    """

    source: str
    memory_byte: float
    sram_byte: float
    sram_bytes: float
    sram_exponent: float
    mac: float
    grid_alu: float
    grid_multiply: float
    grid_table: float
    instruction: float
    cycle: float

    def byte_of(self, size: int) -> float:
        """Energy per byte of an on-chip memory of `size` bytes."""
        return self.sram_byte * math.pow(size / self.sram_bytes, self.sram_exponent)


def read(path: Path | None) -> Table:
    """Read a table from a TOML file, or return the default one. Raises `InputError` naming file and key."""
    if path is None:
        return parse(DEFAULT, "the default table")
    return parse(toml_text.read(path, "--energy must be a TOML table of energies"), str(path))


def parse(text: str, place: str) -> Table:
    """Parse a table from TOML; every key is required. Raises `InputError`."""
    values = toml_text.parsed(text, place)
    names = [f.name for f in fields(Table)]
    toml_text.check_keys(values, names, place)
    for name in names:
        if name not in values:
            raise InputError(f"{place}: needs the key {name!r}")
        value = values[name]
        if name == "source":
            if not isinstance(value, str):
                raise InputError(f"{place}: source must be text, not {value!r}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
            raise InputError(f"{place}: {name} must be a number from 0 to {MOST:g}, not {value!r}")
    if not values["sram_bytes"]:
        raise InputError(f"{place}: sram_bytes must be above 0, not 0")
    table = Table(**values)
    for size in SIZES:
        try:
            byte = table.byte_of(size)
        except OverflowError:
            byte = math.inf
        if not byte <= MOST:
            raise InputError(
                f"{place}: sram_byte, sram_bytes and sram_exponent must give a byte of a memory of {size:,} "
                f"bytes at most {MOST:g} pJ, not {byte:g}"
            )
    return table


def energy(
    table: Table, config: MachineConfig, used: Mapping[str, int], moved: Mapping[str, int], stored: int
) -> dict[str, float]:
    """Energy by component, in pJ.

    `used` holds the counts of `counted`, plus `instructions` and `cycles`. `moved` holds bytes by memory
    port, and `stored` is the number of words that the CGRA stored. Bytes loaded by a port are written to a
    buffer, and bytes stored are read from one; an operand of the CGRA has 4 bytes.
    """
    used = Counter(used)
    size = {
        name: getattr(config, f"{name}_bytes") for name in ("buffer_a", "buffer_b", "acc", "scratch", "out")
    }
    byte = {name: table.byte_of(held) for name, held in size.items()}
    loaded = used["grid_memory"] - stored
    return {
        "memory": table.memory_byte * sum(moved.values()),
        "buffer_a": byte["buffer_a"] * (moved["load_a"] + used["a_read_bytes"]),
        "buffer_b": byte["buffer_b"] * (moved["load_b"] + used["b_read_bytes"]),
        "accumulator": byte["acc"] * (used["acc_written_bytes"] + used["acc_read_bytes"]),
        "scratchpad": byte["scratch"] * (moved["load_c"] + 4 * max(0, loaded)),
        "output_buffer": byte["out"] * (4 * stored + moved["store"]),
        "array": table.mac * used["macs"],
        "grid": table.grid_alu * used["grid_alu"]
        + table.grid_multiply * used["grid_multiply"]
        + table.grid_table * used["grid_table"],
        "control": table.instruction * used["instructions"] + table.cycle * used["cycles"],
    }


def spent(table: Table, program: MachineProgram, outcome: Outcome) -> dict[str, float]:
    """Energy of one program by component, in pJ, from its counters and its source."""
    counters, config = outcome.counters, program.config
    executed = sum(v for n, v in counters.items() if n.endswith("_INSTRUCTIONS"))
    used = counted(program) | {"instructions": executed, "cycles": outcome.cycles}
    return energy(table, config, used, moved(config, outcome), len(outcome.stored))


def moved(config: MachineConfig, outcome: Outcome) -> dict[str, int]:
    """Bytes that passed each memory port, including padding of rows."""
    return {p: outcome.counters[f"{p.upper()}_WORDS"] * config.port_bytes(p) for p in PORTS}


#: Name of the CGRA count for each kind of functional unit.
GRID: Mapping[Unit, str] = {
    Unit.ALU: "grid_alu",
    Unit.MULTIPLIER: "grid_multiply",
    Unit.TABLE: "grid_table",
    Unit.MEMORY: "grid_memory",
    Unit.LANES: "grid_alu",
    Unit.QUANTISER: "grid_multiply",  # its multiplication dominates the cost
}


def counted(program: MachineProgram) -> Counter[str]:
    """Uses of array and CGRA by name. Predicated operations of the CGRA count whether or not they act."""
    found: Counter[str] = Counter()
    kernels = [operations(k.graph) for k in program.kernels]
    for i, given, current in executed(program.source, program.homes, program.kernels):
        if i.name != "cgra":
            _add_gemm(found, program.config, given, accumulates=i.name == "gemm_acc")
            continue
        for name, count in kernels[current].items():
            found[name] += count * given["iterations"]
    return found


def operations(graph: Graph) -> Counter[str]:
    """Operations of one iteration in all lanes, by the names in `GRID`."""
    found: Counter[str] = Counter()
    for node in graph.nodes:
        unit = graph.operation(node).unit
        if unit is not None and node.op != "const":
            wide = node.id in graph.wide or graph.operation(node).of_lanes
            found[GRID[unit]] += graph.lanes if wide else 1
    return found


def _add_gemm(
    found: Counter[str], config: MachineConfig, given: Mapping[str, int], *, accumulates: bool
) -> None:
    """Count one GEMM: each block takes k steps, in which all units multiply."""
    m, n, k, rows, cols = given["gemm_m"], given["gemm_n"], given["k"], config.rows, config.cols
    right = -(-n // cols)
    blocks = -(-m // rows) * right
    sums = 4 * m * right * cols
    found["macs"] += blocks * k * rows * cols
    found["a_read_bytes"] += blocks * k * rows
    found["b_read_bytes"] += blocks * k * cols
    found["acc_written_bytes"] += sums
    found["acc_read_bytes"] += sums if accumulates else 0
