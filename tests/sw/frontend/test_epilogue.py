"""Epilogues: a Python function becomes an expression; what has no equivalent is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hw.errors import InputError
from sw.dfg.text import FunctionText
from sw.frontend.epilogue import read_epilogue, with_epilogue
from sw.graph.expression import evaluate
from sw.graph.network import Network
from sw.graph.problems import network_of
from sw.graph.reference import random_inputs, run
from sw.problem import Product

TABLE = tuple((i * i) % 251 - 125 for i in range(256))
SHIFT = 7
#: What annotations stand for: functions are read, never called.
Scalar = Tile = Row = Column = Any


def network(function: Callable[..., Any], out: str = "int8", **constants: Any) -> Network:
    """A product of 5 x 7 x 9 with an epilogue."""
    read = read_epilogue(FunctionText.from_function(function))
    given = {name: np.asarray(value, np.int32) for name, value in constants.items()}
    return with_epilogue(network_of(Product(5, 7, 9)), read, out, given)


def clamp(acc, bias, scale: Scalar, zero: Scalar):  # type: ignore[no-untyped-def]
    """Requantise."""
    x = (acc + bias) * scale >> SHIFT
    if x < 0:
        x = -x
    return min(max(x + zero, -128), 127)


def looked_up(acc, left: Row, residual: Tile[np.uint8]):  # type: ignore[no-untyped-def]
    x = acc + left
    y = TABLE[x & 255] if x > 0 else 3
    for k in range(3):
        y += residual << k
    return y


def test_a_function_means_what_numpy_computes() -> None:
    made = network(clamp)
    assert made.inputs == ("A", "B", "bias", "scale", "zero")
    given = random_inputs(made, np.random.default_rng(0)) | {"scale": np.int32(3), "zero": np.int32(-5)}
    given = {n: np.asarray(v) for n, v in given.items()}
    total = given["A"].astype(np.int32) @ given["B"].astype(np.int32)
    wanted = np.abs((total + given["bias"]) * 3 >> 7) - 5
    found = run(made, given)["C"]
    assert found.dtype == np.int8
    assert np.array_equal(found, np.clip(wanted, -128, 127))


def test_rows_tiles_tables_and_loops() -> None:
    made = network(looked_up, "int32")
    assert made.tensors["residual"].element == "uint8"
    assert made.tensors["left"].shape == (5,)
    given = random_inputs(made, np.random.default_rng(1))
    x = given["A"].astype(np.int32) @ given["B"].astype(np.int32) + given["left"][:, None]
    y = np.where(x > 0, np.array(TABLE)[x & 255], 3) + 7 * given["residual"].astype(np.int32)
    assert np.array_equal(run(made, given)["C"], y)


def test_a_table_is_only_asked_where_it_counts() -> None:
    def guarded(acc):  # type: ignore[no-untyped-def]
        return TABLE[acc] if acc >= 0 and acc < 256 else 0

    value = read_epilogue(FunctionText.from_function(guarded)).value
    assert evaluate(value, [np.array([-9, 0, 255, 256, 1 << 30])]).tolist() == [0, TABLE[0], TABLE[255], 0, 0]


def test_constants_are_no_inputs() -> None:
    made = network(clamp, bias=range(9), scale=3, zero=0)
    assert made.inputs == ("A", "B")
    assert made.tensors["bias"].constant is not None


def test_values_wrap_as_numpy_casts() -> None:
    def same(acc):  # type: ignore[no-untyped-def]
        return acc

    made = network(same)
    given = random_inputs(made, np.random.default_rng(2))
    total = given["A"].astype(np.int32) @ given["B"].astype(np.int32)
    assert np.array_equal(run(made, given)["C"], total.astype(np.int8))


def empty():  # type: ignore[no-untyped-def]
    return 1


def nothing(acc):  # type: ignore[no-untyped-def]
    x = acc  # noqa: F841


def two(acc):  # type: ignore[no-untyped-def]
    return acc, acc


def divided(acc, by: Scalar):  # type: ignore[no-untyped-def]
    return acc // by


def annotated(acc, by: int):  # type: ignore[no-untyped-def]
    return acc + by


def typed(acc, by: Tile[np.int64]):  # type: ignore[no-untyped-def]
    return acc + by


def defaulted(acc, by=3):  # type: ignore[no-untyped-def]
    return acc + by


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (empty, "found no parameter, expected the sum as the first parameter"),
        (nothing, "expected `return` of one value as the last statement"),
        (two, "expected `return` of one value as the last statement"),
        (divided, "found a division: acc // by, expected a divisor that is a power of two"),
        (annotated, "found int, expected Column, Row, Scalar, Tile, or one of them with a type"),
        (typed, r"expected Column, Row, Scalar, Tile, or one of them with a type such as Tile\["),
        (defaulted, "found a default value of a parameter"),
    ],
)
def test_refusals_name_the_place(function: Callable[..., Any], message: str) -> None:
    line = function.__code__.co_firstlineno
    with pytest.raises(InputError, match=rf"test_epilogue\.py:({line}|{line + 1}):\d+: .*{message}"):
        read_epilogue(FunctionText.from_function(function))


@pytest.mark.parametrize(
    ("out", "constants", "message"),
    [
        ("int16", {}, "out must be one of int8, uint8, int32, not 'int16'"),
        ("int8", {"offset": 3}, "clamp has no operand 'offset'; it has bias, scale, zero"),
        ("int8", {"bias": [1, 2]}, r"bias must be int32 of shape \[9\], not int32 of \[2\]"),
    ],
)
def test_refusals_of_products(out: str, constants: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        network(clamp, out, **constants)


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="its text cannot be read"):
        read_epilogue(FunctionText.from_function(len))
