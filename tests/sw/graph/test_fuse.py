"""Fused networks compute the same with fewer operators."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hw.errors import InputError
from sw.graph.expression import SIGNS, Apply, Argument, Expression, Lookup, Number
from sw.graph.fuse import MOST_SIZE, fused
from sw.graph.network import (
    Elementwise,
    Epilogue,
    MatrixProduct,
    Network,
    Operator,
    Tensor,
    View,
    whole,
)
from sw.graph.reference import random_inputs, run
from sw.graph.requantise import clamped
from sw.graph.text import text
from sw.graph.views import reshaped, sliced, transposed

SMALL = clamped(Apply("mul_shift_round_even", (Argument(0), Number(77), Number(14))), -128, 127)


def formula(value: Expression) -> str:
    """An expression as text: operands are x0, x1, ..., tables are shortened."""
    match value:
        case Argument(index):
            return f"x{index}"
        case Number(number):
            return str(number)
        case Lookup(table, index):
            return f"table{len(table)}[{formula(index)}]"
        case Apply(operation, operands) if operation in SIGNS:
            return "(" + f" {SIGNS[operation]} ".join(formula(x) for x in operands) + ")"
        case Apply(operation, operands):
            return f"{operation}(" + ", ".join(formula(x) for x in operands) + ")"


def network(
    tensors: dict[str, tuple[tuple[int, ...], str]],
    operators: list[Operator],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
) -> Network:
    made = {name: Tensor(name, shape, element) for name, (shape, element) in tensors.items()}
    return Network("test", made, tuple(operators), inputs, outputs)


def elementwise(name: str, output: View, value: object, *operands: View) -> Elementwise:
    return Elementwise(name, name, (name,), output, value, operands)  # type: ignore[arg-type]


def view(name: str, *shape: int) -> View:
    return whole(Tensor(name, shape, "int8"))


def same(before: Network, operators: int) -> Network:
    after = fused(before)
    inputs = random_inputs(before, np.random.default_rng(0))
    expected, found = run(before, inputs), run(after, inputs)
    assert list(expected) == list(found)
    for name, array in expected.items():
        assert np.array_equal(found[name], array)
    assert len(after.operators) == operators, text(after)
    return after


def attention() -> Network:
    """A product of heads, requantised, transposed and reshaped, plus a residual, through a table."""
    heads = {"a": (2, 5, 7), "b": (2, 7, 3), "sum": (2, 5, 3), "small": (2, 5, 3)}
    tensors = {name: (shape, "int32" if name == "sum" else "int8") for name, shape in heads.items()}
    tensors |= dict.fromkeys(("moved", "more", "total", "result"), ((5, 6), "int8"))
    moved = reshaped(view("moved", 5, 6), (5, 2, 3))
    assert moved is not None
    table = Lookup(
        tuple(int(x) for x in np.arange(256) * 7 % 200 - 100), Apply("and", (Argument(0), Number(255)))
    )
    total = clamped(Apply("add", (Argument(0), Argument(1))), -128, 127)
    operators: list[Operator] = [
        MatrixProduct("p", "p", ("p",), view("sum", 2, 5, 3), view("a", 2, 5, 7), view("b", 2, 7, 3), 1, 2),
        elementwise("q", view("small", 2, 5, 3), SMALL, view("sum", 2, 5, 3)),
        elementwise("t", moved, Argument(0), transposed(view("small", 2, 5, 3), (1, 0, 2))),
        elementwise("r", view("total", 5, 6), total, view("moved", 5, 6), view("more", 5, 6)),
        elementwise("f", view("result", 5, 6), table, view("total", 5, 6)),
    ]
    return network(tensors, operators, ("a", "b", "more"), ("result",))


def test_what_follows_a_product_becomes_its_epilogue() -> None:
    after = same(attention(), 1)
    product = after.operators[0]
    assert isinstance(product, MatrixProduct)
    assert product.nodes == ("p", "q", "t", "r", "f")
    assert product.output.tensor == "result"
    assert product.output.strides == (3, 6, 1)
    assert isinstance(product.epilogue, Epilogue)
    assert formula(product.epilogue.value).startswith("table256[")
    assert set(after.tensors) == {"a", "b", "more", "result"}


@pytest.mark.parametrize("wanted", ["small", "moved", "total"])
def test_what_somebody_else_reads_is_kept(wanted: str) -> None:
    before = dataclasses.replace(attention(), outputs=("result", wanted))
    after = same(before, 2)
    assert wanted in after.tensors


def test_a_zero_point_is_not_added_to_be_subtracted() -> None:
    tensors = {"x": ((600,), "int32"), "q": ((600,), "int8"), "y": ((600,), "int32")}
    scaled = Apply("mul_shift_round_even", (Argument(0), Number(77), Number(14)))
    operators: list[Operator] = [
        elementwise(
            "q", view("q", 600), clamped(Apply("add", (scaled, Number(5))), -128, 127), view("x", 600)
        ),
        elementwise("y", view("y", 600), Apply("sub", (Argument(0), Number(5))), view("q", 600)),
    ]
    after = same(network(tensors, operators, ("x",), ("y",)), 1)
    only = after.operators[0]
    assert isinstance(only, Elementwise)
    assert formula(only.value) == "max(min(mul_shift_round_even(x0, 77, 14), 122), -133)"


def test_parts_of_a_concatenation_are_written_in_place() -> None:
    tensors = {"x": ((4, 3), "int32"), "y": ((4, 5), "int32"), "qx": ((4, 3), "int8"), "qy": ((4, 5), "int8")}
    tensors["both"] = ((4, 8), "int8")
    both = view("both", 4, 8)
    operators: list[Operator] = [
        elementwise("qx", view("qx", 4, 3), SMALL, view("x", 4, 3)),
        elementwise("qy", view("qy", 4, 5), SMALL, view("y", 4, 5)),
        elementwise("c", sliced(both, 1, 0, 3), Argument(0), view("qx", 4, 3)),
        elementwise("c", sliced(both, 1, 3, 5), Argument(0), view("qy", 4, 5)),
    ]
    after = same(network(tensors, operators, ("x", "y"), ("both",)), 2)
    assert [o.output.strides for o in after.operators] == [(8, 1), (8, 1)]


def test_a_tensor_that_is_repeated_is_not_fused() -> None:
    tensors = {"x": ((4, 1), "int32"), "q": ((4, 1), "int8"), "y": ((4, 5), "int8")}
    repeated = View("q", (4, 5), (1, 0))
    operators: list[Operator] = [
        elementwise("q", view("q", 4, 1), SMALL, view("x", 4, 1)),
        elementwise("n", view("y", 4, 5), Apply("xor", (Argument(0), Number(-1))), repeated),
    ]
    assert len(same(network(tensors, operators, ("x",), ("y",)), 2).operators) == 2


def test_what_nobody_reads_is_left_out() -> None:
    tensors = {"x": ((4,), "int32"), "q": ((4,), "int8"), "y": ((4,), "int32")}
    operators: list[Operator] = [
        elementwise("q", view("q", 4), SMALL, view("x", 4)),
        elementwise("y", view("y", 4), Apply("abs", (Argument(0),)), view("x", 4)),
    ]
    after = fused(network(tensors, operators, ("x",), ("y",)))
    assert [o.name for o in after.operators] == ["y"]


def test_networks_are_checked() -> None:
    tensors = {"x": ((4,), "int32"), "y": ((4,), "int32")}
    with pytest.raises(InputError, match="'y' is read before it is written"):
        network(tensors, [elementwise("e", view("x", 4), Argument(0), view("y", 4))], ("x",), ())
    with pytest.raises(InputError, match="reaches from 0 to 4, the tensor has 4 elements"):
        network(tensors, [elementwise("e", view("y", 5), Argument(0), view("x", 4))], ("x",), ("y",))
    with pytest.raises(InputError, match="output 'y' is written by no operator"):
        network(tensors, [], ("x",), ("y",))


def test_inputs_are_checked() -> None:
    made = attention()
    inputs = random_inputs(made, np.random.default_rng(0))
    with pytest.raises(InputError, match="input 'more' is needed"):
        run(made, {n: a for n, a in inputs.items() if n != "more"})
    with pytest.raises(InputError, match="'zz' is not one of the model's inputs"):
        run(made, inputs | {"zz": inputs["a"]})
    with pytest.raises(InputError, match=r"input 'a' must be int8 of shape \[2, 5, 7\], not int32"):
        run(made, inputs | {"a": inputs["a"].astype(np.int32)})


def test_sums_wrap_as_those_of_the_machine() -> None:
    tensors = {"a": ((1, 40000), "uint8"), "b": ((40000, 1), "uint8"), "c": ((1, 1), "int32")}
    product = MatrixProduct("p", "p", ("p",), view("c", 1, 1), view("a", 1, 40000), view("b", 40000, 1))
    made = network(tensors, [product], ("a", "b"), ("c",))
    found = run(made, {"a": np.full((1, 40000), 255, np.uint8), "b": np.full((40000, 1), 255, np.uint8)})
    assert found["c"].item() == np.array(40000 * 255 * 255).astype(np.int32)


def _chain(count: int, doubled: bool) -> Network:
    """So many sums of a tensor with itself, or limits of it from below."""
    tensors = {f"t{i}": Tensor(f"t{i}", (2, 4), "int32") for i in range(count + 1)}
    value = Apply("add", (Argument(0), Argument(1))) if doubled else Apply("max", (Argument(0), Number(0)))
    views = [whole(tensor) for tensor in tensors.values()]
    operators = tuple(
        Elementwise(f"n{i}", "Add", (f"n{i}",), views[i + 1], value, (views[i],) * (1 + doubled))
        for i in range(count)
    )
    return Network("chain", tensors, operators, ("t0",), (f"t{count}",))


def test_a_value_that_is_doubled_again_and_again_stays_small() -> None:
    made = fused(_chain(60, doubled=True))
    assert 2 <= len(made.operators) <= 20
    assert all(isinstance(o, Elementwise) and o.value.size <= MOST_SIZE for o in made.operators)
    x = np.arange(8, dtype=np.int32).reshape(2, 4)
    found = run(fused(_chain(20, doubled=True)), {"t0": x})
    assert np.array_equal(found["t20"], x << 20)


def test_limits_of_limits_are_one() -> None:
    made = fused(_chain(900, doubled=False))
    assert [o.value for o in made.operators if isinstance(o, Elementwise)] == [
        Apply("max", (Argument(0), Number(0)))
    ]
