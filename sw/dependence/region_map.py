"""A persistent map from the elements of a buffer to their chains, as a binary tree of boxes.

A node stands for a box. A branch cuts it in two at a power of two along one dimension, a leaf has one chain
for all of its elements. A branch may carry a chain of possible writes over the whole box, which moves down
only when something below changes; so a write or a phi node costs a few nodes per end of its box, however many
pieces the box has. Nodes are never changed: versions of the map share what is equal, which is what makes
taking over the dominator's state and joining two predecessors cheap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from sw.dependence.cells import (
    REST,
    Box,
    Cell,
    Definition,
    Definitions,
    Joiner,
    Maybe,
    Rest,
    Top,
    stack,
    visible_in,
)


@dataclass(eq=False, slots=True)
class Leaf:
    """A box whose elements share a chain."""

    cell: Cell


@dataclass(eq=False, slots=True)
class Branch:
    """A box cut at `cut` along dimension `axis`; `over` lies on top of both halves."""

    axis: int
    cut: int
    left: Node
    right: Node
    over: Cell = REST
    #: What `content` found.
    known: Content | None = field(default=None, repr=False)


Node = Leaf | Branch
#: Definitions, and whether every chain is one plain definition.
Content = tuple[Definitions, bool]
#: A node, the box that it stands for, and the chains that lie on top of it, newest first.
Part = tuple[Node, Box, list[Cell]]


def extent(size: int) -> int:
    """The power of two that a dimension of so many elements is cut in."""
    return 1 << max(0, size - 1).bit_length()


def lay(node: Node, over: Cell) -> Node:
    """The node under a chain of possible writes."""
    if type(over) is Rest:
        return node
    if type(node) is Leaf:
        return Leaf(stack(over, node.cell))
    assert type(node) is Branch
    return Branch(node.axis, node.cut, node.left, node.right, stack(over, node.over))


def _branch(axis: int, cut: int, left: Node, right: Node) -> Node:
    if type(left) is Leaf and type(right) is Leaf and left.cell is right.cell:
        return left
    return Branch(axis, cut, left, right)


def put(node: Node, low: int, high: int, start: int, stop: int, leaf: Leaf) -> Node:
    """The map of one dimension over [low, high) with [start, stop) replaced."""
    if start <= low and high <= stop:
        return leaf
    cut = low + high >> 1
    if type(node) is Leaf:
        if node.cell is leaf.cell:
            return node
        left: Node = node
        right: Node = node
    else:
        left, right = node.left, node.right  # type: ignore[union-attr]
        if node.over is not REST:  # type: ignore[union-attr]
            left, right = lay(left, node.over), lay(right, node.over)  # type: ignore[union-attr]
    if start < cut:
        left = leaf if start <= low and cut <= stop else put(left, low, cut, start, stop, leaf)
    if stop > cut:
        right = leaf if start <= cut and high <= stop else put(right, cut, high, start, stop, leaf)
    if type(left) is Leaf and type(right) is Leaf and left.cell is right.cell:
        return left
    return Branch(0, cut, left, right)


def put_all(
    node: Node, low: int, high: int, starts: list[int], stops: list[int], i: int, j: int, leaves: list[Leaf]
) -> Node:
    """The map over [low, high) with intervals i to j - 1, in order and apart, each replaced by its leaf."""
    if j - i == 1:
        start, stop = starts[i], stops[i]
        if start <= low and high <= stop:
            return leaves[i]
        return put(node, low, high, start, stop, leaves[i])
    cut = low + high >> 1
    if type(node) is Leaf:
        left: Node = node
        right: Node = node
    else:
        left, right = node.left, node.right  # type: ignore[union-attr]
        if node.over is not REST:  # type: ignore[union-attr]
            left, right = lay(left, node.over), lay(right, node.over)  # type: ignore[union-attr]
    end, begin = bisect_left(starts, cut, i, j), bisect_right(stops, cut, i, j)
    if end > i:
        left = put_all(left, low, cut, starts, stops, i, end, leaves)
    if begin < j:
        right = put_all(right, cut, high, starts, stops, begin, j, leaves)
    return _branch(0, cut, left, right)


def parts(
    node: Node, extents: tuple[int, int], starts: list[int], stops: list[int]
) -> tuple[list[int], list[int], list[int], list[Definition]]:
    """The parts with one chain that intervals, in order and apart, touch in a map of one dimension.

    Where they start and stop, in order; where it is one plain definition its number, counted from 1, else
    0; the definitions.
    """
    lows: list[int] = []
    highs: list[int] = []
    found: list[int] = []
    numbers: dict[Cell, int] = {}
    plain: list[Definition] = []
    pending = [(node, *extents, 0, len(starts))]
    while pending:
        node, low, high, i, j = pending.pop()
        if type(node) is Leaf:
            cell = node.cell
            number = numbers.get(cell)
            if number is None:
                number = 0
                if type(cell) is Top and cell.definition.plain:
                    plain.append(cell.definition)
                    number = len(plain)
                numbers[cell] = number
            found.append(number)
        elif node.over is REST:  # type: ignore[union-attr]
            cut = low + high >> 1
            if starts[j - 1] >= cut:
                pending.append((node.right, cut, high, bisect_right(stops, cut, i, j), j))  # type: ignore[union-attr]
            elif stops[j - 1] > cut:
                pending.append((node.right, cut, high, j - 1, j))  # type: ignore[union-attr]
            if starts[i] < cut:
                pending.append((node.left, low, cut, i, bisect_left(starts, cut, i, j)))  # type: ignore[union-attr]
            continue
        else:
            found.append(0)
        lows.append(low)
        highs.append(high)
    return lows, highs, found, plain


def over(node: Node, low: int, high: int, start: int, stop: int, adder: _Adder) -> Node:
    """The map of one dimension over [low, high) with a possible write over [start, stop)."""
    if start <= low and high <= stop:
        return adder.over(node)
    cut = low + high >> 1
    if type(node) is Leaf:
        left: Node = node
        right: Node = node
    else:
        left, right = node.left, node.right  # type: ignore[union-attr]
        if node.over is not REST:  # type: ignore[union-attr]
            left, right = lay(left, node.over), lay(right, node.over)  # type: ignore[union-attr]
    if start < cut:
        left = over(left, low, cut, start, stop, adder)
    if stop > cut:
        right = over(right, cut, high, start, stop, adder)
    if type(left) is Leaf and type(right) is Leaf and left.cell is right.cell:
        return left
    return Branch(0, cut, left, right)


class _Adder:
    """Puts a possible write over parts of a map; equal chains below give equal chains."""

    def __init__(self, definition: Definition):
        self.definition = definition
        self.made: dict[int, tuple[Cell, Cell]] = {}

    def over(self, node: Node) -> Node:
        """All of a node."""
        if type(node) is Leaf:
            return Leaf(self.cell(node.cell))
        assert type(node) is Branch
        return Branch(node.axis, node.cut, node.left, node.right, self.cell(node.over))

    def cell(self, below: Cell) -> Cell:
        """A chain with the write on top."""
        found = self.made.get(id(below))
        if found is None:
            # The chain below is kept, so that its identity stays its own.
            found = self.made[id(below)] = Maybe(self.definition, below), below
        return found[0]


def change(node: Node, extents: Box, box: Box, change_to: Leaf | Definition) -> Node:
    """The map with a box replaced by a leaf, or with a possible write over it.

    `extents` are the node's; `box` is not empty and within them.
    """
    if len(box) == 1:
        if isinstance(change_to, Leaf):
            return put(node, *extents[0], *box[0], change_to)
        return over(node, *extents[0], *box[0], _Adder(change_to))
    adder = _Adder(change_to) if isinstance(change_to, Definition) else None
    lows, highs = [a for a, _ in extents], [b for _, b in extents]

    def visit(node: Node) -> Node:
        outside = [d for d, (start, stop) in enumerate(box) if start > lows[d] or stop < highs[d]]
        if not outside:
            if adder is None:
                assert isinstance(change_to, Leaf)
                return change_to
            return adder.over(node)
        if type(node) is Leaf:
            if adder is None and node.cell is change_to.cell:  # type: ignore[union-attr]
                return node
            axis = max(outside, key=lambda d: highs[d] - lows[d])
            cut = lows[axis] + highs[axis] >> 1
            left: Node = node
            right: Node = node
        else:
            axis, cut = node.axis, node.cut  # type: ignore[union-attr]
            left, right = node.left, node.right  # type: ignore[union-attr]
            if node.over is not REST:  # type: ignore[union-attr]
                left, right = lay(left, node.over), lay(right, node.over)  # type: ignore[union-attr]
        start, stop = box[axis]
        low, high = lows[axis], highs[axis]
        if start < cut:
            highs[axis] = cut
            left = visit(left)
            highs[axis] = high
        if stop > cut:
            lows[axis] = cut
            right = visit(right)
            lows[axis] = low
        return _branch(axis, cut, left, right)

    return visit(node)


def content(node: Node) -> Content:
    """The definitions to be seen anywhere in a node, not to be changed; whether all chains are plain."""
    if type(node) is Leaf:
        cell = node.cell
        return visible_in(cell), type(cell) is Top and cell.definition.plain
    assert type(node) is Branch
    found = node.known
    if found is None:
        left, plain = content(node.left)
        right, also = content(node.right)
        known = left if left is right else {**left, **right}
        if node.over is not REST:
            known = {**visible_in(node.over), **known}
        found = node.known = known, plain and also and node.over is REST
    return found


def halve(pending: list[Part], branch: Branch, extents: Box, above: list[Cell], box: Box) -> None:
    """Put the halves of a branch that a box meets on a stack, the left one on top."""
    if branch.over is not REST:
        above = [*above, branch.over]
    axis, cut = branch.axis, branch.cut
    start, stop = box[axis]
    low, high = extents[axis]
    one = len(extents) == 1
    if stop > cut:
        right = ((cut, high),) if one else (*extents[:axis], (cut, high), *extents[axis + 1 :])
        pending.append((branch.right, right, above))
    if start < cut:
        left = ((low, cut),) if one else (*extents[:axis], (low, cut), *extents[axis + 1 :])
        pending.append((branch.left, left, above))


def pieces(node: Node, extents: Box, box: Box) -> Iterator[tuple[Box, list[Cell]]]:
    """The parts of a box with one chain each, and the chain in sections, newest first."""
    pending: list[Part] = [(node, extents, [])]
    while pending:
        node, part, above = pending.pop()
        if type(node) is Leaf:
            yield part, [*above, node.cell] if above else [node.cell]
            continue
        assert type(node) is Branch
        halve(pending, node, part, above, box)


def join(a: Node, b: Node, joiner: Joiner) -> Node:
    """The map after a phi node: element by element one of two chains."""
    if a is b:
        return a
    if type(a) is Leaf and type(b) is Leaf:
        cell = joiner(a.cell, b.cell)
        return a if cell is a.cell else Leaf(cell)
    if type(a) is Branch and type(b) is Branch:
        if a.axis == b.axis and a.cut == b.cut:
            a_left, a_right, b_left, b_right = a.left, a.right, b.left, b.right
            if a.over is b.over or (a_left is b_left and a_right is b_right):
                left = a_left if a_left is b_left else join(a_left, b_left, joiner)
                right = a_right if a_right is b_right else join(a_right, b_right, joiner)
                return Branch(a.axis, a.cut, left, right, joiner(a.over, b.over))
            if a.over is not REST:
                a_left, a_right = lay(a_left, a.over), lay(a_right, a.over)
            if b.over is not REST:
                b_left, b_right = lay(b_left, b.over), lay(b_right, b.over)
            return _branch(a.axis, a.cut, join(a_left, b_left, joiner), join(a_right, b_right, joiner))
        a_left, a_right = _halves(a)
        b_left, b_right = (_restrict(b, a.axis, a.cut, lower) for lower in (True, False))
        return _branch(a.axis, a.cut, join(a_left, b_left, joiner), join(a_right, b_right, joiner))
    cut = a if type(a) is Branch else b
    assert type(cut) is Branch
    a_left, a_right = _halves(a)
    b_left, b_right = _halves(b)
    return _branch(cut.axis, cut.cut, join(a_left, b_left, joiner), join(a_right, b_right, joiner))


def _halves(node: Node) -> tuple[Node, Node]:
    if type(node) is Leaf:
        return node, node
    assert type(node) is Branch
    if node.over is REST:
        return node.left, node.right
    return lay(node.left, node.over), lay(node.right, node.over)


def _restrict(node: Node, axis: int, cut: int, lower: bool) -> Node:
    """The part of a map below or above a cut."""
    if type(node) is Leaf:
        return node
    assert type(node) is Branch
    if node.axis == axis and node.cut == cut:
        return lay(node.left if lower else node.right, node.over)
    if node.axis == axis and (cut < node.cut) == lower:
        return lay(_restrict(node.left if lower else node.right, axis, cut, lower), node.over)
    left, right = node.left, node.right
    if node.axis != axis:
        left, right = _restrict(left, axis, cut, lower), _restrict(right, axis, cut, lower)
    elif lower:
        right = _restrict(right, axis, cut, lower)
    else:
        left = _restrict(left, axis, cut, lower)
    return Branch(node.axis, node.cut, left, right, node.over)
