"""Which vertices of two labelled graphs correspond: colours are refined until they tell vertices apart.

Vertices start with the colour of their label; in every round the colours of neighbours, with the labels of
the edges between, make a new one (B. Weisfeiler and A. Leman, 1968). Where vertices keep one colour, one of
each graph is made a pair, and the rest follows; a pair that leads nowhere is given up for the next. What must
come before what takes pairs away before one is chosen: what is left of an end leaves less of the other end,
and of the neighbours (arc consistency; A. K. Mackworth, 1977).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

#: Pairs that a search may give up; one that gives up none always ends.
MOST = 2_000


@dataclass(frozen=True)
class Before:
    """In a correspondence, the step of the source is less than that of the target and `slack`."""

    source: int
    target: int
    slack: int


@dataclass(frozen=True)
class Shape:
    """A labelled graph: a label per vertex; edges with source, target and label."""

    labels: Sequence[Hashable]
    edges: Sequence[tuple[int, int, Hashable]]

    @cached_property
    def around(self) -> list[list[tuple[bool, Hashable, int]]]:
        """By vertex: its edges, whether they leave it, their label, the other end."""
        found: list[list[tuple[bool, Hashable, int]]] = [[] for _ in self.labels]
        for source, target, label in self.edges:
            found[source].append((True, label, target))
            found[target].append((False, label, source))
        return found


Colours = list[int]
#: Colours of both graphs.
Pair = tuple[Colours, Colours]


class _Refiner:
    """Colours that mean the same in both graphs."""

    def __init__(self, one: Shape, other: Shape):
        self.shapes = one, other
        labels: dict[Hashable, int] = {}
        # Numbers for labels of edges: they can be sorted.
        self.around = [
            [
                [(leaves, labels.setdefault(label, len(labels)), end) for leaves, label, end in edges]
                for edges in shape.around
            ]
            for shape in self.shapes
        ]

    def start(self) -> Pair:
        """Colours by labels."""
        numbers: dict[Hashable, int] = {}
        first, second = (
            [numbers.setdefault(label, len(numbers)) for label in shape.labels] for shape in self.shapes
        )
        return first, second

    def rounds_of(self, colours: Pair) -> Iterator[Pair]:
        """Colours after every round until they tell no more vertices of one graph apart.

        The last round is one that did not: it still tells the two graphs apart.
        """
        stable = False
        yield colours
        while not stable:
            numbers: dict[Hashable, int] = {}
            following = self._round(0, colours[0], numbers), self._round(1, colours[1], numbers)
            stable = all(len(set(new)) == len(set(old)) for new, old in zip(following, colours, strict=True))
            colours = following
            yield colours

    def _round(self, which: int, colours: Colours, numbers: dict[Hashable, int]) -> Colours:
        found = []
        for own, around in zip(colours, self.around[which], strict=True):
            near = sorted((leaves, label, colours[end]) for leaves, label, end in around)
            found.append(numbers.setdefault((own, tuple(near)), len(numbers)))
        return found

    def refined(self, colours: Pair) -> Pair | None:
        """Colours that no round tells apart further; None where the two graphs differ."""
        for last in self.rounds_of(colours):
            # Colours that are not there as often in both will never agree again.
            if Counter(last[0]) != Counter(last[1]):
                return None
        return last


#: By vertex of the first graph: what may correspond to it.
Domains = list[set[int]]


class _Order:
    """What must come before what, and the steps of the second graph's vertices."""

    def __init__(self, one: Shape, other: Shape, befores: Sequence[Before], steps: Sequence[int]):
        self.one, self.befores, self.steps = one, befores, steps
        self.touching: dict[int, list[Before]] = defaultdict(list)
        for before in befores:
            self.touching[before.source].append(before)
            self.touching[before.target].append(before)
        self.near: list[dict[tuple[bool, Hashable], set[int]]] = [defaultdict(set) for _ in other.labels]
        for vertex, around in enumerate(other.around):
            for leaves, label, end in around:
                self.near[vertex][leaves, label].add(end)

    def narrow(self, domains: Domains) -> bool:
        """Takes away what no correspondence has; whether something is left for every vertex."""
        changed = set(self.touching)
        while changed:
            vertex = changed.pop()
            own = domains[vertex]
            for before in self.touching.get(vertex, ()):
                if not self._kept(domains, changed, *self._after(before, vertex, domains)):
                    return False
            for leaves, label, end in self.one.around[vertex]:
                if len(domains[end]) > 1:
                    allowed = {w for mine in own for w in self.near[mine].get((leaves, label), ())}
                    if not self._kept(domains, changed, end, domains[end] & allowed):
                        return False
        return True

    def _after(self, before: Before, vertex: int, domains: Domains) -> tuple[int, set[int]]:
        """The other end of an order, and what it may be."""
        if vertex == before.source:
            first = min(self.steps[w] for w in domains[vertex])
            end = before.target
            return end, {w for w in domains[end] if first < self.steps[w] + before.slack}
        last = max(self.steps[w] for w in domains[vertex])
        end = before.source
        return end, {w for w in domains[end] if self.steps[w] < last + before.slack}

    @staticmethod
    def _kept(domains: Domains, changed: set[int], vertex: int, kept: set[int]) -> bool:
        if len(kept) < len(domains[vertex]):
            domains[vertex] = kept
            changed.add(vertex)
        return bool(kept)

    def keeps(self, pairs: dict[int, int]) -> bool:
        """Whether a correspondence has the order."""
        return all(self.steps[pairs[b.source]] < self.steps[pairs[b.target]] + b.slack for b in self.befores)

    def key(self, vertex: int) -> int:
        """Candidates are tried by their steps."""
        return self.steps[vertex] if vertex < len(self.steps) else 0


