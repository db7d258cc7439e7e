"""Graphs and kernels with lanes: their meaning, and their error messages."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from hw.errors import InputError
from sw.dfg.graph import Edge, Graph, Memory, Node, Output
from sw.dfg.interpret import run as interpreted
from sw.dfg.interpret import run_graph
from sw.dfg.json import format_graph, parse_graph
from sw.dfg.kernel import Kernel
from sw.dfg.python import kernel_of, parse_kernel
from sw.dfg.text import FunctionText
from sw.dfg.transform import fuse_constants, store_outputs
from sw.dfg.unroll import unroll, unroll_with_rest
from tests.sw.cgra.random_loops import random_loop
from tests.sw.dfg.running import run
from tests.sw.dfg.scheduled import run_overlapped, run_steps_overlapped

WORDS = 64
Meaning = tuple[dict[str, list[int]], dict[str, int]]


def loop(seed: int) -> tuple[Graph, dict[str, list[int]], dict[str, int]]:
    """A random graph of 2, 4 or 8 lanes, arrays and scalars for it."""
    kernel = random_loop(2 * seed, 2 << seed % 3).kernel
    rng = random.Random(seed)
    arrays = {a.name: [rng.randrange(-99, 99) for _ in range(WORDS)] for a in kernel.arrays}
    return kernel.loops[0].graph, arrays, {"p": rng.randint(-9, 9), "q": -rng.getrandbits(31)}


def meaning(graph: Graph, arrays: dict[str, list[int]], scalars: dict[str, int], n: int) -> Meaning:
    words = {name: list(array) for name, array in arrays.items()}
    found = run_graph(graph, words, scalars, n)
    return words, found


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_graphs_mean_what_their_operations_say(first: int) -> None:
    for seed in range(first, first + 30):
        graph, arrays, scalars = loop(seed)
        words = {name: list(array) for name, array in arrays.items()}
        found = run_overlapped(graph, words, scalars, 7, seed)
        assert (words, found) == meaning(graph, arrays, scalars, 7)


def test_a_load_of_one_element_takes_the_condition_of_the_first_lane() -> None:
    text = "LANES = 4\ndef f(n, c, s, y):\n    for i in range(n):\n{}        store_lanes(y, 4 * i, v)\n"
    chosen = "        v = s[0] if load_lanes(c, 4 * i) else 7\n"
    before = f"        p = s[0]\n{chosen.replace('s[0]', 'p')}"
    for piece, expected in ((chosen, [7, 0, 7, 0]), (before, [7, 5, 7, 5])):
        (launch,) = parse_kernel(text.format(piece), "f").launches
        words = {"c": [0, 1, 0, 2], "s": [5], "y": [0] * 4}
        run_graph(launch.graph, words, {}, 1)
        assert words["y"] == expected


def test_random_graphs_have_wide_nodes_of_every_operation() -> None:
    graphs = [loop(seed)[0] for seed in range(90)]
    wide = {graph.by_id[node].op for graph in graphs for node in graph.wide}
    assert wide >= {"lane", "load_lanes", "sum_lanes", "max_lanes", "add", "table", "select"}
    assert wide >= {"shift_lanes", "even_lanes", "odd_lanes"}
    assert not wide & {"load", "store", "store_lanes"}
    assert any(e.distance and e.source in g.wide for g in graphs for e in g.edges)


@pytest.mark.parametrize("times", [2, 3])
def test_unrolled_and_fused_and_written_as_json_they_mean_the_same(times: int) -> None:
    for seed in range(40):
        graph, arrays, scalars = loop(seed)
        expected = meaning(graph, arrays, scalars, 3 * times)
        assert meaning(unroll(graph, times), arrays, scalars, 3) == expected
        assert meaning(fuse_constants(graph), arrays, scalars, 3 * times) == expected
        again = parse_graph(format_graph(graph))
        assert again == graph
        assert again.lanes == graph.lanes


def test_json_names_lanes_only_where_there_are_several() -> None:
    one = Graph("g", (Node("c", "const", 1),), ())
    assert "lanes" not in format_graph(one)
    assert '"lanes": 4' in format_graph(replace(one, lanes=4))
    with pytest.raises(InputError, match=r"lanes must be 1, 2, 4, 8, 16, not 3"):
        parse_graph(format_graph(replace(one, lanes=4)).replace('"lanes": 4', '"lanes": 3'))
    with pytest.raises(InputError, match="lanes must be 1, as it is opaque, not 2"):
        replace(one, opaque=True, lanes=2)


LOAD = Node("v", "load_lanes", 0, memory=Memory("x"))


def test_what_of_a_wide_value_is_the_same_in_every_lane() -> None:
    nodes = (
        LOAD,
        Node("index", "mov"),
        Node("one", "load", memory=Memory("x")),
        Node("sum", "sum_lanes"),
        Node("some", "max_lanes"),
        Node("later", "add", 1),
        Node("sum of one", "sum_lanes"),
    )
    edges = (
        *(Edge("v", n) for n in ("index", "sum", "some")),
        Edge("index", "one"),
        Edge("v", "some", 0, "P"),
        Edge("sum", "later", 1, initial=(3,)),
        Edge("one", "sum of one"),
    )
    graph = Graph("g", nodes, edges, outputs=(Output("o", "index", 1, (0,)),), lanes=4)
    assert graph.wide == {"v", "index", "some"}
    # An output of a wide value is that of lane 0, and so is a store.
    assert run_graph(graph, {"x": [2, 0, 0, 9]}, {}, 1) == {"o": 2}
    stored = {"x": [2, 0, 0, 9], "y": [0]}
    run_graph(store_outputs(graph, "y"), stored, {}, 1)
    assert stored["y"] == [2]


@pytest.mark.parametrize(
    ("index", "size", "message"),
    [(2, 8, r"x\[2\]: the index must be a multiple of 4 with 4"), (4, 7, r"x\[4\]"), (-4, 8, r"x\[-4\]")],
)
@pytest.mark.parametrize("op", ["load_lanes", "store_lanes"])
def test_neighbouring_elements_begin_at_a_multiple_and_exist(
    op: str, index: int, size: int, message: str
) -> None:
    nodes = (Node("i", "const", index), Node("a", op, memory=Memory("x")))
    edges = (Edge("i", "a"), *[Edge("i", "a", 0, "I2")] * (op == "store_lanes"))
    outputs = (Output("o", "i", 1, (0,)),)
    with pytest.raises(InputError, match=f"graph 'g', node a, iteration 0: {op} of {message}"):
        run_graph(Graph("g", nodes, edges, outputs=outputs, lanes=4), {"x": [0] * size}, {}, 1)


@pytest.mark.parametrize(
    ("nodes", "lanes", "message"),
    [
        ((LOAD,), 1, r"node v \(load_lanes\): works on several lanes, the graph has lanes = 1"),
        ((Node("v", "load_lanes", 0),), 2, "needs the name of its memory"),
        ((Node("l", "lane", 0),), 2, "its immediate must be the one open operand, none is open"),
        ((Node("c", "const"),), 2, "needs an immediate"),
        ((Node("r", "shift_lanes"),), 2, "needs I1 and I2 and I3"),
    ],
)
def test_graphs_that_are_none(nodes: tuple[Node, ...], lanes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph("g", nodes, (), lanes=lanes)


# Kernels


def kernel(body: str, lanes: str = "4", before: str = "", after: str = "") -> Kernel:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    head = "".join(f"    {line}\n" for line in before.splitlines())
    text = f"LANES = {lanes}\n\ndef f(n, x, y, p):\n{head}    for i in range(n):\n{lines}    {after}\n"
    return parse_kernel(text, "f")


def test_a_kernel_with_lanes() -> None:
    body = """v = load_lanes(x, 4 * i) * p
