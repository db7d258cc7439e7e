"""Warps executed on numbers that follow the parameters (`sw.check.affine`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hw import isa
from sw.check.affine import Around, Number
from sw.check.text import Block, Line, Loop
from sw.ir.expression import Op


@dataclass
class WarpWalk:
    """A warp that is executed on numbers that follow the parameters.

    `step` is called for every instruction. `operands` has those of the machine's operations in order, and
    None for generic ones.
    """

    around: Around
    step: Callable[[], None]
    registers: dict[int, Number] = field(default_factory=dict)
    parameters: dict[int, Number] = field(default_factory=dict)
    operands: list[tuple[Number, ...] | None] = field(default_factory=list)
    halted: bool = False

    def block(self, block: Block) -> None:
        """Instructions and loops."""
        at = 0
        while at < len(block.nodes) and not self.halted:
            node = block.nodes[at]
            at += 1
            self.step()
            line = node.line if isinstance(node, Loop) else node
            holds = self.holds(line)
            if isinstance(node, Loop):
                self.loop(node, holds)
            elif holds and line.target is not None:
                at = line.target
            elif holds:
                self.line(line)

    def loop(self, loop: Loop, holds: bool) -> None:
        """As many rounds as the register says; one where the loop does not happen."""
        around = self.around
        count = self.register(loop.line.fields["rs1"]) if holds else 1
        times = around.keep(count) if around.less(0, count) else 0
        for _ in range(times):
            self.step()
            self.block(loop.body)
            if self.halted:
                return

    def register(self, number: int) -> Number:
        """The value of a register."""
        return self.registers.get(number, 0)

    def holds(self, line: Line) -> bool:
        """The predicate."""
        if line.predicate == 0:
            return not line.sense
        return self.around.true(self.register(line.predicate)) == line.sense

    def line(self, line: Line) -> None:
        """One instruction that happens."""
        f, name = line.fields, line.name
        spec = isa.INSTRUCTIONS.get(name)
        if name == "halt":
            self.halted = True
        elif name == "op":
            self.operands.append(None)
        elif spec is not None and spec.engine:
            row = [self.register(f[x.name]) for x in spec.fields]
            row += [self.parameters.get(isa.PARAMETERS[p].index, 0) for p in spec.parameters]
            for operand, a in zip(spec.operands, row, strict=False):
                self.fits(a, operand.bits)
            self.operands.append(tuple(row))
        elif name in ("param", "parami"):
            a = f["imm"] if name == "parami" else self.register(f["rs1"])
            self.fits(a, isa.BY_PARAMETER[f["parameter"]].bits)
            self.parameters[f["parameter"]] = a
        elif name not in ("nop", "wait", "signal"):
            result = self.scalar(line)
            if f["rd"]:
                self.registers[f["rd"]] = result

    def fits(self, a: Number, bits: int) -> None:
        """Note that an unsigned value is not too wide."""
        if bits < 32:
            self.around.less(a, 0)
            self.around.less(a, 1 << bits)

    def scalar(self, line: Line) -> Number:
        """What an instruction puts into its register."""
        f, name, around = line.fields, line.name, self.around
        if name == "arg":
            return around.parameters[line.text]
        if name == "li":
            return f["imm"]
        if name == "lih":
            return around.add(around.shift_left(self.register(f["rd"]), 15), f["imm"] & 0x7FFF)
        if name == "select":
            return self.register(f["rs2"] if around.true(self.register(f["rs1"])) else f["rs3"])
        plain = name[:-1] if "imm" in f else name
        right = f["imm"] if "imm" in f else self.register(f["rs2"])
        return around.apply(_OPERATORS[plain], self.register(f["rs1"]), right)


_OPERATORS = {
    "add": Op.ADD,
    "sub": Op.SUB,
    "mul": Op.MUL,
    "div": Op.DIV,
    "rem": Op.MOD,
    "min": Op.MIN,
    "max": Op.MAX,
    "and": Op.BIT_AND,
    "or": Op.BIT_OR,
    "xor": Op.BIT_XOR,
    "shl": Op.SHL,
    "shr": Op.SHR,
    "eq": Op.EQ,
    "ne": Op.NE,
    "lt": Op.LT,
    "le": Op.LE,
}