def match(
    one: Shape, other: Shape, befores: Sequence[Before] = (), steps: Sequence[int] = ()
) -> dict[int, int] | None:
    """A correspondence of all vertices that keeps labels, edges and order; None without.

    `steps` are those of the first vertices of the second graph, as many as `befores` need. Every
    correspondence that there is can be found; the search is bounded by the pairs it gives up (`MOST`).
    """
    refiner, order = _Refiner(one, other), _Order(one, other, befores, steps)
    stack: list[Iterator[Pair]] = [iter([refiner.start()])]
    given_up = 0
    while stack and given_up <= MOST:
        guess = next(stack[-1], None)
        if guess is None:
            stack.pop()
            continue
        reached = _reached(guess, refiner, order)
        if reached is None:
            given_up += 1
            continue
        colours, domains = reached
        open_ = [vertex for vertex, domain in enumerate(domains) if len(domain) > 1]
        if open_:
            # What has an order comes first: a wrong pair is noticed before others depend on it.
            vertex = min(open_, key=lambda v: (v not in order.touching, len(domains[v]), v))
            candidates = sorted(domains[vertex], key=lambda w: (order.key(w), w))
            stack.append(_guesses(colours, vertex, candidates))
            continue
        found = {vertex: next(iter(domain)) for vertex, domain in enumerate(domains)}
        if _keeps(one, other, found) and order.keeps(found):
            return found
        given_up += 1
    return None


def _reached(colours: Pair, refiner: _Refiner, order: _Order) -> tuple[Pair, Domains] | None:
    """What follows from colours without a choice; None where no correspondence has them."""
    while True:
        refined = refiner.refined(colours)
        if refined is None:
            return None
        classes: dict[int, set[int]] = defaultdict(set)
        for vertex, colour in enumerate(refined[1]):
            classes[colour].add(vertex)
        domains = [classes[colour] for colour in refined[0]]
        if not order.narrow(domains) or (order.befores and not _apart(domains)):
            return None
        forced = {
            vertex: next(iter(domain))
            for vertex, domain in enumerate(domains)
            if len(domain) == 1 < len(classes[refined[0][vertex]])
        }
        if len(set(forced.values())) < len(forced):
            return None
        if not forced:
            return refined, domains
        colours = _paired(refined, forced)


def _apart(domains: Domains) -> bool:
    """Whether all vertices can have something else each (augmenting paths)."""
    given: dict[int, int] = {}
    taken: dict[int, int] = {}
    for first in sorted(range(len(domains)), key=lambda v: len(domains[v])):
        came: dict[int, int] = {}
        queue = [first]
        free = None
        while queue and free is None:
            vertex = queue.pop()
            fresh = domains[vertex] - came.keys()
            came |= dict.fromkeys(fresh, vertex)
            free = next((own for own in fresh if own not in taken), None)
            queue += [taken[own] for own in fresh if own in taken]
        while free is not None:
            vertex = came[free]
            before = given.get(vertex)
            given[vertex], taken[free] = free, vertex
            free = before
        if first not in given:
            return False
    return True


def _guesses(colours: Pair, vertex: int, candidates: Sequence[int]) -> Iterator[Pair]:
    """One vertex of the first graph as a pair with each of these in the second."""
    for candidate in candidates:
        yield _paired(colours, {vertex: candidate})


def _paired(colours: Pair, pairs: dict[int, int]) -> Pair:
    """Colours with one for each of these pairs that nothing else has."""
    first, second = list(colours[0]), list(colours[1])
    for number, (vertex, own) in enumerate(pairs.items()):
        # Colours of rounds count from 0.
        first[vertex] = second[own] = -1 - number
    return first, second


def _keeps(one: Shape, other: Shape, pairs: dict[int, int]) -> bool:
    """Whether a correspondence keeps all labels and edges."""
    edges = Counter((pairs[source], pairs[target], label) for source, target, label in one.edges)
    return (
        sorted(pairs.values()) == list(range(len(other.labels)))
        and all(one.labels[v] == other.labels[w] for v, w in pairs.items())
        and edges == Counter(other.edges)
    )


def nearest(one: Shape, other: Shape, kinds: Sequence[Callable[[Hashable], Hashable]]) -> dict[int, int]:
    """Pairs of vertices that look alike as far as possible, for graphs that do not correspond.

    What agrees in the most rounds of refinement comes first, then what has the same `kinds` of label, the
    finest kind first.
    """
    refiner = _Refiner(one, other)
    rounds: list[tuple[Sequence[Hashable], Sequence[Hashable]]] = [
        ([kind(label) for label in one.labels], [kind(label) for label in other.labels])
        for kind in reversed(kinds)
    ]
    rounds += refiner.rounds_of(refiner.start())
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for first, second in reversed(rounds):
        free: dict[Hashable, list[int]] = defaultdict(list)
        for vertex in reversed(range(len(second))):
            if vertex not in taken:
                free[second[vertex]].append(vertex)
        for vertex, colour in enumerate(first):
            if vertex not in pairs and free.get(colour):
                pairs[vertex] = free[colour].pop()
                taken.add(pairs[vertex])
    return pairs
