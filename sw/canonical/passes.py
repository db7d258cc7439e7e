"""Passes over programs: canonical form, hoisting, strength reduction."""

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
        """Returns the transformed program."""
        return canonicalize_program(program)


@dataclass(frozen=True)
class Hoist:
    """Keep invariants, repeated values and induction variables in registers, as many as there are."""

    name: ClassVar[str] = "hoist"
    #: Scalar registers of the machine, including r0.
    registers: int = 32

    def __call__(self, program: Program) -> Program:
        """Returns the transformed program."""
        return optimise(program, self.registers)


@dataclass(frozen=True)
class StrengthReduce:
    """Turn affine expressions of loop variables into scalars that each iteration increments."""

    name: ClassVar[str] = "strength-reduce"

    def __call__(self, program: Program) -> Program:
        """Returns the transformed program."""
        return reduce_strength(program)
