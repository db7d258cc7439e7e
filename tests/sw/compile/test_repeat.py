"""Repeated operators: they are found, put into a loop, and give the same results as single steps."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import heald as hd
from hw.config import load
from sw.compile.legal import legal
from sw.compile.program import Group
from sw.compile.repeat import Repeated, repeats, stacked
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.fuse import with_views
from sw.graph.network import MatrixProduct, Network, Operator, View
from tests.machines import TEST
from tests.sw.models import model
from tests.sw.quantised_models import session

SCALE, BATCH, WIDTH = np.float32(2**-6), 3, 8


def recurrent(steps: int, batch: int = BATCH, scales: dict[int, float] | None = None) -> onnx.ModelProto:
    """A state h becomes h R + x, quantised, with each step; `scales` are those of R where they differ."""
    rng = np.random.default_rng(steps)
    constants: dict[str, np.ndarray] = {"scale": SCALE, "zero": np.int8(0), "axis": np.array([0])}
    constants["R"] = rng.integers(-128, 128, (WIDTH, WIDTH)).astype(np.int8)
    constants["h"] = rng.integers(-128, 128, (batch, WIDTH)).astype(np.int8)
    nodes, rows = [], []

    def add(op: str, *inputs: str, result: str = "", **attributes: int) -> str:
        output = result or f"{op}.{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [output], f"{op}.{len(nodes)}", **attributes))
        return output

    h = add("DequantizeLinear", "h", "scale", "zero")
    for step in range(steps):
        constants |= {f"t{step}": np.array(step), f"s{step}": np.float32((scales or {}).get(step, 1 / 256))}
        x = add("DequantizeLinear", add("Gather", "x", f"t{step}", axis=0), "scale", "zero")
        r = add("DequantizeLinear", "R", f"s{step}", "zero")
        q = add("QuantizeLinear", add("Add", add("MatMul", h, r), x), "scale", "zero")
        h = add("DequantizeLinear", q, "scale", "zero")
        rows.append(add("Unsqueeze", q, "axis"))
    add("Concat", *rows, result="y", axis=0)
    shape = (steps, batch, WIDTH)
    x, y = (helper.make_tensor_value_info(n, TensorProto.INT8, shape) for n in "xy")
    return model(nodes, [x], [y], constants)


def one_by_one(operators: tuple[Operator | Repeated, ...]) -> tuple[Operator, ...]:
    """Loops written out."""
    made: list[Operator] = []
    for o in operators:
        if isinstance(o, Repeated):
            for t in range(o.count):
                made += [
                    with_views(inner, lambda v, t=t, o=o: moved(v, t * o.moves[v.tensor])) for inner in o.body
                ]  # type: ignore[misc]
        else:
            made.append(o)
    return tuple(made)


def moved(view: View, elements: int) -> View:
    return dataclasses.replace(view, offset=view.offset + elements)


def looped(network: Network) -> tuple[Network, tuple[Operator | Repeated, ...]]:
    """The network as the compiler loops over it."""
    made = stacked(legal(network, TEST))
    return made, repeats(made.operators, made.tensors)


def test_a_loop_written_out_is_the_network() -> None:
    network = import_model(recurrent(9))
    made, operators = looped(network)
    (loop, *_) = (o for o in operators if isinstance(o, Repeated))
    assert (loop.count, [type(o) for o in loop.body]) == (7, [MatrixProduct])
    x = reference.random_inputs(network, np.random.default_rng(0))
    again = dataclasses.replace(made, operators=one_by_one(operators))
    assert len(again.operators) == len(made.operators)
    np.testing.assert_array_equal(reference.run(again, x)["y"], reference.run(network, x)["y"])


@pytest.mark.parametrize(("other", "counts"), [(0, [7]), (4, [3, 3]), (8, [7]), (2, [5])])
def test_steps_that_differ_are_no_part_of_a_loop(other: int, counts: list[int]) -> None:
    network = import_model(recurrent(9, scales={other: 1 / 300}))
    _, operators = looped(network)
    found = [o for o in operators if isinstance(o, Repeated) and isinstance(o.body[0], MatrixProduct)]
    assert [o.count for o in found] == counts


def test_a_program_that_is_too_long_is_cut_beside_its_loops() -> None:
    made, operators = looped(import_model(recurrent(9)))
    group = Group(made, made.operators, TEST)
    parts = group.parts(3)
    assert [o for part in parts for o in part.operators] == list(made.operators)
    counts = [
        o.count for part in parts for o in repeats(part.operators, made.tensors) if isinstance(o, Repeated)
    ]
    assert counts == [o.count for o in operators if isinstance(o, Repeated)]
    # Of one loop alone both halves are loops.
    loop = next(o for o in operators if isinstance(o, Repeated))
    start = made.operators.index(loop.body[0])
    alone = dataclasses.replace(group, operators=made.operators[start : start + loop.count])
    assert [len(part.operators) for part in alone.parts(2)] == [3, 4]


def test_the_machine_loops_over_the_steps() -> None:
    proto = recurrent(9)
    made = hd.compile(proto, "test")
    (program,) = made.compiled.programs
    loop = next(o for o in program.operators if o.op == "7 steps")
    assert loop.macs == 7 * BATCH * WIDTH * WIDTH
    assert loop.loops[0] == ("step", 7)
    run = made.run()
    assert run.correct
    assert run.divergence is None
    x = run.inputs["x"]
    (wanted,) = session(proto).run(None, {"x": x})
    np.testing.assert_array_equal(run.outputs["y"], wanted)


def test_a_machine_with_too_few_nested_loops_takes_the_steps_one_by_one() -> None:
    network = import_model(recurrent(9, 700))
    words = {}
    for depth in (6, 1):
        steps = compile_network(network, load("test", {"loop_depth": depth}))
        assert all(isinstance(step, Compiled) for step in steps)
        words[depth] = sum(len(w) for s in steps if isinstance(s, Compiled) for w in s.programs.values())
    assert words[6] < words[1]
