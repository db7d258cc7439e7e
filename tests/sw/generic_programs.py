"""Random programs of generic instructions that can be run on the machine."""

from __future__ import annotations

import dataclasses
import random

from sw.ir.intrinsics import effects
from sw.ir.program import For, If, Instruction, Program, Statement
from tests.sw.random_tile_programs import random_program, sample_parameters


def generic(program: Program, rng: random.Random, warps: int = 1) -> Program:
    """The program with every instruction a generic one on some warp, all buffers without a space."""

    def change(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for s in body:
            match s:
                case Instruction():
                    reads, writes = effects(s)
                    warp = rng.randrange(warps)
                    s = Instruction(s.label, "f", reads, writes, warp, s.when, (), s.where)
                case If():
                    s = dataclasses.replace(s, body=change(s.body), orelse=change(s.orelse))
                case For():
                    s = dataclasses.replace(s, body=change(s.body))
                case _:
                    pass
            made.append(s)
        return tuple(made)

    buffers = tuple(dataclasses.replace(b, space=None) for b in program.buffers)
    return dataclasses.replace(program, buffers=buffers, body=change(program.body))


def drawn(seed: int, warps: int = 1, **knobs: float) -> tuple[Program, dict[str, int]]:
    """A random program without unknown addresses, and parameters for which it runs."""
    rng = random.Random(seed)
    while True:
        program = random_program(rng, unknown=0, whiles=0, **knobs)
        values = sample_parameters(rng, program)
        if values is not None:
            return generic(program, rng, warps), values
