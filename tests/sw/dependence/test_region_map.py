"""The map from elements to chains against a table of elements."""

import random
from itertools import product

import pytest

from sw.dependence.cells import Box, Definition, Joiner, Top
from sw.dependence.query import Budget, seen
from sw.dependence.region_map import Leaf, Node, change, content, join, parts, put_all
from sw.dependence.uses import Use

Element = tuple[int, ...]
Table = dict[Element, frozenset[str]]


def _definition(label: str, box: Box) -> Definition:
    d = Definition(label, 0, (), (), "a", box, hull=box)
    d.exact = True
    return d


def _box(rng: random.Random, shape: tuple[int, ...]) -> Box:
    ends = [sorted(rng.sample(range(n + 1), 2)) for n in shape]
    return tuple((low, high) for low, high in ends)


def _elements(box: Box) -> list[Element]:
    return list(product(*(range(low, high) for low, high in box)))


def _grow(rng: random.Random, node: Node, table: Table, extents: Box, name: str) -> tuple[Node, Table]:
    """A few certain and possible writes."""
    table = dict(table)
    for n in range(rng.randint(1, 4)):
        box = _box(rng, tuple(high for _, high in extents))
        d = _definition(f"{name}{n}", box)
        certain = rng.random() < 0.4
        node = change(node, extents, box, Leaf(Top(d)) if certain else d)
        for element in _elements(box):
            table[element] = frozenset({d.label}) if certain else table[element] | {d.label}
    return node, table


@pytest.mark.parametrize("shape", [(32,), (8, 8)])
def test_reads_without_steps_see_all_that_is_alive_in_their_region(shape: tuple[int, ...]) -> None:
    extents = tuple((0, n) for n in shape)
    for seed in range(60):
        rng = random.Random(seed)
        node: Node = Leaf(Top(_definition("entry", extents)))
        table: Table = {element: frozenset({"entry"}) for element in _elements(extents)}
        for step in range(6):
            first, seen_first = _grow(rng, node, table, extents, f"p{step}.")
            second, seen_second = _grow(rng, node, table, extents, f"q{step}.")
            node = join(first, second, Joiner(None))
            table = {element: seen_first[element] | seen_second[element] for element in table}
            for _ in range(4):
                box = _box(rng, shape)
                wanted = frozenset().union(*(table[element] for element in _elements(box)))
                found = seen(node, extents, Use(box, box, {}), Budget(0), areas=False)
                assert {d.label for d in found} == wanted
        assert {d.label for d in content(node)[0]} == frozenset().union(*table.values())


def test_many_intervals_are_put_and_found_at_once() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        extents = ((0, 64),)
        entry = _definition("entry", extents)
        table: Table = {(n,): frozenset({"entry"}) for n in range(64)}
        node, table = _grow(rng, Leaf(Top(entry)), table, extents, "before")
        ends = sorted(rng.sample(range(65), 2 * rng.randint(1, 12)))
        starts, stops = ends[::2], ends[1::2]
        leaves = [
            Leaf(Top(_definition(rng.choice("xyz"), ((a, b),)))) for a, b in zip(starts, stops, strict=True)
        ]
        after = put_all(node, 0, 64, starts, stops, 0, len(starts), leaves)
        for start, stop, leaf in zip(starts, stops, leaves, strict=True):
            assert isinstance(leaf.cell, Top)
            for n in range(start, stop):
                table[n,] = frozenset({leaf.cell.definition.label})
        asked = sorted(rng.sample(range(65), 2 * rng.randint(1, 12)))
        lows, highs, numbers, definitions = parts(after, extents[0], asked[::2], asked[1::2])
        assert lows == sorted(lows)
        covered: set[int] = set()
        for low, high, number in zip(lows, highs, numbers, strict=True):
            covered.update(range(low, high))
            if number:
                assert {table[n,] for n in range(low, high)} == {frozenset({definitions[number - 1].label})}
        wanted = {n for a, b in zip(asked[::2], asked[1::2], strict=True) for n in range(a, b)}
        assert wanted <= covered
