"""The checker of warps as every run asks it: with the limits of a machine."""

from __future__ import annotations

from collections.abc import Mapping

from hw.config import MachineConfig
from hw.isa import TIMING
from sw.check import Verdict, check
from sw.ir.program import Program


def verdict_on(
    program: Program, texts: Mapping[int, str], config: MachineConfig, *, samples_suffice: bool = False
) -> Verdict:
    """What the checker says of warps, as assembly text, that stand for a sequential program on a machine.

    Raises `InputError` and `IRError` as `sw.check.check` does.
    """
    return check(
        program,
        texts,
        channels=config.channels,
        depth=config.channel_depth,
        pending_signals=TIMING.pending_signals,
        registers=config.registers,
        samples_suffice=samples_suffice,
    )
