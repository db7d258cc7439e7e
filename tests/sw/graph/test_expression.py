"""Expressions on arrays have the meaning of a processing element's operations, element by element."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hw.errors import InputError
from sw.dfg.operations import OPERATIONS
from sw.graph.expression import Apply, Argument, Expression, Lookup, Number, evaluate, walk
from tests.sw.kernels.random_elementwise import expression

COMPUTED = {name: o for name, o in OPERATIONS.items() if o.meaning is not None}
LOW, HIGH = -(1 << 31), (1 << 31) - 1
#: Numbers where a meaning changes: ends of ranges, halves, shift amounts around the words' sizes.
EDGES = (
    *(
        LOW,
        LOW + 1,
        -(1 << 30),
        -65536,
        -129,
        -128,
        -64,
        -33,
        -32,
        -31,
        -3,
        -2,
        -1,
        0,
        1,
        2,
        3,
        7,
        30,
        31,
        32,
    ),
    *(33, 61, 62, 63, 64, 65, 95, 127, 128, 255, 256, 65535, 1 << 24, 1 << 30, HIGH - 1, HIGH),
)
WORDS = st.one_of(st.sampled_from(EDGES), st.integers(LOW, HIGH))


def meaning(e: Expression, operands: list[int]) -> int:
    """The value of an expression for numbers."""
    match e:
        case Argument(index):
            return operands[index]
        case Number(value):
            return value
        case Lookup(table, index):
            return table[meaning(index, operands)]
        case Apply(operation, arguments):
            found = OPERATIONS[operation].meaning
            assert found is not None
            return found(*(meaning(x, operands) for x in arguments))


@pytest.mark.parametrize("name", COMPUTED)
@given(data=st.data())
@settings(max_examples=60)
def test_an_operation_on_arrays_is_that_on_numbers(name: str, data: st.DataObject) -> None:
    count = COMPUTED[name].arguments
    columns = [data.draw(st.lists(WORDS, min_size=8, max_size=8)) for _ in range(count)]
    value = Apply(name, tuple(Argument(k) for k in range(count)))
    found = evaluate(value, [np.array(c, np.int32) for c in columns])
    assert found.dtype == np.int32
    assert found.tolist() == [meaning(value, list(row)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("name", COMPUTED)
def test_an_operation_is_right_at_all_edges(name: str) -> None:
    count = COMPUTED[name].arguments
    # What requantises a sum is tried with every eighth edge: the others follow from `requantise`.
    edges = np.array(EDGES[:: 1 if count < 4 else 8], np.int32)
    grids = [g.reshape(-1) for g in np.meshgrid(*[edges] * count)]
    value = Apply(name, tuple(Argument(k) for k in range(count)))
    found = evaluate(value, grids).tolist()
    assert found == [meaning(value, [int(x) for x in row]) for row in zip(*grids, strict=True)]


@given(st.integers(0, 1 << 32), st.integers(1, 3), st.integers(1, 12))
@example(0, 1, 1)
@settings(max_examples=100)
def test_expressions_on_arrays_are_those_on_numbers(seed: int, operands: int, size: int) -> None:
    rng = random.Random(seed)
    value = expression(rng, operands, size)
    columns = [[rng.choice(EDGES) for _ in range(6)] for _ in range(operands)]
    found = evaluate(value, [np.array(c, np.int32) for c in columns])
    expected = [meaning(value, list(row)) for row in zip(*columns, strict=True)]
    assert np.broadcast_to(found, 6).tolist() == expected


def test_operands_broadcast_and_bytes_are_extended() -> None:
    value = Apply("add", (Argument(0), Argument(1)))
    rows, columns = np.array([[-128], [127]], np.int8), np.array([255, 1], np.uint8)
    assert evaluate(value, [rows, columns]).tolist() == [[127, -127], [382, 128]]


def test_a_part_that_occurs_often_is_computed_once() -> None:
    value: Expression = Argument(0)
    for _ in range(40):
        value = Apply("add", (value, value))
    assert evaluate(value, [np.array([3], np.int32)]).tolist() == [0]
    assert sum(1 for _ in walk(value)) == 41


def test_what_is_no_expression_is_one_message() -> None:
    for attempt, message in (
        (lambda: Number(1 << 31), "a number must have 32 bits, not be 2147483648"),
        (lambda: Apply("load", (Argument(0),)), "'load' is not an operation on numbers"),
        (lambda: Apply("add", (Argument(0),)), "add takes 2 operands, not 1"),
        (lambda: evaluate(Lookup((5, 6), Argument(0)), [[0, 2]]), "index of a table must be 0 to 1, not 2"),
        (lambda: evaluate(Lookup((5, 6), Argument(0)), [-1]), "index of a table must be 0 to 1, not -1"),
    ):
        with pytest.raises(InputError, match=message):
            attempt()
