"""The kernels equal NumPy: unchanged, fused, unrolled, with results in memory; and as plain Python."""

from __future__ import annotations

import importlib.util
import zlib
from dataclasses import replace

import numpy as np
import pytest

from sw.dfg.graph import Graph
from sw.dfg.interpret import run_graph
from sw.dfg.kernel import HostLoop, Kernel, Launch, Step
from sw.dfg.python import from_function, parse_kernel
from sw.dfg.transform import fuse_constants, store_outputs
from tests.sw.dfg.reference import CASES, KERNELS
from tests.sw.dfg.running import run

COUNTS = (0, 1, 2, 17, 1000)


def arguments(name: str, n: int):
    return CASES[name].arguments(np.random.default_rng(zlib.crc32(name.encode()) + n), n)


def check(kernel: Kernel, name: str, n: int) -> None:
    arrays, scalars = arguments(name, n)
    results = run(kernel, arrays, scalars, n)
    changed, values = CASES[name].expected(n, arrays, scalars)
    assert results.scalars == values
    for array, content in arrays.items():
        np.testing.assert_array_equal(results.arrays[array], changed.get(array, content), array)


def mapped(body: tuple[Step, ...], change) -> tuple[Step, ...]:
    return tuple(
        replace(s, graph=change(s.graph))
        if isinstance(s, Launch)
        else replace(s, body=mapped(s.body, change))
        for s in body
    )


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("name", CASES)
def test_interpreted_it_equals_numpy(name: str, n: int) -> None:
    check(from_function(KERNELS, name), name, n)


@pytest.mark.parametrize("name", CASES)
def test_the_function_as_plain_python_is_the_same_where_nothing_wraps(name: str) -> None:
    spec = importlib.util.spec_from_file_location("kernels", KERNELS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    n, rng = 23, np.random.default_rng(3)
    arrays, scalars = arguments(name, n)
    if name != "softmax":
        arrays = {a: (rng.integers(-40, 40, len(x))).astype(np.int32) for a, x in arrays.items()}
    lists = {a: x.tolist() for a, x in arrays.items()}
    returned = getattr(module, name)(n=n, **lists, **scalars)
    results = run(from_function(KERNELS, name), arrays, scalars, n)
    if returned is not None:
        assert results.scalars == (returned if isinstance(returned, tuple) else (returned,))
    for array, content in lists.items():
        assert results.arrays[array].tolist() == content


@pytest.mark.parametrize("name", CASES)
def test_fusion_keeps_the_results(name: str) -> None:
    kernel = from_function(KERNELS, name)
    fused = replace(kernel, body=mapped(kernel.body, fuse_constants))
    for n in (0, 1, 2, 17):
        check(fused, name, n)


@pytest.mark.parametrize("name", CASES)
def test_fusion_leaves_no_constant_with_a_user_that_has_room(name: str) -> None:
    for launch in from_function(KERNELS, name).launches:
        graph = fuse_constants(launch.graph)
        for edge in graph.edges:
            if graph.by_id[edge.source].op == "const":
                assert graph.by_id[edge.target].immediate is not None or edge.distance


@pytest.mark.parametrize("name", ["dot_product", "prefix_sum", "argmax", "maximum"])
@pytest.mark.parametrize("n", [1, 2, 17])
def test_outputs_as_stores_leave_the_same_in_memory(name: str, n: int) -> None:
    kernel = from_function(KERNELS, name)
    arrays, scalars = arguments(name, n)
    words = {a: x.tolist() for a, x in arrays.items()}
    (loop,) = kernel.loops
    stored = store_outputs(loop.graph, "out")
    words["out"] = [0] * len(loop.graph.outputs)
    assert run_graph(stored, words, scalars, n) == {}
    expected = run(kernel, arrays, scalars, n).scalars
    by_name = dict(zip((o.name for o in loop.graph.outputs), words["out"], strict=True))
    assert tuple(by_name[str(r)] for r in kernel.results) == expected


def test_simple_loops_are_one_launch_with_constants_as_initial_values() -> None:
    for name in ("dot_product", "argmax", "prefix_sum", "fir", "histogram"):
        (launch,) = from_function(KERNELS, name).body
        assert isinstance(launch, Launch)


def test_a_nest_is_a_loop_on_the_host_around_launches() -> None:
    kernel = from_function(KERNELS, "matrix_vector")
    (nest,) = kernel.body
    assert isinstance(nest, HostLoop)
    assert (nest.variable, nest.count) == ("r", "n")
    inner, after = nest.body
    assert isinstance(inner, Launch)
    assert isinstance(after, Launch)
    assert inner.count == "columns"
    assert after.once
    assert not after.on_host
    assert kernel.scalars == ("columns",)


def test_a_softmax_sums_to_one() -> None:
    arrays, scalars = arguments("softmax", 200)
    y = run(from_function(KERNELS, "softmax"), arrays, scalars, 200).arrays["y"]
    x = arrays["x"] / 1024
    exact = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    assert abs(int(y.sum()) - 2**15) < 200
    np.testing.assert_allclose(y / 2**15, exact, atol=0.01)


def graph_of(name: str) -> Graph:
    return from_function(KERNELS, name).loops[0].graph


def test_a_histogram_loads_what_the_iteration_before_stored() -> None:
    graph = graph_of("histogram")
    order = [
        (graph.by_id[e.source].op, graph.by_id[e.target].op, e.distance)
        for e in graph.edges
        if e.operand == "M"
    ]
    assert order == [("store", "load", 1)]


def test_every_loop_and_every_piece_of_straight_code_has_a_name_of_its_own() -> None:
    text = """
def f(n, x):
    s = x[0]
    for i in range(n):
        s += x[i]
    x[0] = s
    for i in range(n):
        s = x[i]
        for j in range(n):
            s += x[j]
        x[i] = s
    x[1] = x[2]
"""
    names = [launch.graph.name for launch in parse_kernel(text, "f").launches]
    assert names == [
        "f.straight.1",
        "f.1",
        "f.straight.2",
        "f.straight.3",
        "f.2",
        "f.straight.4",
        "f.straight.5",
    ]
