"""Converts a sequential tile program to warps, and converts again if the checker rejects the result.

Waits and signals are placed from bounded runs with some parameter values. The checker examines the whole
program. If it finds parameter values, or an iteration in between, for which something is missing, the
conversion is repeated with more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hw.config import MachineConfig
from hw.isa import TIMING
from sw.check import Verdict, check
from sw.ir.parameters import assignments
from sw.ir.program import Program
from sw.ir.split import warps
from sw.ir.walk import instructions
from sw.warps.channels import Channels
from sw.warps.convert import Conversion, convert
from sw.warps.listing import by_kind
from sw.warps.reduce import Reduction
from sw.warps.text import warp_assembly
from sw.warps.unroll import Unrolled, unrolled


def verdict_on(
    program: Program, texts: Mapping[int, str], config: MachineConfig, *, samples_suffice: bool = False
) -> Verdict:
    """The checker's verdict on warps (as assembly text) that implement a sequential program on a machine.

    Raises `InputError` and `IRError` like `sw.check.check`.
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


#: Parameter values are all tried up to this many; beyond it, the ends of ranges and random ones.
MOST_RUNS = 64
#: Maximum number of conversions.
ROUNDS = 16
#: Factor by which each repetition follows more iterations, and the limit.
_GROWTH, _MOST = 4, 64


@dataclass(frozen=True)
class Warped(Conversion):
    """The warps of a program: a conversion with texts by warp and the checker's verdict.

    `nodes` are names with warps, in order.
    """

    texts: Mapping[int, str]
    nodes: Sequence[tuple[str, int]]
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `heald warps` (docs/warps.md)."""
        return {
            **by_kind(list(self.entries)),
            "throttle": [list(pair) for pair in self.throttle],
            "channels": dict(self.channels),
            "channel_count": self.channel_count,
            "programs": {str(warp): text for warp, text in self.texts.items()},
            "checked": self.verdict.as_dict(),
        }


def converted(
    program: Program,
    config: MachineConfig,
    reduction: Reduction = Reduction.FULL,
    channels: Channels = Channels.FIFO,
    *,
    unroll: bool = False,
    samples_suffice: bool = False,
) -> Warped:
    """Convert a program whose instructions all have warps, and check the result.

    Raises `InputError` for what the machine does not have, and `IRError` for a program that fails for all
    values of its parameters.
    """
    tried, complete = assignments(program, MOST_RUNS)
    source = unrolled(program) if unroll else Unrolled(program, {})
    if unroll:
        source.fits(config)
    nodes = [(source.name(s.label), s.warp or 0) for s in instructions(source.program)]
    reach = 1
    for _ in range(ROUNDS):
        made = convert(
            source.program, config, reduction, channels, values=tried, reach=reach, name=source.name
        )
        text = source.labelled(made.program)
        texts = {w: warp_assembly(text, w, config, f"warp {w}") for w in warps(made.program)}
        verdict = verdict_on(program, texts, config, samples_suffice=samples_suffice)
        values = dict(verdict.values)
        if verdict.ok or (complete and made.bounded.complete):
            break
        if verdict.method == "sampled":  # nothing was found wrong; the program is too large to prove
            break
        if values and values not in tried:
            tried.append(values)
        elif not unroll and reach < _MOST and not made.bounded.complete:
            reach *= _GROWTH
        else:
            break
    return Warped(**vars(made), texts=texts, nodes=nodes, verdict=verdict)
