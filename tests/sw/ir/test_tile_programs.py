"""The generator of random programs follows its options."""

from __future__ import annotations

import random
from collections import Counter

from sw.ir.expression import Apply, Const
from sw.ir.program import ANY, Assign, For, If, Program, Region, While
from sw.ir.walk import expressions, instructions, statements
from tests.sw.random_tile_programs import NESTS, STRAIGHT, random_program, sample_run


def features(program: Program) -> set[str]:
    found = {type(s).__name__ for s in statements(program.body)}
    for s in statements(program.body):
        found |= {e.op.name for root in expressions(s) for e in root.walk() if isinstance(e, Apply)}
    for i in instructions(program):
        found |= {"ANY"} if ANY in i.reads + i.writes else set()
        found |= {"when"} if i.when is not None else set()
        found |= {f"{len(r.box)} dimensions" for r in i.reads + i.writes if isinstance(r, Region)}
    return found


def test_all_features_are_there() -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        seen.update(features(random_program(random.Random(seed))))
    wanted = {
        "For",
        "While",
        "If",
        "Assign",
        "Instruction",
        "ANY",
        "when",
        "MOD",
        "MIN",
        "MAX",
        "SELECT",
        "MUL",
    }
    wanted |= {"1 dimensions", "2 dimensions", "3 dimensions", "DIV", "BIT_XOR", "AND", "OR", "NOT"}
    assert {name for name in wanted if seen[name] < 5} == set()


def test_straight_programs_have_nothing_but_instructions_with_constants() -> None:
    for seed in range(50):
        program = random_program(random.Random(seed), STRAIGHT)
        assert program.parameters == ()
        assert len(program.body) == len(instructions(program)) == 12
        assert all(isinstance(e, Const) for s in program.body for e in expressions(s))
        assert sample_run(random.Random(seed), program) is not None


def test_nests_have_known_bounds() -> None:
    depth = 0
    for seed in range(50):
        program = random_program(random.Random(seed), NESTS)
        for s in statements(program.body):
            assert not isinstance(s, If | While | Assign)
            if isinstance(s, For):
                assert all(isinstance(e, Const) for e in (s.start, s.stop, s.step))
                depth = max(
                    [
                        depth,
                        *(e.type.loop or 0 for x in s.body for r in expressions(x) for e in r.variables()),
                    ]
                )
    assert depth == 2


def test_most_programs_run() -> None:
    runs = sum(
        sample_run(random.Random(seed), random_program(random.Random(seed))) is not None
        for seed in range(100)
    )
    assert runs > 85
