"""Random programs of generic instructions that can run on the machine."""

from __future__ import annotations

import dataclasses
import random

from sw.ir.intrinsics import effects
from sw.ir.program import Instruction, Program, Statement
from sw.ir.walk import rewrite
from tests.sw.random_tile_programs import random_program, sample_parameters


def generic(program: Program, rng: random.Random, warps: int = 1) -> Program:
    """The program with every instruction a generic one on some warp, all buffers without a space."""

    def change(s: Statement) -> Statement:
        if not isinstance(s, Instruction):
            return s
        reads, writes = effects(s)
        return Instruction(s.label, "f", reads, writes, rng.randrange(warps), s.when, (), s.where)

    buffers = tuple(dataclasses.replace(b, space=None) for b in program.buffers)
    return dataclasses.replace(program, buffers=buffers, body=rewrite(program.body, change))


def drawn(seed: int, warps: int = 1, **knobs: float) -> tuple[Program, dict[str, int]]:
    """A random program without unknown addresses, and parameters for which it runs."""
    rng = random.Random(seed)
    while True:
        program = random_program(rng, unknown=0, whiles=0, **knobs)
        values = sample_parameters(rng, program)
        if values is not None:
            return generic(program, rng, warps), values
