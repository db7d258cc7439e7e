"""Launches of kernels, executed by the graph interpreter, produce what the kernel computes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import pytest

from hw.errors import InputError
from sw.cgra.launch_plan import LaunchPlan, PlannedLaunch, plan
from sw.dfg.interpret import run_graph
from sw.dfg.python import from_function, parse_kernel
from sw.ir.expression import Const, Expr, evaluate
from sw.ir.walk import executions
from tests.sw.dfg.reference import CASES, KERNELS
from tests.sw.dfg.running import run
from tests.sw.dfg.test_random_functions import draw


def execute(
    made: LaunchPlan, arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, list[int]], tuple[int, ...]]:
    """What the launches of a plan leave: arrays, and the values that the kernel returns."""
    words = {name: array.tolist() for name, array in arrays.items()}
    # What nothing has written must not count.
    words[made.words] = [0x5A5A5A5A] * made.word_count
    values: dict[str, int] = {}
    for launch, _ in executions(made.body, values):
        assert isinstance(launch, PlannedLaunch)
        given = {name: evaluate(e, values) for name, e in launch.operands if isinstance(e, Expr)}
        assert run_graph(launch.graph, words, given, given["iterations"]) == {}
    results = tuple(r.value if isinstance(r, Const) else words[made.words][r] for r in made.results)
    return {name: words[name] for name in arrays}, results


def check(text_or_kernel, arrays, scalars, n: int, times: int = 1) -> LaunchPlan:
    kernel = text_or_kernel
    expected = run(kernel, arrays, scalars, n)
    given = dict(scalars)
    if kernel.iterations is not None:
        given[kernel.iterations] = n
    made = plan(kernel, given, times)
    left, results = execute(made, arrays)
    assert results == expected.scalars
    for name, array in expected.arrays.items():
        assert left[name] == array.tolist(), name
    return made


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 6, 17])
@pytest.mark.parametrize("name", CASES)
def test_launches_leave_what_the_kernel_means(name: str, n: int, times: int) -> None:
    arrays, scalars = CASES[name].arguments(np.random.default_rng(zlib.crc32(name.encode()) + n), n)
    check(from_function(KERNELS, name), arrays, scalars, n, times)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_launches_of_random_functions_leave_what_they_mean(first: int) -> None:
    for seed in range(first, first + 40):
        drawn = draw(seed)
        check(drawn.kernel, drawn.arrays, drawn.scalars, drawn.n, 1 + seed % 3)


#: Loops on the host: what they carry, counts that change, code behind loops that may not be part of them.
NESTS = {
    "carried by the grid": """
def f(n, m, x, y):
    total = 5
    for r in range(n):
        for c in range(m):
            total = total * 3 + x[r + c]
        y[r] = total
    return total
""",
    "carried by the host": """
def f(n, m, x, y):
    offset = 3
    step = 1
    for r in range(n):
        for c in range(m):
            y[offset + c] = x[c] + r
        offset, step = offset + step, offset
    return offset, step
""",
    "a triangle": """
def f(n, m, x, y):
    s = 0
    for r in range(n):
        for c in range(r):
            s += x[c]
        y[r] = s
    return s
""",
    "an element behind that is read": """
def f(n, m, x, y):
    for r in range(n):
        s = 0
        for c in range(m):
            s += x[c]
        y[r] = y[r] + s
""",
    "an element behind at a place that the loop finds": """
def f(n, m, x, y):
    for r in range(n):
        best = -1000
        where = 0
        for c in range(m):
            best = max(best, x[c + r])
            where = c if x[c + r] == best else where
        y[where] = best
""",
    "a predicate behind": """
def f(n, m, x, y):
    for r in range(n):
        s = 0
        for c in range(m):
            s += x[c + r]
        if s > 0:
            y[r] = s
""",
    "a choice behind": """
def f(n, m, x, y):
    last = 0
    for r in range(n):
        s = 0
        for c in range(m):
            s += x[c + r]
        y[r] = s if s > 0 else x[r]
        last = s + 1
    return last
""",
    "three deep": """
def f(n, m, x, y):
    t = 0
    for r in range(n):
        for c in range(m):
            s = 0
            for k in range(c):
                s += x[k + r]
            y[c] = s
            t += s
    return t, m
""",
    "two loops behind each other": """
def f(n, m, x, y):
    for r in range(n):
        a = 1
        for c in range(m):
            a = a + x[c]
        b = a
        for c in range(m):
            b = b ^ (x[c] + a)
        y[r] = b
""",
}


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("text", NESTS.values(), ids=NESTS)
def test_loops_on_the_host_leave_what_the_kernel_means(text: str, times: int) -> None:
    kernel, rng = parse_kernel(text, "f"), np.random.default_rng(3)
    for n, m in ((0, 3), (1, 0), (1, 1), (4, 5), (5, 4), (3, -2)):
        arrays = {name: rng.integers(-99, 99, 24).astype(np.int32) for name in "xy"}
        given = {"m": m} if "m" in kernel.scalars else {}
        check(kernel, arrays, given, n, times)


def configurations(text: str, **scalars: int) -> int:
    """How many graphs the launches have."""
    kernel = parse_kernel(text, "f")
    return len({step.graph for step in plan(kernel, scalars).launches})


def test_a_store_behind_a_loop_becomes_part_of_it() -> None:
    product = """
def f(n, m, a, x, y):
    for r in range(n):
        s = 0
        for c in range(m):
            s += a[r * m + c] * x[c]
        y[r] = s
"""
    assert configurations(product, n=4, m=3) == 1
    # A loop that may not run stores nothing.
    assert configurations(product, n=4, m=0) > 1
    assert configurations(NESTS["a triangle"], n=4, m=0) > 1
    assert configurations(NESTS["an element behind that is read"], n=4, m=3) > 1
    assert configurations(NESTS["an element behind at a place that the loop finds"], n=4, m=3) > 1
    assert configurations(NESTS["a predicate behind"], n=4, m=3) > 1


def test_a_count_that_the_grid_computes_is_refused() -> None:
    kernel = parse_kernel(
        "def f(n, x):\n    s = 0\n    for i in range(n):\n        s += x[i]\n    t = 0\n"
        "    for j in range(s):\n        t += x[j]\n    return t\n",
        "f",
    )
    with pytest.raises(InputError, match="iterations s must be known to a warp before the loop"):
        plan(kernel, {"n": 3})


def test_more_scalars_than_a_launch_has_are_refused() -> None:
    names = [f"c{i}" for i in range(15)]
    terms = " + ".join(f"{c} * x[i + {i}]" for i, c in enumerate(names))
    kernel = parse_kernel(
        f"def f(n, x, y, {', '.join(names)}):\n    for i in range(n):\n        y[i] = {terms}\n", "f"
    )
    with pytest.raises(InputError, match=r"scalars of one launch \(f.1\) must be at most 14, not 15: c0, c1"):
        plan(kernel, {"n": 3} | dict.fromkeys(names, 2))
