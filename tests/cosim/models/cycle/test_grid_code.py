"""What the text of a configuration says of operations is what they mean."""

from __future__ import annotations

import random

import pytest

from cosim.models.cycle.grid_code import INLINE
from sw.dfg.operations import OPERATIONS

#: Limits, and amounts around which shifts begin again.
EDGES = (0, 1, 2, -1, -2, 31, 32, 33, 63, 64, 65, -128, 127, -(2**31), 2**31 - 1)


def _drawn(rng: random.Random) -> int:
    return rng.choice(EDGES) if rng.random() < 0.5 else rng.randrange(-(2**31), 2**31)


@pytest.mark.parametrize("name", INLINE)
def test_text_of_an_operation_means_what_the_operation_does(name: str) -> None:
    operation, rng = OPERATIONS[name], random.Random(name)
    assert operation.meaning is not None
    names = "abc"[: operation.operands]
    by_names = eval(f"lambda {', '.join(names)}: {INLINE[name](*names)}")
    for number in range(3000):
        operands = [_drawn(rng) for _ in names]
        wanted = operation.meaning(*operands)
        assert by_names(*operands) == wanted, operands
        if number < 300:  # operands may be constants of the configuration, or chosen in parentheses
            assert eval(INLINE[name](*map(str, operands))) == wanted, operands
            chosen = [f"({operand} if 1 else 0)" for operand in operands]
            assert eval(INLINE[name](*chosen)) == wanted, operands
