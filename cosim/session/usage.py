"""On-chip resources that a program's operators use: bytes of its memories, operations of the CGRA."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosim.session.machine_program import MachineProgram, executed
from hw.config import MachineConfig
from sw.compile.writer import ACCUMULATOR, BUFFER_A, BUFFER_B, OUT, SCRATCH
from sw.dfg.graph import Graph
from sw.ir.expression import evaluate
from sw.ir.program import Region
from sw.ir.walk import executions

#: Display names of the on-chip memories, by the name of their buffer in programs.
MEMORIES = {
    BUFFER_A: "input buffer A",
    BUFFER_B: "input buffer B",
    ACCUMULATOR: "accumulator",
    SCRATCH: "scratchpad",
    OUT: "output buffer",
}


def capacity(config: MachineConfig) -> dict[str, int]:
    """Bytes of each memory."""
    held = (config.buffer_a_bytes, config.buffer_b_bytes, config.acc_bytes)
    return dict(zip(MEMORIES, (*held, config.scratch_bytes, config.out_bytes), strict=True))


def fill(program: MachineProgram) -> tuple[dict[str, int], list[dict[str, int]]]:
    """Bytes of each memory that instructions read or write: for the whole program, and for each operator.

    Operators are only known for a freshly compiled program; those of a program read from a directory count 0.
    """
    sizes = {b.name: tuple(evaluate(s, {}) for s in b.shape) for b in program.source.buffers}
    sizes = {name: sizes[name] for name in MEMORIES if name in sizes}
    labels: Mapping[str, int] = program.compiled.labels if program.compiled is not None else {}
    boxes: dict[tuple[str, int], set[tuple[tuple[int, int], ...]]] = {}
    values: dict[str, int] = {}
    for i, _ in executions(program.source.body, values):
        for region in (*i.reads, *i.writes):
            if isinstance(region, Region) and region.buffer in sizes:
                box = tuple((evaluate(s.start, values), evaluate(s.stop, values)) for s in region.box)
                boxes.setdefault((region.buffer, labels.get(i.label, -1)), set()).add(box)
    total = dict.fromkeys(MEMORIES, 0)
    own = [dict.fromkeys(MEMORIES, 0) for _ in program.operators]
    for name, shape in sizes.items():
        whole, width = np.zeros(shape, bool), 4 if name == ACCUMULATOR else 1
        for number in range(-1, len(own)):
            used = np.zeros(shape, bool)
            for box in boxes.get((name, number), ()):
                used[tuple(slice(start, stop) for start, stop in box)] = True
            whole |= used
            if number >= 0:
                own[number][name] = width * int(used.sum())
        total[name] = width * int(whole.sum())
    return total, own


def operations(program: MachineProgram) -> list[int]:
    """Operations of the CGRA by operator, counted in each lane, whether or not their predicates hold.

    They are only known for a freshly compiled program; those of a program read from a directory are 0.
    """
    found = [0] * len(program.operators)
    if program.compiled is not None:
        labels, each = program.compiled.labels, [_of_iteration(k.graph) for k in program.kernels]
        for i, given, current in executed(program.source, program.homes, program.kernels):
            if i.name == "cgra":
                found[labels[i.label]] += each[current] * given["iterations"]
    return found


def _of_iteration(graph: Graph) -> int:
    """Operations of one iteration: nodes with a functional unit; wide ones count in every lane."""
    nodes = [n for n in graph.nodes if graph.operation(n).unit is not None and n.op != "const"]
    return sum(graph.lanes if n.id in graph.wide else 1 for n in nodes)
