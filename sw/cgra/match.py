"""Which vertices of two labelled graphs correspond: colours are refined until they tell vertices apart.

Vertices start with the colour of their label; in every round the colours of neighbours, with the labels of
the edges between, make a new one (B. Weisfeiler and A. Leman, 1968). Where vertices keep one colour, one of
each graph is made a pair, and the rest follows; a pair that leads nowhere is given up for the next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

#: Refinements that a search may make.
MOST = 5_000


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
        self.numbers: dict[Hashable, int] = {}
        self.rounds = 0

    def number(self, what: Hashable) -> int:
        return self.numbers.setdefault(what, len(self.numbers))

    def start(self) -> Pair:
        first, second = ([self.number(("label", label)) for label in shape.labels] for shape in self.shapes)
        return first, second

    def rounds_of(self, colours: Pair) -> Iterator[Pair]:
        """Colours after every round until they tell no more vertices of one graph apart.

        The last round is one that did not: it still tells the two graphs apart.
        """
        stable = False
        yield colours
        while not stable:
            self.rounds += 1
            following = self._round(0, colours[0]), self._round(1, colours[1])
            stable = all(len(set(new)) == len(set(old)) for new, old in zip(following, colours, strict=True))
            colours = following
            yield colours

    def _round(self, which: int, colours: Colours) -> Colours:
        found = []
        for own, around in zip(colours, self.shapes[which].around, strict=True):
            near = sorted(
                (leaves, self.number(("edge", label)), colours[other]) for leaves, label, other in around
            )
            found.append(self.number((own, tuple(near))))
        return found

    def refined(self, colours: Pair) -> Pair:
        for last in self.rounds_of(colours):
            # Colours that are not there as often in both will never agree again.
            if Counter(last[0]) != Counter(last[1]):
                return last
        return last


def match(one: Shape, other: Shape, accept: Callable[[dict[int, int]], bool]) -> dict[int, int] | None:
    """A correspondence of all vertices that keeps labels and edges, and that `accept` takes; None without.

    The search is bounded (`MOST`).
    """
    refiner = _Refiner(one, other)
    stack: list[Iterator[Pair]] = [iter([refiner.start()])]
    while stack and refiner.rounds < MOST:
        guess = next(stack[-1], None)
        if guess is None:
            stack.pop()
            continue
        colours = refiner.refined(guess)
        if Counter(colours[0]) != Counter(colours[1]):
            continue
        classes: dict[int, list[int]] = defaultdict(list)
        for vertex, colour in enumerate(colours[0]):
            classes[colour].append(vertex)
        open_ = [c for c, members in classes.items() if len(members) > 1]
        if not open_:
            place = {colour: vertex for vertex, colour in enumerate(colours[1])}
            found = {vertex: place[colour] for vertex, colour in enumerate(colours[0])}
            if _keeps(one, other, found) and accept(found):
                return found
            continue
        colour = min(open_, key=lambda c: (len(classes[c]), classes[c]))
        stack.append(_guesses(colours, classes[colour][0], refiner))
    return None


def _keeps(one: Shape, other: Shape, pairs: dict[int, int]) -> bool:
    """Whether a correspondence keeps all labels and edges."""
    edges = Counter((pairs[source], pairs[target], label) for source, target, label in one.edges)
    return (
        sorted(pairs.values()) == list(range(len(other.labels)))
        and all(one.labels[v] == other.labels[w] for v, w in pairs.items())
        and edges == Counter(other.edges)
    )


def _guesses(colours: Pair, vertex: int, refiner: _Refiner) -> Iterator[Pair]:
    """One vertex of the first graph as a pair with each of the same colour in the second."""
    colour = colours[0][vertex]
    alone = refiner.number(("alone", colour))
    for candidate, own in enumerate(colours[1]):
        if own == colour:
            first, second = list(colours[0]), list(colours[1])
            first[vertex] = second[candidate] = alone
            yield first, second


def nearest(one: Shape, other: Shape, kinds: Sequence[Callable[[Hashable], Hashable]]) -> dict[int, int]:
    """Pairs of vertices that look alike as far as possible, for graphs that do not correspond.

    What agrees in the most rounds of refinement comes first, then what has the same `kinds` of label, the
    finest kind first.
    """
    refiner = _Refiner(one, other)
    rounds = [
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
