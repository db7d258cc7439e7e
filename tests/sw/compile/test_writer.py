"""Regions of loads and stores contain every byte that these touch, for all kinds of views."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hw.config import load
from hw.errors import InputError
from sw.compile.forms import Loop, size
from sw.compile.memory import Lines, plan_memory
from sw.compile.program import check_operands
from sw.compile.writer import AddressMap, Writer, loop, row_compatible
from sw.compile.writer import given as operands_of
from sw.graph.expression import Argument
from sw.graph.network import Elementwise, Network, Tensor, View, whole
from sw.ir.expression import Const, Expr
from sw.ir.program import Instruction
from sw.ir.scope import retype
from tests.sw.compile.footprints import Footprints

TEST = load("test", {"cgra": "torus4x4"})


@st.composite
def views(draw: st.DrawFn) -> tuple[Tensor, View]:
    """A tensor, and rows and columns of it, columns contiguous; rows may go down and repeat."""
    tensor = Tensor("x", tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))), "int8")
    elements = tensor.elements
    columns = draw(st.integers(1, elements))
    rows = draw(st.integers(1, 6))
    most = (elements - columns) // max(1, rows - 1)
    row = tensor.shape[-1]
    steps = [s for s in {0, 1, columns, row, 2 * row, most} if s <= most]
    step = draw(st.sampled_from(sorted(steps))) * draw(st.sampled_from([1, -1]))
    reach = abs(step) * (rows - 1)
    first = draw(st.integers(0, elements - columns - reach))
    return tensor, View("x", (rows, columns), (step, 1), first + (reach if step < 0 else 0))


@given(views(), st.integers(1, 3), st.integers(0, 5), st.booleans())
def test_regions_hold_what_is_touched(
    made: tuple[Tensor, View], parts: int, padding: int, store: bool
) -> None:
    tensor, view = made
    # Rows of a tensor with padding must be whole, or parts of one.
    assume(padding == 0 or row_compatible(view, tensor.shape[-1]))
    assume(padding == 0 or tensor.shape[-1] > 1)
    target = Tensor("y", tensor.shape, "int8")
    copy = Elementwise("o", "Copy", (), whole(target), Argument(0), (whole(tensor),))
    network = Network("views", {"x": tensor, "y": target}, (copy,), ("x",), ("y",))
    lines = {name: Lines(tensor.shape[-1] + padding) for name in network.tensors}
    memory = plan_memory(network, network.operators, lines, TEST)
    writer = Writer(TEST, memory)
    # Tiles of rows, the last of which may be smaller.
    rows, columns = view.shape
    tile = -(-rows // parts)
    loops = (Loop("rows", -(-rows // tile)),) if rows > tile else ()
    here: Expr = size(loops, "rows", rows, tile)
    walk = AddressMap(loops, {"rows": tile * view.strides[0]}, view.offset)
    if store:
        out = View("y", view.shape, view.strides, view.offset)
        body = [writer.store_out(out, walk, here, view.strides[0], Const(columns), 0, 256)]
    else:
        body = [writer.load_scratch(view, walk, here, view.strides[0], Const(columns), 0, 256)]
    program = retype(writer.program("views", [loop(loops[0], body)] if loops else body))
    found = Footprints(program, TEST, memory.homes)
    assert found.executions() == (loops[0].count if loops else 1)
    assert list(found.wrong()) == []


def test_operands_wider_than_their_fields_are_refused() -> None:
    operands = operands_of({"memory": 0, "target": 0, "outer": 1, "inner": 65536, "load_pitch": 0})
    load_c = Instruction("L", "load_c", (), (), 4, None, operands)
    with pytest.raises(InputError, match="sum: inner of load_c must be at most 65535, it can be 65536"):
        check_operands("sum", [load_c])


def test_labels_of_an_operator_differ_and_tell_its_number() -> None:
    x = Tensor("x", (4,), "int8")
    y = Tensor("y", (4,), "int8")
    copy = Elementwise("o", "Copy", (), whole(y), Argument(0), (whole(x),))
    network = Network("labels", {"x": x, "y": y}, (copy,), ("x",), ("y",))
    writer = Writer(TEST, plan_memory(network, network.operators, {}, TEST))
    writer.number = 3
    assert [writer.label("S") for _ in range(3)] == ["S_3", "S_3_1", "S_3_2"]
    assert writer.labels == {"S_3": 3, "S_3_1": 3, "S_3_2": 3}
