"""Operands and results of products in memory: aligned rows, separate places, and reading them back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from heald.testing.problems import compile_problem
from hw.config import load
from hw.errors import InputError
from sw.layout import GARBAGE, coalesce
from sw.problem import Product

CONFIG = load("default")
PORTS = {"A": "load_a", "B": "load_b", "C": "store"}


def test_rows_start_at_words_of_their_port_and_tensors_do_not_meet() -> None:
    homes = compile_problem(Product(3, 5, 7, batch_a=(2,)), CONFIG).memory.homes
    for name, port in PORTS.items():
        assert homes[name].address % CONFIG.port_bytes(port) == 0
        assert homes[name].pitch % CONFIG.port_bytes(port) == 0
    ends = sorted((h.address, h.address + h.size) for h in homes.values())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


def test_image_and_extract_are_inverse_and_padding_is_garbage() -> None:
    homes = compile_problem(Product(3, 5, 7), CONFIG).memory.homes
    values = np.arange(15, dtype=np.int8).reshape(3, 5)
    image = homes["A"].image(values)
    assert np.array_equal(homes["A"].extract(image), values)
    assert (image.reshape(3, 32)[:, 5:] == GARBAGE).all()
    result = np.arange(-10, 11, dtype=np.int32).reshape(3, 7)
    assert np.array_equal(homes["C"].extract(homes["C"].image(result)), result)


def test_operands_cannot_be_written() -> None:
    program = compile_problem(Product(3, 5, 7), CONFIG)
    windows, homes = program.memory.windows, program.memory.homes
    for name, home in homes.items():
        (own,) = [w for w in windows if w[0] <= home.address and home.address + home.size - 1 <= w[1]]
        assert own[3] == (name == "C")


def test_batches_that_lie_evenly_become_one_axis() -> None:
    assert coalesce((2, 3, 4), ((120, 40, 10),)) == [(24, (10,))]
    assert coalesce((2, 3, 4), ((12, 4, 1), (0, 4, 1))) == [(2, (12, 0)), (12, (1, 1))]
    assert coalesce((2, 1), ((0, 0),)) == [(2, (0,))]


def test_what_does_not_fit_memory_is_refused_with_sizes() -> None:
    with pytest.raises(InputError, match=r"must fit 1048576 bytes of memory, \d+ are needed"):
        compile_problem(Product(1024, 1024, 1024), CONFIG, memory=range(4096, 1 << 20))
