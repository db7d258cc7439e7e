"""Code on virtual registers: the result of lowering, before register allocation.

Operations are the machine's instructions, in the order of instruction memory. Registers are numbers; 0 is the
machine's r0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hw import isa

ZERO = 0

#: A predicate: a register, and whether the operation executes if it is nonzero (True) or zero (False).
Predicate = tuple[int, bool]

_IMMEDIATE_BITS = isa.layout("addi")["imm"].width
_LI_BITS = isa.layout("li")["imm"].width
PARAMI_BITS = isa.layout("parami")["imm"].width
#: Number of instructions that load a constant which grows with the problem: 30 bits.
WIDE = 2


def fits(value: int, bits: int = _IMMEDIATE_BITS) -> bool:
    """Whether a signed field holds the value; by default, the field of the immediate forms."""
    return -(1 << bits - 1) <= value < 1 << bits - 1


def pieces(value: int, least: int = 1) -> list[int]:
    """Immediates of `li`, then of `lih`s, each signed to fit its field, most significant first.

    There are at least `least` of them for any value.
    """
    found: list[int] = []
    while len(found) + 1 < least or not fits(value, _LI_BITS):
        low = value & (1 << _LI_BITS) - 1
        found.insert(0, low - (1 << _LI_BITS) if low >> _LI_BITS - 1 else low)
        value >>= _LI_BITS
    return [value, *found]


@dataclass(slots=True)
class VirtualInstruction:
    """One instruction: registers in field order, immediate, channel or parameter, predicate.

    `link` is the index of a loop's last operation, or of a jump's target. `weight` is the known or estimated
    number of executions. `certain` marks a loop whose body surely executes. `label` is that of the tile
    program's instruction, if any.
    """

    name: str
    target: int | None = None
    sources: tuple[int, ...] = ()
    immediate: int | None = None
    number: int | None = None
    predicate: Predicate | None = None
    weight: float = 1
    link: int = -1
    certain: bool = False
    label: str = ""

    @property
    def reads(self) -> tuple[int, ...]:
        """Registers whose value it needs; a predicated instruction may keep its target."""
        if self.predicate is None:
            return self.sources
        if self.target is None:
            return (*self.sources, self.predicate[0])
        return (*self.sources, self.predicate[0], self.target)


@dataclass
class Code:
    """A warp's operations, and the number of registers they use, ZERO included."""

    operations: list[VirtualInstruction] = field(default_factory=list)
    registers: int = 1
    #: Registers with a value before the first operation: the program's parameters, by name.
    given: dict[int, str] = field(default_factory=dict)
    #: Nesting depth of loops.
    depth: int = 0


class Emitter:
    """Appends operations, each with the weight at its position."""

    def __init__(self) -> None:
        self.code = Code()
        self.weight: float = 1

    def register(self) -> int:
        """Returns an unused register."""
        self.code.registers += 1
        return self.code.registers - 1

    def emit(
        self,
        name: str,
        target: int | None = None,
        sources: tuple[int, ...] = (),
        immediate: int | None = None,
        predicate: Predicate | None = None,
        *,
        number: int | None = None,
    ) -> VirtualInstruction:
        """Appends one operation."""
        made = VirtualInstruction(name, target, sources, immediate, number, predicate, self.weight)
        self.code.operations.append(made)
        return made

    def constant(
        self,
        value: int,
        target: int | None = None,
        predicate: Predicate | None = None,
        *,
        least: int = 1,
    ) -> int:
        """Loads a constant into a register, with at least this many instructions.

        0 already has a register if no target is given.
        """
        if value == 0 and target is None:
            return ZERO
        target = self.register() if target is None else target
        first, *rest = pieces(value, least)
        self.emit("li", target, (), first, predicate)
        for piece in rest:
            self.emit("lih", target, (target,), piece, predicate)
        return target

    def copy(self, source: int, target: int | None) -> int:
        """Copies a register to another one, if another is given."""
        if target is None or target == source:
            return source
        self.emit("addi", target, (source,), 0)
        return target

    @contextmanager
    def weighted(self, factor: float) -> Iterator[None]:
        """Operations appended inside are executed this many times per execution outside."""
        before, self.weight = self.weight, self.weight * factor
        try:
            yield
        finally:
            self.weight = before

    @property
    def here(self) -> int:
        """The index of the next operation."""
        return len(self.code.operations)
