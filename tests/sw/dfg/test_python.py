"""The supported subset of Python, its translation, and the messages for everything else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hw.errors import InputError
from sw.dfg.graph import Graph
from sw.dfg.python import from_function, parse_kernel
from tests.sw.dfg.running import run


def loop(body: str, parameters: str = "n, x, y, p") -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"def f({parameters}):\n    s = 0\n    for i in range(n):\n{lines}\n    return s\n"


def graph(body: str, parameters: str = "n, x, y, p") -> Graph:
    (launch,) = parse_kernel(loop(body, parameters), "f").loops
    return launch.graph


def operations(found: Graph) -> Counter[str]:
    return Counter(node.op for node in found.nodes)


def order(found: Graph) -> list[tuple[str, str, int]]:
    return [
        (found.by_id[e.source].op, found.by_id[e.target].op, e.distance)
        for e in found.edges
        if e.operand == "M"
    ]


def test_equal_expressions_are_one_and_constants_are_folded() -> None:
    found = operations(graph("y[i] = (p + i) * (i + p) + (2 * 3 - 6) + x[i] * 1 + x[i] * 0"))
    assert found == {"add": 3, "mul": 1, "load": 1, "store": 1, "const": 1}


def test_products_and_divisions_by_powers_of_two_are_shifts_and_masks() -> None:
    found = operations(graph("y[i] = x[i] * 8 + x[i] // 4 + x[i] % 16"))
    assert (found["shl"], found["shr"], found["and"], found["mul"]) == (1, 1, 1, 0)


def test_dead_code_is_left_out() -> None:
    found = operations(graph("t = x[i] * p\ny[i] = i"))
    assert found == {"add": 1, "store": 1}


def test_an_element_that_was_stored_is_not_loaded() -> None:
    found = graph("y[i] = p\ns = s + y[i]\ny[i + 1] = s + y[i]")
    assert operations(found)["load"] == 0


def test_a_store_that_is_overwritten_is_left_out() -> None:
    found = graph("for k in range(9):\n    y[i] += x[i + k]")
    assert operations(found)["store"] == 1
    assert operations(found)["load"] == 10


def test_a_load_between_keeps_the_store() -> None:
    found = graph("y[i] = 1\ns += y[p]\ny[i] = 2")
    assert operations(found)["store"] == 2
    assert ("store", "load", 0) in order(found)
    assert ("load", "store", 0) in order(found)


def test_a_condition_becomes_selects_and_predicated_stores() -> None:
    found = graph("if x[i] > p:\n    y[i] = 1\n    s += 1\nelse:\n    y[i] = 2")
    assert operations(found)["select"] == 1
    predicates = [e for e in found.edges if e.operand == "P"]
    assert [(found.by_id[e.target].op, e.negated) for e in predicates] == [("store", False), ("store", True)]
    assert all(found.by_id[e.source].op == "gt" for e in predicates)


def test_only_the_chosen_side_accesses_memory() -> None:
    text = loop("s += x[i - 1] if i > 0 and x[i] > 2 else p")
    kernel = parse_kernel(text, "f")
    array = np.array([9, 1, 7, 4], dtype=np.int32)
    assert run(kernel, {"x": array}, {"p": 100, "y": 0}, 4).scalars == (100 + 100 + 1 + 7,)
    assert sum(e.operand == "P" for e in kernel.loops[0].graph.edges) == 2


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y[i] = x[i]", []),
        ("x[i] = x[i + 1]", []),
        ("x[i] = x[i] + 1", []),
        ("x[i + 2] = x[i]", [("store", "load", 2)]),
        ("x[2 * i + 1] = x[2 * i]", []),
        ("x[2 * i + 4] = x[2 * i]", [("store", "load", 2)]),
        ("x[i + p] = x[i + p + 3]", []),
        ("x[i + p] = x[i + 3]", [("store", "load", 1)]),
        ("x[p] = x[p + 1]", []),
        ("x[p] += i", [("store", "load", 1)]),
        ("x[x[i]] = p", [("store", "load", 1)]),
        ("x[i] = x[i - 1]", [("store", "load", 1)]),
        ("x[i + 1] = i\nx[i] = p", [("store", "store", 1)]),
        ("x[y[i]] = i\nx[y[i + 1]] = p", [("store", "store", 1), ("store", "store", 0)]),
    ],
)
def test_accesses_are_ordered_as_far_as_they_may_meet(body: str, expected: list) -> None:
    assert sorted(order(graph(body))) == sorted(expected)


def test_a_loop_variable_is_a_recurrence_of_one_step() -> None:
    found = graph("y[i] = i")
    (edge,) = [e for e in found.edges if e.distance]
    assert (edge.source, edge.operand, edge.initial) == (edge.target, "I1", (-1,))


def test_delayed_names_reach_further_back() -> None:
    found = graph("y[i] = s\ns = t\nt = x[i]".replace("t", "t"), "n, x, y, t")
    reached = {(e.distance, e.initial) for e in found.edges if e.distance > 1}
    assert reached == {(2, (0, "t"))}


def test_names_that_swap_need_a_copy() -> None:
    assert operations(graph("s, p = p, s\ny[i] = s"))["mov"] == 1


def test_tables_and_numbers_outside_of_the_function_are_constants() -> None:
    text = "SHIFT = 3\nTABLE = (1, 2 << SHIFT, -5)\n" + loop("s += TABLE[x[i]] + TABLE[1] + SHIFT")
    kernel = parse_kernel(text, "f")
    assert kernel.loops[0].graph.tables == (("TABLE", (1, 16, -5)),)
    x = np.array([0, 2], dtype=np.int32)
    assert run(kernel, {"x": x}, {"y": 0, "p": 0}, 2).scalars == (1 - 5 + 2 * 19,)
    with pytest.raises(
        InputError, match=r"node \d+, iteration 0: table of TABLE\[3\]: the index must be 0 to 2"
    ):
        run(kernel, {"x": x + 3}, {"y": 0, "p": 0}, 1)


def test_arithmetic_wraps() -> None:
    kernel = parse_kernel(loop("s = (x[i] + 1) * x[i]"), "f")
    assert run(kernel, {"x": np.array([2**31 - 1], dtype=np.int32)}, {"y": 0, "p": 0}, 1).scalars == (
        -(2**31),
    )


def test_results_may_be_computed_after_the_loop() -> None:
    text = "def f(n, p):\n    s = 1\n    for i in range(n):\n        s *= 3\n    return s + p, 7, p, s\n"
    kernel = parse_kernel(text, "f")
    assert run(kernel, {}, {"p": 5}, 4).scalars == (86, 7, 5, 81)
    assert run(kernel, {}, {"p": 5}, 0).scalars == (6, 7, 5, 1)
    assert [launch.on_host for launch in kernel.launches] == [False, True]


def test_the_text_is_not_executed(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text("raise SystemExit\n\n" + loop("s += i"))
    assert run(from_function(path, "f"), {}, {"x": 0, "y": 0, "p": 0}, 5).scalars == (10,)


def test_triangular_loops_run_on_the_host() -> None:
    text = loop("for c in range(i):\n    s += c", "n")
    kernel = parse_kernel(text, "f")
    assert kernel.loops[0].count == "i"
    assert run(kernel, {}, {}, 6).scalars == (20,)


ERRORS = [
    ("while s:\n    s = 0", "3:9", "found while s:, expected an assignment"),
    ("break", "3:9", "found break, expected an assignment"),
    ("s = x", "3:13", "the array 'x' as a whole"),
    ("s = z", "3:13", "found unknown name 'z'"),
    ("s = x[0]\nx = 3", "4:9", "an assignment to the array 'x'"),
    ("s = t\nt = x[i]", "3:13", "'t', read before it is set, in the first iteration"),
    ("s = x[i, 0]", "3:13", "expected one index"),
    ("s = x[1:2]", "3:13", "expected one index"),
    ("s = x[-1]", "3:13", "found index -1, expected at least 0"),
    ("s = x[i] / 2", "3:13", "found x[i] / 2, expected one of"),
    ("s = i // 3", "3:13", "expected a divisor that is a power of two"),
    ("s = i // p", "3:13", "found a division: i // p"),
    ("s = i ** 2", "3:13", "found i ** 2"),
    ("s = 1.5", "3:13", "found 1.5, expected an integer"),
    ("s = 3000000000", "3:13", "found 3000000000, expected a number of 32 bits"),
    ("s = print(i)", "3:13", "found a call of 'print', expected one of min, max"),
    ("s = min(i)", "3:13", "found 1 arguments of min, expected at least 2"),
    ("s = clz(i, 2)", "3:13", "found 2 arguments of clz, expected 1"),
    ("s = i in (1, 2)", "3:13", "expected < <= > >= == !="),
    ("s, t = 1", "3:9", "expected a name or an element"),
    ("s, p = 1, 2, 3", "3:16", "found 3 values, expected 2"),
    ("s.t = 1", "3:9", "found s.t, expected a name or an element"),
    ("for k in range(9, 1, 0):\n    s = 1", "3:30", "found a step of 0"),
    (
        "for k in range(i):\n    s = 1\n    for j in range(99999):\n        pass",
        "5:13",
        "found 99999 iterations",
    ),
    ("for k in x:\n    s = 1", "3:18", "expected range()"),
    ("for k in range(99999):\n    s += k", "3:9", "found 99999 iterations"),
    (
        "for k in range(9):\n    for j in range(2999):\n        s ^= x[k + j]",
        "5:17",
        "more than 4096 operations",
    ),
    ("return s", "3:9", "found return s, expected an assignment"),
    ("if i > 2:\n    t = 1\ns = t", "5:13", "'t', set on one side of an `if` only"),
    ("if i:\n    for k in range(p):\n        s = 1", "4:13", "found a loop inside of an `if`"),
    ("s = (lambda: 1)()", "3:13", "found (lambda: 1)()"),
    ("i = 3", "2:5", "a loop that sets its variable 'i'"),
    ("min = 3", "3:9", "an assignment to the function 'min'"),
    ("s = s[i]", "3:9", "an assignment to the array 's'"),
]


@pytest.mark.parametrize(("body", "place", "message"), ERRORS)
def test_what_is_not_accepted_is_refused_with_its_place(body: str, place: str, message: str) -> None:
    text = loop(body).replace("def f(n, x, y, p):\n    s = 0\n", "def f(n, x, y, p, s):\n") + "    x[0] = 0\n"
    text = text.replace("    return s\n    x[0] = 0\n", "    x[0] = 0\n    return s\n")
    with pytest.raises(InputError) as error:
        parse_kernel(text, "f", "k.py")
    assert str(error.value).startswith(f"k.py:{place}")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:", "k.py:1:7: found a syntax error"),
        ("x = 1", "k.py:1:1: found no function 'f', expected a function of the file: one, there is none"),
        ("def g(): pass", "expected a function of the file: g"),
        ("def f(n):\n    return n", "k.py:1:1: found no loop in 'f', expected a loop `for i in range(n):`"),
        ("def f(*n):\n    pass", "k.py:1:8: found the parameter *n"),
        ("def f(n=1):\n    pass", "found a default value"),
        ("def f(n):\n    for i in range(n + 1):\n        pass", "k.py:2:14: found range(n + 1)"),
        ("def f(n):\n    for i in range(1, n):\n        pass", "range() of a parameter or a number"),
        (
            "def f(n):\n    for i in range(n):\n        for j in range(n - 1):\n            pass",
            "3:24: found n - 1, expected a number; or range() of only a parameter, or of only a scalar that",
        ),
        ("def f(n):\n    for i, j in range(n):\n        pass", "found (i, j)"),
        ("def f(n):\n    for i in range(n):\n        pass\n    else:\n        pass", "`for` with `else`"),
        ("def f(n):\n    for i in range(m):\n        pass", "found unknown name 'm'"),
        ("def f(n):\n    for i in range(n):\n        t = i\n    return t", "set in a loop that may not run"),
        (
            "def f(n):\n    if n:\n        for i in range(n):\n            n = 1\n"
            "    for j in range(n):\n        n = 2",
            "k.py:3:9: found a loop inside of an `if`",
        ),
        (
            "N = N + 1\ndef f(n):\n    s = 0\n    for i in range(n):\n        s += N\n    return s",
            "set to itself",
        ),
        (
            "def f(n):\n    s = 0\n    for i in range(n):\n        s = "
            + "(" * 150
            + "s"
            + " + 1)" * 150
            + "\n    return s",
            "nesting deeper than 100",
        ),
        ("def f(n):\n    for i in range(n):\n        é = ü", "k.py:3:13: found unknown name 'ü'"),
    ],
)
def test_a_text_that_is_no_kernel_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_kernel(text, "f", "k.py")
    assert message in str(error.value)


def test_iterations_that_do_not_fit_are_refused() -> None:
    kernel = parse_kernel(loop("s += x[i] * p", "n, x, p"), "f")
    x = np.zeros(3, dtype=np.int32)
    with pytest.raises(InputError, match=r"iteration 3: load of x\[3\]: the index must be 0 to 2"):
        run(kernel, {"x": x}, {"p": 1}, 4)
    with pytest.raises(InputError, match=r"iterations must be at most 16777215"):
        run(kernel, {"x": x}, {"p": 1}, 1 << 24)
    assert run(kernel, {"x": x}, {"p": 1}, -3).scalars == (0,)
