"""Bytes of on-chip memories and operations of the CGRA, by operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cosim.session.network import compile_model
from cosim.session.usage import MEMORIES, capacity, fill, operations
from hw.config import load
from sw.frontend.network import import_model
from sw.graph.problems import network_of
from sw.problem import Product
from tests.heald.network_models import perceptron


def test_a_small_product_fills_what_its_operands_take() -> None:
    """A product of one block: 4 x 8 of A, 8 x 4 of B, 4 x 4 sums of 32 bits."""
    (program,) = compile_model(network_of(Product(4, 8, 4), "product"), load("test")).programs
    total, (own,) = fill(program)
    assert (
        own
        == total
        == {"buffer_a": 32, "buffer_b": 32, "accumulator": 64, "scratchpad": 0, "output_buffer": 0}
    )
    assert operations(program) == [0]


@pytest.mark.slow
def test_whole_programs_use_what_their_operators_do() -> None:
    (program,) = compile_model(import_model(perceptron()), load("tiny")).programs
    total, own = fill(program)
    sizes = capacity(program.config)
    for name in MEMORIES:
        assert max(each[name] for each in own) <= total[name] <= min(sizes[name], sum(e[name] for e in own))
    assert total["accumulator"] > 0
    assert total["output_buffer"] > 0
    assert all(n > 0 for n in operations(program))


@pytest.mark.slow
def test_programs_that_were_read_tell_only_the_whole() -> None:
    (program,) = compile_model(import_model(perceptron()), load("tiny")).programs
    read = replace(program, compiled=None)
    assert fill(read)[0] == fill(program)[0]
    assert not any(sum(each.values()) for each in fill(read)[1])
    assert operations(read) == [0] * len(program.operators)
