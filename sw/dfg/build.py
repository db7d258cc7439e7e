"""Makes the graph of one body: operations are added in the order of the text, then tied up at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sw.dfg.graph import DATA, ORDER, PREDICATE, Edge, Graph, Memory, Node, Output, Value
from sw.dfg.memory_order import OrderedAccess, may_meet, must_meet, orders
from sw.dfg.transform import drop_implied_order
from sw.dfg.values import CARRIED, COUNTER, Guard, Item, Values
from sw.ir.linear import Linear


@dataclass(frozen=True)
class _Known:
    """What an element holds, and where it holds only under a condition, that."""

    value: int
    guard: Guard | None


class Builder:
    """One body: its values, what memory is known to hold, and all accesses in order.

    `loop` says whether the body repeats.
    """

    def __init__(self, loop: bool):
        self.loop = loop
        self.values = Values()
        self.guard: Guard | None = None
        self._accesses: list[OrderedAccess] = []
        # By array, then by the changing and the constant part of the index.
        self._known: dict[str, dict[Linear[int], dict[int, list[_Known]]]] = {}
        self._initial: dict[str, Value] = {}
        self._version = 0

    def counter(self) -> int:
        """The loop's variable."""
        return self.values.add(Item(COUNTER))

    def carried(self, name: str, initial: Value) -> int:
        """What a name held at the end of the iteration before."""
        self._initial[name] = initial
        return self.values.add(Item(CARRIED, immediate=name))

    def table(self, name: str, index: int) -> int:
        """A word of a table."""
        return self.values.add(Item("table", (index,), memory=name, guard=self.guard))

    def load(self, array: str, index: int) -> int:
        """An element of an array: known from before, or loaded."""
        linear = self.values.linear(index)
        known = (
            self._known.setdefault(array, {}).setdefault(linear.varying, {}).setdefault(linear.constant, [])
        )
        for held in known:
            if held.guard in (None, self.guard):
                return held.value
        self._version += 1
        value = self.values.add(Item("load", (index,), None, array, self.guard, self._version))
        self._accesses.append(OrderedAccess(value, array, index, self.guard, False))
        known.append(_Known(value, self.guard))
        return value

    def store(self, array: str, index: int, value: int) -> None:
        """Set an element; earlier stores to it that nothing reads are left out."""
        for i in range(len(self._accesses) - 1, -1, -1):
            access = self._accesses[i]
            if access.array != array:
                continue
            if not access.stores and may_meet(self.values, access.index, index):
                break
            meets = access.stores and must_meet(self.values, access.index, index)
            if meets and self.guard in (None, access.guard):
                del self._accesses[i]
        self._version += 1
        stored = self.values.add(Item("store", (index, value), None, array, self.guard, self._version))
        self._accesses.append(OrderedAccess(stored, array, index, self.guard, True))
        # What is known of elements at another constant distance stays true, anything else may have changed.
        linear = self.values.linear(index)
        same = self._known.get(array, {}).get(linear.varying, {})
        self._known[array] = {linear.varying: same | {linear.constant: [_Known(value, self.guard)]}}

    def graph(self, name: str, finals: Mapping[str, int], tables: Mapping[str, Sequence[int]]) -> Graph:
        """The graph; `finals` are the names that it sets, and their values at the end of the body."""
        return _Emitter(self.values, self._initial, finals, self._accesses, self.loop).graph(name, tables)


@dataclass(frozen=True)
class _Source:
    """Where an operand comes from: a value some iterations ago, or an immediate."""

    value: int
    distance: int = 0
    initial: tuple[Value, ...] = ()


