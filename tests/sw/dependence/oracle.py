"""Compares the analysis with actual runs of a program."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from sw.dependence import ANY_DISTANCE, Dependences, analyse
from sw.dependence.walk import WalkBudget
from sw.ir.errors import IRError
from sw.ir.program import Program
from tests.sw.ir.interpret import Execution, run, seeded_choice
from tests.sw.random_tile_programs import sample_run


@dataclass
class Comparison:
    """What runs showed, what the analysis says, and what it misses."""

    runs: int = 0
    edges: int = 0
    real: int = 0
    distances: int = 0
    real_distances: int = 0
    missing: list[str] = field(default_factory=list)


def executions(
    program: Program, rng: random.Random, runs: int, steps: int, every: int
) -> Iterator[Execution]:
    """Runs with all parameters if there are at most `every` choices of them, else with random ones."""
    ranges = [range(p.type.low, p.type.high) for p in program.parameters]
    if math.prod(map(len, ranges)) <= every:
        for values in itertools.product(*ranges):
            given = {p.name: v for p, v in zip(program.parameters, values, strict=True)}
            choice = seeded_choice(rng.getrandbits(32))
            # Some choices lead outside of a buffer.
            with contextlib.suppress(IRError):
                yield run(program, given, choice=choice, steps=steps)
        return
    for _ in range(max(runs, every // 4)):
        sample = sample_run(rng, program, tries=4, steps=steps)
        if sample is None:
            return
        yield sample[1]


def compare(
    program: Program,
    rng: random.Random,
    runs: int = 4,
    steps: int = 3000,
    every: int = 0,
    budget: WalkBudget | None = None,
) -> Comparison:
    """Run a program with random parameters and unknown addresses, and compare all that was read."""
    found = analyse(program, budget=budget)
    use_def: dict[str, set[str]] = {}
    distances: dict[str, set[int | tuple[int, ...]]] = {}
    result = Comparison()
    for execution in executions(program, rng, runs, steps, every):
        result.runs += 1
        for use, sources in execution.use_def.items():
            use_def.setdefault(use, set()).update(sources)
        for pair, apart in execution.distances.items():
            distances.setdefault(pair, set()).update(apart)
    if not result.runs:
        return result
    for use, sources in use_def.items():
        result.edges += len(found.use_def[use])
        result.real += len(sources)
        result.missing += [f"{use} reads {s}" for s in sorted(sources - set(found.use_def[use]))]
    for pair, listed in found.distance.items():
        result.distances += len(listed)
        result.real_distances += len(distances.get(pair, ()))
    for pair, apart in distances.items():
        result.missing += [f"{pair} at {d}" for d in apart if not _listed(found, pair, d)]
    return result


def _listed(found: Dependences, pair: str, distance: int | tuple[int, ...]) -> bool:
    """Whether a distance is in the list, or one of its patterns."""
    listed = found.distance.get(pair, [])
    if isinstance(distance, int):
        return distance in listed or ANY_DISTANCE in listed
    return any(
        isinstance(entry, list) and all(a in (b, ANY_DISTANCE) for b, a in zip(distance, entry, strict=True))
        for entry in listed
    )