acc += v
total = sum_lanes(acc)
if v > 20:
    store_lanes(y, 4 * i, shift_lanes(v, v, i) if lane() != 2 else max_lanes(v))"""
    found = kernel(body, before="acc = 0\ntotal = 0", after="return total")
    (launch,) = found.launches
    assert launch.graph.lanes == 4
    assert [(a.name, a.read, a.written) for a in found.arrays] == [("x", True, False), ("y", False, True)]
    x = np.arange(32, dtype=np.int32)
    results = run(found, {"x": x, "y": -x}, {"p": 3}, 8)
    v = 3 * x.reshape(8, 4)
    turned = np.array([np.roll(row, -i) for i, row in enumerate(v)])
    turned[:, 2] = v.max(axis=1)
    assert results.arrays["y"].tolist() == np.where(v > 20, turned, -x.reshape(8, 4)).ravel().tolist()
    assert results.scalars == (int(v.sum()),)


def test_every_other_lane_of_two_values() -> None:
    body = """v = load_lanes(x, 8 * i)
w = load_lanes(x, 8 * i + 4)
store_lanes(y, 8 * i, even_lanes(v, w))
store_lanes(y, 8 * i + 4, odd_lanes(v, w) + even_lanes(p, i))"""
    x = np.arange(32, dtype=np.int32)
    results = run(kernel(body), {"x": x, "y": -x}, {"p": 100}, 4)
    pairs = x.reshape(4, 4, 2)
    odd = pairs[..., 1] + [[100, 100, i, i] for i in range(4)]
    assert results.arrays["y"].tolist() == np.stack([pairs[..., 0], odd], axis=1).ravel().tolist()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if lane() < 2:\n y[i] = sum_lanes(load_lanes(x, 4 * i))", [3, 11]),
        (
            "w = load_lanes(x, 4 * i)\nstore_lanes(z, 4 * i, w)\n"
            "if lane() < 2:\n y[i] = sum_lanes(load_lanes(x, 4 * i))",
            [3, 11],
        ),
        ("if lane() < 2:\n store_lanes(z, 4 * i, 7)\n y[i] = sum_lanes(load_lanes(z, 4 * i))", [14, 14]),
        ("store_lanes(z, 4 * i, 7)\ny[i] = sum_lanes(load_lanes(z, 4 * i))", [28, 28]),
    ],
)
def test_lanes_whose_condition_does_not_hold_load_nothing(body: str, expected: list[int]) -> None:
    """Also where the elements are known: sums look at all lanes."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    text = f"LANES = 4\n\n\ndef f(n, x, y, z):\n    for i in range(n):\n{lines}\n"
    arrays = {"x": np.arange(1, 9, dtype=np.int32), "y": np.zeros(2, np.int32), "z": np.zeros(8, np.int32)}
    made = interpreted(parse_kernel(text, "f"), arrays, {"n": 2})
    assert made.arrays["y"].tolist() == expected