class _Emitter:
    """Nodes and edges of all values that a store or a final value needs."""

    def __init__(
        self,
        values: Values,
        initial: Mapping[str, Value],
        finals: Mapping[str, int],
        accesses: Sequence[OrderedAccess],
        loop: bool,
    ):
        self.values, self.initial, self.finals = values, initial, dict(finals)
        self.accesses, self.loop = accesses, loop
        self.copies: dict[str, int] = {}

    def graph(self, name: str, tables: Mapping[str, Sequence[int]]) -> Graph:
        """Everything that is needed, in the order of the text."""
        roots = [a.value for a in self.accesses if a.stores]
        outputs = {n: self.output(n, v) for n, v in self.finals.items() if not self.loop or n in self.initial}
        needed = self.needed([*roots, *(s.value for s in outputs.values())])
        numbers = {value: i for i, value in enumerate(needed)}
        nodes = [self.node(value, numbers) for value in needed]
        edges = [edge for value in needed for edge in self.edges(value, numbers)]
        used = [a for a in self.accesses if a.value in numbers]
        edges += [
            Edge(numbers[a], numbers[b], distance, ORDER)
            for a, b, distance in orders(self.values, used, self.loop)
        ]
        read = {n.memory.name for n in nodes if n.op == "table" and n.memory}
        words = tuple((n, tuple(w)) for n, w in tables.items() if n in read)
        found = tuple(Output(n, numbers[s.value], s.distance, s.initial) for n, s in outputs.items())
        return drop_implied_order(Graph(name, tuple(nodes), tuple(edges), False, found, words))

    def output(self, name: str, value: int) -> _Source:
        """What a name holds after the loop: what the next iteration would find."""
        if self.loop:
            found = self.source(self.values.add(Item(CARRIED, immediate=name)))
            # A name that never changes has no source in the loop but its own initial value.
            return found if found.distance else replace(found, distance=1, initial=(self.initial[name],))
        found = self.source(value)
        # Straight code runs once: there is no other iteration to take a value from.
        return replace(found, distance=1, initial=(0,))

    def source(self, value: int) -> _Source:
        """Where a value comes from; names that only pass on what another held reach further back."""
        passed: list[str] = []
        initial: list[Value] = []
        while self.values.items[value].op == CARRIED:
            name = self.values.items[value].immediate
            assert isinstance(name, str)
            final = self.finals.get(name, value)
            if name in self.copies:
                value = self.copies[name]
                initial.append(self.initial[name])
                break
            if final == value:
                # It never changes.
                value = self.values.immediate(self.initial[name])
                break
            if name in passed:
                # Names that swap what they hold: one operation has to make the value.
                self.copies[name] = self.values.add(Item("mov", (final,)))
                return self.source(self.values.add(Item(CARRIED, immediate=passed[0])))
            passed.append(name)
            initial.append(self.initial[name])
            value = final
        return _Source(value, len(initial), tuple(initial))

    def needed(self, roots: Sequence[int]) -> list[int]:
        """All values that the roots need, by number."""
        found: set[int] = set()
        stack = list(roots)
        while stack:
            value = stack.pop()
            if value in found:
                continue
            found.add(value)
            item = self.values.items[value]
            stack += [self.source(a).value for a in item.args]
            if item.guard is not None:
                stack.append(self.source(item.guard[0]).value)
        return sorted(found)

    def node(self, value: int, numbers: Mapping[int, int]) -> Node:
        """The node of a value."""
        item = self.values.items[value]
        memory = Memory(item.memory) if item.memory else None
        if item.op == COUNTER:
            return Node(numbers[value], "add", const=1)
        if isinstance(item.immediate, str):
            return Node(numbers[value], item.op, scalar=item.immediate, memory=memory)
        return Node(numbers[value], item.op, const=item.immediate, memory=memory)

    def edges(self, value: int, numbers: Mapping[int, int]) -> list[Edge]:
        """The edges to a value's operands."""
        item, own = self.values.items[value], numbers[value]
        if item.op == COUNTER:
            return [Edge(own, own, 1, DATA[0], initial=(-1,))]
        found: list[Edge] = []
        for operand, argument in zip(DATA, item.args, strict=False):
            source = self.source(argument)
            found.append(Edge(numbers[source.value], own, source.distance, operand, False, source.initial))
        if item.guard is not None:
            condition, negated = item.guard
            source = self.source(condition)
            edge = Edge(numbers[source.value], own, source.distance, PREDICATE, negated, source.initial)
            found.append(edge)
        return found
