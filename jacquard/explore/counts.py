"""How often a program uses the array, the grid and their memories, by executing its tile program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hw.config import MachineConfig
from hw.fabric import Unit
from jacquard.network_program import MachineProgram, executed
from sw.dfg.graph import Graph

#: What is counted of the array: multiply-accumulates of all its units while it multiplies, bytes that it
#: reads of buffers A and B, bytes of the accumulator.
ARRAY = ("macs", "a_read_bytes", "b_read_bytes", "acc_read_bytes", "acc_written_bytes")
#: What is counted of the grid, by unit of the operations.
GRID: Mapping[Unit, str] = {
    Unit.ALU: "grid_alu",
    Unit.MULTIPLIER: "grid_multiply",
    Unit.TABLE: "grid_table",
    Unit.MEMORY: "grid_memory",
}


def counted(program: MachineProgram) -> Counter[str]:
    """Uses by name (`ARRAY`, `GRID`). Predicated operations of the grid count whether or not they act."""
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
    """Operations of one iteration by what `GRID` calls them."""
    found: Counter[str] = Counter()
    for node in graph.nodes:
        unit = graph.operation(node).unit
        if unit is not None and node.op != "const":
            found[GRID[unit]] += 1
    return found


def _add_gemm(
    found: Counter[str], config: MachineConfig, given: Mapping[str, int], *, accumulates: bool
) -> None:
    """A GEMM of the array: every block takes k steps, in which all units multiply."""
    m, n, k, rows, cols = given["gemm_m"], given["gemm_n"], given["k"], config.rows, config.cols
    right = -(-n // cols)
    blocks = -(-m // rows) * right
    sums = 4 * m * right * cols
    found["macs"] += blocks * k * rows * cols
    found["a_read_bytes"] += blocks * k * rows
    found["b_read_bytes"] += blocks * k * cols
    found["acc_written_bytes"] += sums
    found["acc_read_bytes"] += sums if accumulates else 0
