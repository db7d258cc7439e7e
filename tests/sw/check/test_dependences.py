"""Pairs of directly dependent instances, against all pairs that share an element."""

from __future__ import annotations

import random

import pytest

from sw.check import dependences
from sw.check.dependences import TooLargeError, pairs
from sw.check.trace import trace
from sw.ir.parse import parse_program
from sw.ir.program import Program
from tests.sw.check.cases import conflicts, random_case


def direct(program: Program) -> tuple[set[tuple[int, int]], list[int]]:
    """The pairs, as places in the sequential order, and the warp of each instance."""
    made = trace(program)
    found: set[tuple[int, int]] = set()
    for earlier, later in pairs(made):
        found.update(zip(earlier.tolist(), later.tolist(), strict=True))
    return found, made.warp.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_pairs_order_all_that_share_an_element_and_nothing_else(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    program = random_case(rng).program
    wanted = {(s, t) for (_, s), (_, t) in conflicts(program, {}, numbers=True)}
    found, warp = direct(program)
    assert found <= wanted
    # With the order inside each warp they reach all of them.
    over: list[set[int]] = []
    for n, w in enumerate(warp):
        before = {s for s, t in found if t == n} | {m for m in range(n) if warp[m] == w}
        over.append(before.union(*(over[m] for m in before)))
    assert all(s in over[t] for s, t in wanted)
    # Buffers are worked on in batches of any size.
    monkeypatch.setattr(dependences, "AT_ONCE", rng.randint(1, 6))
    assert direct(program)[0] == found


def test_last_writers_and_the_readers_since() -> None:
    program = parse_program(
        """
@program
def p():
    a: Buffer[8]
    I0 = f(write=a[0:4], warp=0)
    I1 = f(write=a[2:8], warp=1)
    I2 = f(read=a[0:8], warp=2)
    I3 = f(read=a[6:8], warp=0)
    I4 = f(write=a[7], warp=3)
    I5 = f(write=a[7], warp=0)
    I6 = f(write=a[3:3], warp=2)
"""
    )
    assert direct(program)[0] == {(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)}


def test_more_than_can_be_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    for i in range(64):\n        A = f(read=a[0 : i + 1], warp=0)\n"
    text = f"@program\ndef p():\n    a: Buffer[64]\n{body}"
    monkeypatch.setattr(dependences, "MOST", 1000)
    with pytest.raises(TooLargeError, match="more than 1,000 accesses"):
        direct(parse_program(text))
