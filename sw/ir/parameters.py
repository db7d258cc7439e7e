"""Chooses parameter values for analyses that run a program."""

from __future__ import annotations

import itertools
import math
import random

from sw.ir.program import Program
from sw.ir.types import HIGH, LOW


def assignments(program: Program, most: int, seed: int = 0) -> tuple[list[dict[str, int]], bool]:
    """Returns parameter assignments, and whether they are all that exist: so if there are at most `most`.

    Otherwise returns the corners of the ranges, and random assignments. Parameters without a range take
    values from -4 to 64.
    """
    choices = []
    for p in program.parameters:
        low = p.type.low if p.type.low > LOW else -4
        high = p.type.high if p.type.high < HIGH else 64
        choices.append(range(low, max(high, low + 1)))
    bounded = all(p.type.low > LOW and p.type.high < HIGH for p in program.parameters)
    keys = [p.name for p in program.parameters]
    if math.prod(map(len, choices)) <= most:
        return [dict(zip(keys, picked, strict=True)) for picked in itertools.product(*choices)], bounded
    rng = random.Random(seed)
    found: dict[tuple[int, ...], None] = {}
    for ends in itertools.islice(itertools.product(*((c[0], c[-1]) for c in choices)), most // 2):
        found[ends] = None
    for _ in range(4 * most):
        if len(found) >= most:
            break
        found[tuple(rng.choice(c) for c in choices)] = None
    return [dict(zip(keys, picked, strict=True)) for picked in found], False