def test_lanes_of_a_function_in_memory_are_those_of_its_module() -> None:
    found = kernel_of(FunctionText.from_function(_sums))
    assert found.launches[0].graph.lanes == LANES
    given = {"x": np.arange(16, dtype=np.int32), "y": np.zeros(2, dtype=np.int32)}
    assert run(found, given, {}, 2).arrays["y"].tolist() == [28, 92]
    text = FunctionText.from_function(_sums).standalone()
    assert parse_kernel(text, "_sums").launches == found.launches


LANES = 8


def _sums(n, x, y):  # type: ignore[no-untyped-def]
    for i in range(n):
        y[i] = sum_lanes(load_lanes(x, 8 * i))  # type: ignore[name-defined]  # noqa: F821


def test_a_graph_that_needs_no_lanes_has_one() -> None:
    assert kernel("y[i] = x[i]\nlane = x[i]").launches[0].graph.lanes == 1


@pytest.mark.parametrize(
    ("body", "lanes", "message"),
    [
        ("y[i] = sum_lanes(y)", "4", "found the array 'y' as a whole"),
        ("y[i] = sum_lanes(p, p)", "4", "found 2 arguments of sum_lanes, expected 1"),
        ("store_lanes(y, i)", "4", "found 2 arguments of store_lanes, expected 3"),
        ("load_lanes(p + 1, i)", "4", "expected an assignment, `if`, `for` or `pass`"),
        ("y[i] = max_lanes(load_lanes(p + 1, i))", "4", "expected an array that is a parameter"),
        ("store_lanes(y, 6, p)", "4", "found index 6, expected a multiple of 4"),
        ("y[i] = store_lanes(x, i, p)", "4", "a call of 'store_lanes'"),
        ("lane = lane()", "4", "an assignment to the function 'lane'"),
        ("y[i] = lane()", "3", "found 3, expected 2, 4, 8, 16: the numbers of lanes of a fabric"),
        ("y[i] = lane()", "4\nLANES = N", "found N, expected 2, 4, 8, 16"),
    ],
)
def test_errors_of_kernels(body: str, lanes: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        kernel(body, lanes)


def test_lanes_must_be_set() -> None:
    text = "def f(n, y):\n    for i in range(n):\n        y[i] = lane()\n"
    expected = "f.py:3:16: found a call of 'lane' without a number of lanes, expected LANES = 2, 4, 8, 16"
    with pytest.raises(InputError, match=re.escape(expected)):
        parse_kernel(text, "f", "f.py")


def test_no_name_holds_a_wide_value_outside_of_its_loop() -> None:
    kernel("v += load_lanes(x, 4 * i)\ny[i] = sum_lanes(v)", before="v = 0")
    message = "found 'v' outside of the loop that sets it, where it differs between lanes, expected"
    with pytest.raises(InputError, match=message):
        kernel("v += load_lanes(x, 4 * i)", before="v = 0", after="return v")
    with pytest.raises(InputError, match=message):
        kernel("y[i] = sum_lanes(v)", before="v = load_lanes(x, 0)")


def test_iterations_that_hand_on_wide_values_leave_no_rest() -> None:
    summed = kernel("v += load_lanes(x, 4 * i)\ny[i] = sum_lanes(v)", before="v = 0").loops[0].graph
    with pytest.raises(InputError, match=r"must be a multiple of 2, because .* which no scalar can hold"):
        unroll_with_rest(summed, 2)
    alone = kernel("y[i] = sum_lanes(load_lanes(x, 4 * i))").loops[0].graph
    first, rest = unroll_with_rest(alone, 2)
    assert first.lanes == rest.lanes == 4


# Order of accesses


def order(body: str) -> list[tuple[str, str, int]]:
    graph = kernel(body).loops[0].graph
    return [
        (graph.by_id[e.source].op, graph.by_id[e.target].op, e.distance)
        for e in graph.edges
        if e.operand == "M"
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("store_lanes(x, 4 * i, p)\ny[i] = x[4 * i + 3]", [("store_lanes", "load", 0)]),
        ("store_lanes(x, 4 * i, p)\ny[i] = x[4 * i + 4]", [("load", "store_lanes", 1)]),
        ("store_lanes(x, 4 * i + 8, p)\ny[i] = x[4 * i + 1]", [("store_lanes", "load", 2)]),
        (
            "store_lanes(x, 4 * i, p)\ny[i] = max_lanes(load_lanes(x, 4 * i - 4))",
            [("store_lanes", "load_lanes", 1)],
        ),
        (
            "x[i] = p\ny[i] = sum_lanes(load_lanes(x, 4 * i + 4))",
            [("load_lanes", "store", 1), ("store", "load_lanes", 0)],
        ),
        ("x[4 * i] = p\nx[4 * i + 1] = p\nstore_lanes(x, 4 * i, i)", []),
    ],
)
def test_accesses_of_neighbours_meet_where_they_have_an_element_in_common(
    body: str, expected: list[tuple[str, str, int]]
) -> None:
    assert sorted(order(body)) == expected


