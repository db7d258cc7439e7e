"""The passes over programs: canonical form, hoisting, strength reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sw.canonical.hoist import optimise, reduce_strength
from sw.canonical.program import canonicalize_program
from sw.ir.program import Program


@dataclass(frozen=True)
class Canonicalize:
    """Bring every expression into canonical form and merge conditionals."""

    name: ClassVar[str] = "canonicalize"

    def __call__(self, program: Program) -> Program:
        """The program after the pass."""
        return canonicalize_program(program)


@dataclass(frozen=True)
class Hoist:
    """Keep invariants, repeated values and induction variables in scalars, as far as registers last."""

    name: ClassVar[str] = "hoist"
    #: Scalar registers of the machine, r0 included.
    registers: int = 32

    def __call__(self, program: Program) -> Program:
        """The program after the pass."""
        return optimise(program, self.registers)


@dataclass(frozen=True)
class StrengthReduce:
    """Make affine expressions of loop variables scalars that every step of a loop moves on."""

    name: ClassVar[str] = "strength-reduce"

    def __call__(self, program: Program) -> Program:
        """The program after the pass."""
        return reduce_strength(program)
