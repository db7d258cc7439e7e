"""How often a program uses the array, the grid and their memories, by executing its tile program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hw.config import MachineConfig
from hw.fabric import Unit
from jacquard.network_program import MachineProgram
from sw.compile.launches import UNIT
from sw.dfg.graph import Graph
from sw.ir.expression import Expr, evaluate
from sw.ir.intrinsics import KEEP
from sw.ir.program import Instruction, Region
from sw.ir.walk import executions

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
_RELEVANT = ("gemm", "gemm_acc", "cgra", "load_c")


def counted(program: MachineProgram) -> Counter[str]:
    """Uses by name (`ARRAY`, `GRID`). Predicated operations of the grid count whether or not they act."""
    uses = _Uses(program)
    values: dict[str, int] = {}
    for instruction, _ in executions(program.source.body, values, lambda i: i.name in _RELEVANT):
        uses.add(instruction, values)
    return uses.found


def operations(graph: Graph) -> Counter[str]:
    """Operations of one iteration by what `GRID` calls them."""
    found: Counter[str] = Counter()
    for node in graph.nodes:
        unit = graph.operation(node).unit
        if unit is not None and node.op != "const":
            found[GRID[unit]] += 1
    return found


class _Uses:
    """The state of an execution: what is counted, and which configuration the grid holds."""

    def __init__(self, program: MachineProgram):
        self.found: Counter[str] = Counter()
        self.config: MachineConfig = program.config
        kernels = {k.words: operations(k.graph) for k in program.kernels}
        self.held: dict[str, Counter[str]] = {}
        for i, home in enumerate(program.homes.values()):
            constant = home.tensor.constant
            if constant is not None and constant.dtype == "int32" and constant.ndim == 1:
                words = tuple(constant.view("uint32").tolist())
                if words in kernels:
                    self.held[f"t{i}"] = kernels[words]
        self.places: dict[int, Counter[str]] = {}
        self.current: Counter[str] = Counter()

    def add(self, i: Instruction, values: Mapping[str, int]) -> None:
        """One operation."""
        if i.name == "load_c":
            region = i.reads[0] if i.reads else None
            if isinstance(region, Region) and region.buffer in self.held:
                place = dict(i.operands)["target"]
                assert isinstance(place, Expr)
                self.places[evaluate(place, values) // UNIT] = self.held[region.buffer]
            return
        given = {name: evaluate(v, values) for name, v in i.operands if isinstance(v, Expr)}
        if i.name != "cgra":
            self.product(given["gemm_m"], given["gemm_n"], given["k"], i.name == "gemm_acc")
            return
        if given["bitstream"] != KEEP:
            self.current = self.places[given["bitstream"]]
        for name, count in self.current.items():
            self.found[name] += count * given["iterations"]

    def product(self, m: int, n: int, k: int, accumulates: bool) -> None:
        """A product of the array: every block takes k steps, in which all units multiply."""
        rows, cols = self.config.rows, self.config.cols
        right = -(-n // cols)
        blocks = -(-m // rows) * right
        sums = 4 * m * right * cols
        self.found["macs"] += blocks * k * rows * cols
        self.found["a_read_bytes"] += blocks * k * rows
        self.found["b_read_bytes"] += blocks * k * cols
        self.found["acc_written_bytes"] += sums
        self.found["acc_read_bytes"] += sums if accumulates else 0
