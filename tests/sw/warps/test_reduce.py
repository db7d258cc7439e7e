"""The result of the reduction, against plainly computed graphs."""

import random

import networkx
import numpy as np
import pytest

from sw.warps.reduce import Reduction, reduce


def sample(seed: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Random edges and warps."""
    rng = random.Random(seed)
    count = rng.randint(2, 40)
    numbers = rng.sample(range(9), rng.randint(2, 6))
    warps = [rng.choice(numbers) for _ in range(count)]
    every = [(a, b) for b in range(count) for a in range(b) if warps[a] != warps[b]]
    return sorted(rng.sample(every, min(len(every), rng.randint(0, 90)))), warps


def control(warps: list[int]) -> list[tuple[int, int]]:
    last: dict[int, int] = {}
    found = []
    for n, warp in enumerate(warps):
        if warp in last:
            found.append((last[warp], n))
        last[warp] = n
    return found


def left(pairs: list[tuple[int, int]], warps: list[int], reduction: Reduction) -> list[tuple[int, int]]:
    array = np.array(pairs, np.int64).reshape(-1, 2)
    kept = reduce(array, np.array(warps, np.int64), reduction)
    return [pair for pair, keep in zip(pairs, kept.tolist(), strict=True) if keep]


def whole(pairs: list[tuple[int, int]], warps: list[int]) -> networkx.DiGraph:
    made = networkx.DiGraph()
    made.add_nodes_from(range(len(warps)))
    made.add_edges_from([*pairs, *control(warps)])
    return made


@pytest.mark.parametrize("seed", range(80))
def test_full_is_the_transitive_reduction(seed: int) -> None:
    pairs, warps = sample(seed)
    wanted = set(networkx.transitive_reduction(whole(pairs, warps)).edges)
    assert left(pairs, warps, Reduction.FULL) == [p for p in pairs if p in wanted]


@pytest.mark.parametrize("seed", range(80))
def test_obtained_is_what_reaches_the_instance_before_the_sink(seed: int) -> None:
    pairs, warps = sample(seed)
    graph = whole(pairs, warps)
    before = {b: a for a, b in control(warps)}
    wanted = [(x, y) for x, y in pairs if y not in before or not networkx.has_path(graph, x, before[y])]
    assert left(pairs, warps, Reduction.OBTAINED) == wanted


def test_of_several_sources_in_one_warp_full_keeps_the_last() -> None:
    pairs, warps = [(0, 3), (1, 3), (2, 3)], [0, 0, 0, 1]
    assert left(pairs, warps, Reduction.FULL) == [(2, 3)]
    assert left(pairs, warps, Reduction.OBTAINED) == pairs