def _statements(rng: random.Random) -> str:
    """Accesses of one array, single ones and of neighbours, some under conditions that are wide."""
    lines, names = ["v = lane() + i"], ["v", "p", "i"]
    for k in range(rng.randint(3, 8)):
        at = f"4 * i + {4 * rng.randrange(3)}"
        element = f"x[{rng.choice(('i', '4 * i', '3 * i'))} + {rng.randrange(9)}]"
        value = f"{rng.choice(names)} + {rng.randrange(99)}"
        lines.append(
            rng.choice(
                (
                    f"w{k} = load_lanes(x, {at})",
                    f"w{k} = {element}",
                    f"store_lanes(x, {at}, {value})",
                    f"{element} = {value}",
                    f"if {rng.choice(names)} & 1:\n    store_lanes(x, {at}, {value})",
                    f"if {rng.choice(names)} & 1:\n    {element} = {value}",
                )
            )
        )
        names += [f"w{k}"] if lines[-1].startswith("w") else []
    return "\n".join([*lines, *(f"y[i] = y[i] * 3 + max_lanes({name})" for name in names)])


class _InLanes:
    """Four lanes in NumPy, statement by statement: `where` is the condition of the statements inside."""

    def __init__(self, x: list[int], y: list[int]):
        self.arrays = {"x": np.array(x), "y": np.array(y)}

    def run(self, body: str, p: int, n: int) -> None:
        for i in range(n):
            known = {"p": np.full(4, p), "i": np.full(4, i)}
            functions = {"lane": lambda: np.arange(4), "max_lanes": lambda v: np.full(4, v.max())}
            where = np.full(4, True)
            for line in body.splitlines():
                outer = not line.startswith(" ")
                where = np.full(4, True) if outer else where
                self.statement(line.strip(), {**functions, **known}, known, where)
                if line.startswith("if"):
                    where = eval(line[3:-1], {}, known) != 0

    def statement(self, line: str, names: dict, known: dict, where: np.ndarray) -> None:
        if line.startswith("if"):
            return
        names |= {name: _Elements(array) for name, array in self.arrays.items()}
        names["load_lanes"] = lambda a, i: a.array[i[0] : i[0] + 4].copy()
        if line.startswith("store_lanes"):
            at, value = eval(line.removeprefix("store_lanes(x, ")[:-1].join("()"), {}, names)
            self.arrays["x"][at[0] : at[0] + 4][where] = value[where]
            return
        target, value = line.split(" = ")
        if "[" not in target:
            known[target] = eval(value, {}, names)
        elif where[0]:
            name, index = target[:-1].split("[")
            self.arrays[name][eval(index, {}, names)[0]] = eval(value, {}, names)[0]


class _Elements:
    """Single elements of an array are those of lane 0."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        return np.full(4, self.array[index[0]])


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_accesses_that_meet_keep_their_order(first: int) -> None:
    for seed in range(first, first + 40):
        rng = random.Random(seed)
        body = _statements(rng)
        x, y = [rng.randrange(99) for _ in range(64)], [0] * 64
        expected = _InLanes(x, y)
        expected.run(body, 5, 6)
        found = kernel(body)
        words = {"x": list(x), "y": list(y)}
        results = run(found, {name: np.array(w, np.int32) for name, w in words.items()}, {"p": 5}, 6)
        run_steps_overlapped(found.body, words, {"p": 5, "n": 6}, seed)
        for name, array in expected.arrays.items():
            assert results.arrays[name].tolist() == array.tolist(), body
            assert words[name] == array.tolist(), body
