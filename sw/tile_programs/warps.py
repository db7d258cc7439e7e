"""A warp for every instruction, one that the machine has."""

from __future__ import annotations

import dataclasses

from hw.config import MachineConfig
from sw.ir.errors import IRError
from sw.ir.program import Instruction, Program, Statement
from sw.ir.split import replaced, without_syncs
from sw.ir.walk import instructions
from sw.warps.assign import assign_warps


def with_warps(program: Program, config: MachineConfig) -> Program:
    """The program with a warp for every instruction (`sw.warps.assign.assign_warps`).

    Raises `IRError` for a warp that the machine does not have, and for `wait` and `signal` without one.
    """
    warps = {s.label: s.warp for s in instructions(assign_warps(without_syncs(program)))}

    def change(s: Instruction) -> tuple[Statement, ...]:
        warp = warps.get(s.label, s.warp)
        if warp is None:
            raise IRError(s.where, f"{s.name} without warp=", "the warp that executes it")
        if warp >= config.warps:
            there = f"a warp of 0 to {config.warps - 1}, the warps of {config.name}"
            raise IRError(s.where, f"warp {warp} of {s.label}", there)
        return (dataclasses.replace(s, warp=warp),)

    return dataclasses.replace(program, body=replaced(program.body, change))
