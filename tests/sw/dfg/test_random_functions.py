"""Random functions have Python's meaning, and keep it through every transformation and schedule."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from sw.dfg.json import format_graph, parse_graph
from sw.dfg.kernel import Kernel
from sw.dfg.python import parse_kernel
from sw.dfg.transform import fuse_constants
from tests.sw.dfg.random_functions import MOST, SIZE, Writer, run_python
from tests.sw.dfg.running import run
from tests.sw.dfg.scheduled import run_steps_overlapped
from tests.sw.dfg.test_kernels import mapped

Meaning = tuple[dict[str, list[int]], tuple[int, ...]]


@dataclass(frozen=True)
class Drawn:
    """A random function, arguments for it, and what Python makes of them."""

    text: str
    kernel: Kernel
    arrays: dict[str, np.ndarray]
    scalars: dict[str, int]
    n: int
    expected: Meaning

    def meaning(self, kernel: Kernel) -> Meaning:
        """What the interpreter makes of the same arguments."""
        results = run(kernel, self.arrays, self.scalars, self.n)
        return {name: a.tolist() for name, a in results.arrays.items()}, results.scalars


def draw(seed: int) -> Drawn:
    rng = random.Random(seed)
    text = Writer(rng).function()
    kernel = parse_kernel(text, "f")
    n = rng.choice((0, 1, 2, MOST))
    lists = {x: [rng.choice((rng.randint(-9, 9), rng.getrandbits(31))) for _ in range(SIZE)] for x in "ab"}
    scalars = {"p": rng.randint(-9, 9), "q": -rng.getrandbits(31), "m": rng.choice((0, 1, 4))}
    given = {a.name: np.array(lists[a.name], dtype=np.int32) for a in kernel.arrays}
    # An array that no statement uses is a scalar like any other parameter.
    known = {s: scalars.get(s, 0) for s in kernel.scalars}
    arguments = {"n": n, **scalars} | {x: list(v) for x, v in lists.items()}
    returned = run_python(text, arguments)
    return Drawn(text, kernel, given, known, n, ({x: arguments[x] for x in given}, tuple(returned)))


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_a_function_means_what_python_means(first: int) -> None:
    for seed in range(first, first + 40):
        drawn = draw(seed)
        assert drawn.meaning(drawn.kernel) == drawn.expected, drawn.text


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_fused_it_means_the_same(first: int) -> None:
    for seed in range(first, first + 20):
        drawn = draw(seed)
        fused = replace(drawn.kernel, body=mapped(drawn.kernel.body, fuse_constants))
        assert drawn.meaning(fused) == drawn.expected, drawn.text
        again = replace(drawn.kernel, body=mapped(drawn.kernel.body, lambda g: parse_graph(format_graph(g))))
        assert again == drawn.kernel


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_overlapped_by_a_schedule_it_means_the_same(first: int) -> None:
    for seed in range(first, first + 30):
        drawn = draw(seed)
        kernel = drawn.kernel
        words = {name: array.tolist() for name, array in drawn.arrays.items()}
        scalars = dict(drawn.scalars) | ({kernel.iterations: drawn.n} if kernel.iterations else {})
        run_steps_overlapped(kernel.body, words, scalars, seed)
        results = tuple(r if isinstance(r, int) else scalars[r] for r in kernel.results)
        assert (words, results) == drawn.expected, drawn.text
