"""Mappings whose accesses seldom wait for banks."""

from __future__ import annotations

from hw.config import load
from sw.kernels.configuration import configure
from sw.kernels.stalls import cycles, steadiest
from sw.operators.column_loops import Block, maxima, results

DEFAULT, BLOCK = load("default"), Block(16, 8, 8)


def test_rows_in_the_same_banks_wait_for_each_other() -> None:
    found = {}
    for pitch in (544, 536):
        kernel = maxima("int8", BLOCK, pitch)
        found[pitch], made = steadiest(kernel, DEFAULT, {"scratch": BLOCK.rows * pitch})
        assert made.verified
        assert made.ii == 5
    # Eight loads of two words each: all of the same two banks, or of neighbouring ones.
    assert found == {544: 8, 536: 5}


def test_the_mapping_that_waits_least_is_taken() -> None:
    kernel, moves = results(tuple(range(256)), "int8", 0, BLOCK, 544), {"out": BLOCK.rows * 544}
    taken, made = steadiest(kernel, DEFAULT, moves)
    assert taken == cycles(made, moves) == made.ii == 9
    assert cycles(configure(kernel, DEFAULT), moves) >= taken
