"""The search for a correspondence: it finds one exactly where there is one."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from sw.cgra.match import Before, Shape, match


def corresponds(
    one: Shape, other: Shape, befores: list[Before], steps: list[int], to: tuple[int, ...]
) -> bool:
    """The definition: labels, edges and order are kept by vertex v of one as `to[v]` of the other."""
    return (
        all(one.labels[v] == other.labels[w] for v, w in enumerate(to))
        and Counter((to[s], to[t], label) for s, t, label in one.edges) == Counter(other.edges)
        and all(steps[to[b.source]] < steps[to[b.target]] + b.slack for b in befores)
    )


def permuted(shape: Shape, order: list[int]) -> Shape:
    """The same graph, in which vertex v has the number `order[v]`."""
    labels = [shape.labels[order.index(v)] for v in range(len(order))]
    edges = [(order[s], order[t], label) for s, t, label in shape.edges]
    return Shape(labels, edges[::-1])


def drawn(rng: random.Random) -> tuple[Shape, Shape, list[Before], list[int]]:
    """Two small graphs that often correspond, with an order that often rules some correspondences out."""
    count = rng.randint(1, 5)
    labels = [rng.randrange(1 + (rng.random() < 0.3)) for _ in range(count)]
    density = rng.choice((0, 1, 2))
    edges = [
        (rng.randrange(count), rng.randrange(count), rng.choice("ab")) for _ in range(density * count // 2)
    ]
    one = Shape(labels, edges)
    other = permuted(one, rng.sample(range(count), count))
    if edges and rng.random() < 0.2:
        source, target, label = other.edges[0]
        other = Shape(other.labels, [(target, source, label), *other.edges[1:]])
    befores = [
        Before(rng.randrange(count), rng.randrange(count), rng.choice((0, 0, 2, 4)))
        for _ in range(rng.randrange(4))
    ]
    return one, other, befores, [rng.randrange(6) for _ in range(count)]


def test_a_correspondence_is_found_exactly_where_there_is_one():
    rng = random.Random(3)
    there = 0
    for _ in range(1500):
        one, other, befores, steps = drawn(rng)
        found = match(one, other, befores, steps)
        every = itertools.permutations(range(len(one.labels)))
        right = [to for to in every if corresponds(one, other, befores, steps, to)]
        if found is None:
            assert not right, (one, other, befores, steps)
        else:
            assert tuple(found[v] for v in range(len(one.labels))) in right
            there += 1
    assert 300 < there < 1200


def copies(count: int) -> Shape:
    """Equal parts of three vertices each: a read, what is made of it, a write."""
    labels = ["read", "work", "write"] * count
    edges = [(3 * k + i, 3 * k + i + 1, "a") for k in range(count) for i in range(2)]
    return Shape(labels, edges)


@pytest.mark.parametrize("seed", range(3))
def test_many_equal_parts_are_told_apart_by_order(seed):
    # 30 parts have 30! correspondences without the order, and one with it.
    rng, count = random.Random(seed), 30
    one = copies(count)
    chain = rng.sample(range(count), count)
    befores = [Before(3 * a + 2, 3 * b, 0) for a, b in itertools.pairwise(chain)]
    order = rng.sample(range(3 * count), 3 * count)
    steps = [0] * (3 * count)
    for place, part in enumerate(chain):
        for i in range(3):
            steps[order[3 * part + i]] = 3 * place + i
    other = permuted(one, order)
    assert match(one, other, befores, steps) == dict(enumerate(order))
    # The last write before the first read: in no correspondence.
    closed = [*befores, Before(3 * chain[-1] + 2, 3 * chain[0], 0)]
    assert match(one, other, closed, steps) is None
    # One iteration later it is.
    later = [*befores, Before(3 * chain[-1] + 2, 3 * chain[0], 3 * count)]
    assert match(one, other, later, steps) == dict(enumerate(order))


@pytest.mark.parametrize("seed", range(30))
def test_equal_parts_in_a_random_order_are_found(seed):
    # Parts overlap, and the order rules out most of the correspondences, not all: pairs must be given up.
    rng, count = random.Random(seed), 12
    one = copies(count)
    order = rng.sample(range(3 * count), 3 * count)
    own: list[int] = []
    for _ in range(count):
        start = rng.randrange(rng.choice((count // 2, count, 3 * count)))
        own += itertools.accumulate((start, rng.randint(1, 4), rng.randint(1, 4)))
    befores = []
    for _ in range(rng.choice((1, 3)) * count):
        source, target = rng.randrange(3 * count), rng.randrange(3 * count)
        slack = next(4 * d for d in range(3 * count) if own[source] < own[target] + 4 * d)
        befores.append(Before(source, target, slack))
    steps = [own[order.index(v)] for v in range(3 * count)]
    other = permuted(one, order)
    found = match(one, other, befores, steps)
    assert found is not None
    assert corresponds(one, other, befores, steps, tuple(found[v] for v in range(3 * count)))


def test_graphs_that_colours_do_not_tell_apart():
    def cycles(*lengths: int) -> Shape:
        edges, start = [], 0
        for length in lengths:
            edges += [(start + i, start + (i + 1) % length, "a") for i in range(length)]
            start += length
        return Shape([0] * start, edges)

    assert match(cycles(3, 3), cycles(6)) is None
    assert match(cycles(3, 4, 5), cycles(4, 4, 4)) is None
    found = match(cycles(3, 4, 5), cycles(5, 3, 4))
    assert found is not None
    assert sorted(found[v] for v in range(3)) == [5, 6, 7]


def test_an_edge_more_or_another_label_is_refused():
    one = copies(3)
    assert match(one, one) is not None
    assert match(one, Shape(one.labels, [*one.edges, one.edges[0]])) is None
    assert match(one, Shape([*one.labels[:-1], "read"], one.edges)) is None
    source, target, _ = one.edges[0]
    assert match(one, Shape(one.labels, [(source, target, "b"), *one.edges[1:]])) is None
