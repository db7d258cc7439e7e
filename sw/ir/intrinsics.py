"""Intrinsics of the machine: which of their operands they read and which they write.

Any other name is a generic instruction, which reads and writes what the text states.
"""

from __future__ import annotations

from dataclasses import dataclass

from hw import isa
from sw.ir.program import ANY, Access, Instruction, Region


@dataclass(frozen=True)
class Intrinsic:
    """An intrinsic instruction.

    `operands` lists its positional operands in order, followed by its parameter registers. Operands in
    `reads` and `writes` (one may be in both) may be given as regions; given as an expression, they are the
    value of the machine's register.
    """

    name: str
    operands: tuple[str, ...]
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


def _engine(name: str) -> Intrinsic:
    """Builds the intrinsic of a machine operation: operands in field order, then the parameters it reads."""
    spec = isa.INSTRUCTIONS[name]
    operands = tuple(o.name for o in spec.operands) + tuple(spec.parameters)
    if name.startswith("load"):
        return Intrinsic(name, operands, frozenset({"memory"}), frozenset({"target"}))
    if name.startswith("store"):
        return Intrinsic(name, operands, frozenset({"source"}), frozenset({"memory"}))
    if name.startswith("gemm"):
        reads = {"a", "b", "c"} if name == "gemm_acc" else {"a", "b"}
        return Intrinsic(name, operands, frozenset(reads), frozenset({"c"}))
    return Intrinsic(name, operands, frozenset({"bitstream"}))


INTRINSICS = {name: _engine(name) for name, spec in isa.INSTRUCTIONS.items() if spec.engine}
#: A load or store whose engine follows from the spaces of its regions.
INTRINSICS["load"] = Intrinsic("load", ("memory", "target"), frozenset({"memory"}), frozenset({"target"}))
#: Waits for tokens of a sync channel.
INTRINSICS["wait"] = Intrinsic("wait", ("channel",))
INTRINSICS["signal"] = Intrinsic("signal", ("channel",))
#: Value of a launch's operand `bitstream` that keeps the current configuration.
KEEP = 65535


def effects(instruction: Instruction) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
    """Returns the regions an instruction reads and those it writes, stated or implied by its intrinsic.

    The accesses of a CGRA launch follow from its configuration. A launch that states none may access
    anything.
    """
    intrinsic = INTRINSICS.get(instruction.name)
    reads, writes = instruction.reads, instruction.writes
    if intrinsic is None:
        return reads, writes
    regions = [(name, o) for name, o in instruction.operands if isinstance(o, Region)]
    reads += tuple(o for name, o in regions if name in intrinsic.reads)
    writes += tuple(o for name, o in regions if name in intrinsic.writes)
    if instruction.name == "cgra" and not instruction.reads and not instruction.writes:
        return (*reads, ANY), (ANY,)
    return reads, writes
