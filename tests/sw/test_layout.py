"""Tensors in memory: aligned rows, one place each, and back."""

from __future__ import annotations

import numpy as np
import pytest

from bench.problems import compile_problem
from hw.config import load
from hw.errors import InputError
from sw.layout import GARBAGE, coalesce, place
from sw.problem import Product

CONFIG = load("default")


def test_rows_start_at_words_of_their_port_and_tensors_do_not_meet() -> None:
    places = place(Product(3, 5, 7, batch_a=(2,)), CONFIG)
    for tensor, port in zip(places, ("load_a", "load_b", "store"), strict=True):
        assert tensor.address % 4096 == 0
        assert tensor.pitch % CONFIG.port_bytes(port) == 0
    a, b, c = places
    assert a.address + a.size < b.address < b.address + b.size < c.address


def test_image_and_extract_are_inverse_and_padding_is_garbage() -> None:
    a, _, c = place(Product(3, 5, 7), CONFIG)
    values = np.arange(15, dtype=np.int8).reshape(3, 5)
    image = a.image(values)
    assert np.array_equal(a.extract(image), values)
    assert (image.reshape(3, 32)[:, 5:] == GARBAGE).all()
    result = np.arange(-10, 11, dtype=np.int32).reshape(3, 7)
    assert np.array_equal(c.extract(c.image(result)), result)


def test_windows_permit_reading_operands_and_writing_the_result_only() -> None:
    windows = compile_problem(Product(3, 5, 7), CONFIG).windows
    assert [w[2:] for w in windows] == [(True, False), (True, False), (False, True)]


def test_batches_that_lie_evenly_become_one_axis() -> None:
    assert coalesce((2, 3, 4), ((120, 40, 10),)) == [(24, (10,))]
    assert coalesce((2, 3, 4), ((12, 4, 1), (0, 4, 1))) == [(2, (12, 0)), (12, (1, 1))]
    assert coalesce((2, 1), ((0, 0),)) == [(2, (0,))]


def test_what_does_not_fit_memory_is_refused_with_sizes() -> None:
    with pytest.raises(InputError, match=r"must fit 1048576 bytes of memory, \d+ are needed \(A 1048576, B"):
        place(Product(1024, 1024, 1024), CONFIG, 1 << 20)


def test_operands_of_another_shape_are_refused() -> None:
    a, _, _ = place(Product(3, 5, 7), CONFIG)
    with pytest.raises(InputError, match=r"A must be int8 of shape \[3, 5\]"):
        a.image(np.zeros((5, 3), np.int8))
