"""Every pass keeps the meaning of every program: final memories are equal, and the result is well formed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hw.errors import InputError
from sw.canonical.passes import Hoist
from sw.dependence.passes import LASTING, DeadStore
from sw.ir.check import problems
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.passes import PASSES, named
from sw.passes import run as apply
from tests.sw.ir.interpret import difference, run, seeded_choice
from tests.sw.random_tile_programs import random_program, sample_run

ALL = tuple(PASSES)


def keeps_meaning(program: Program, names: Sequence[str], seed: int, registers: int) -> bool:
    """Compare a program with what passes make of it; whether it could be run."""
    try:
        changed = apply(named(names, registers=registers), program)
    except InputError:
        # What the machine cannot run is not for every pass.
        return False
    assert parse_program(str(changed)) == changed
    # Regions may be outside where nothing gets to; that can be plainer to see after a pass.
    assert [e for e in problems(changed) if "a region inside of" not in e.expected] == []
    found = sample_run(random.Random(seed), program)
    if found is None:
        return False
    values, _ = found
    choice = seeded_choice(seed)
    try:
        before = run(program, values, choice=choice, steps=20000, trace=False)
    except InputError:
        return False
    after = run(changed, values, choice=choice, steps=40000, trace=False)
    # Dead stores are what is never seen: buffers on the chip are not seen when the program is over.
    spaces = LASTING if "dead-store" in names else None
    assert difference(before, after, spaces) is None, f"{program}\n{changed}\n{values}"
    return True


@pytest.mark.parametrize("name", [*ALL, ",".join(ALL), "hoist,canonicalize,hoist"])
def test_a_pass_keeps_the_meaning(name: str) -> None:
    # Hoisting searches, which takes a while.
    ran, count = 0, 4 if "hoist" in name else 20
    for seed in range(count):
        rng = random.Random(f"{name}{seed}")
        registers = rng.choice((8, 12, 32))
        program = random_program(rng, instructions=4 if "hoist" in name else 7, whiles=0.02)
        ran += keeps_meaning(program, name.split(","), seed, registers)
    assert ran >= count // 2


def test_the_names_of_passes_are_their_own() -> None:
    made = named(ALL, registers=8)
    assert tuple(step.name for step in made) == ALL


@pytest.mark.parametrize("text", ["fold", "hoist,,hoist", "Hoist", ","])
def test_unknown_passes(text: str) -> None:
    with pytest.raises(InputError, match=r"^pass .* is unknown; valid are canonicalize, hoist, "):
        named(text)
    assert named(" hoist , dead-store", registers=8) == [Hoist(8), DeadStore()]
    assert named("  ") == []
