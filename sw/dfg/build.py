"""Builds the graph of a loop body: adds operations in program order, then closes the recurrences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hw.fabric.operations import LOADS, STORES
from hw.semantics import wrap
from sw.dfg.graph import DATA, ORDER, PREDICATE, Edge, Graph, Memory, Node, Output, Value
from sw.dfg.memory_order import may_meet, orders
from sw.dfg.operations import OPERATIONS
from sw.dfg.transform import drop_implied_order
from sw.dfg.values import CARRIED, COUNTER, Guard, Item, Values
from sw.ir.linear import Linear


class Source(NamedTuple):
    """Source of an operand: a value computed `distance` iterations ago, or an immediate."""

    value: int
    distance: int = 0
    initial: tuple[Value, ...] = ()


class Builder:
    """A loop body under construction: its values, known memory contents, and all accesses in order.

    `loop` says whether the body repeats; `lanes` is the number of lanes.
    """

    def __init__(self, loop: bool, lanes: int = 1):
        self.loop = loop
        self.lanes = lanes
        self.values = Values(lanes)
        self.guard: Guard | None = None
        #: Loads and stores in program order.
        self._accesses: list[int] = []
        #: Known contents of array elements, with the condition under which they hold. The keys are the array,
        #: the varying part of the index, and then its constant part together with the load that would read
        #: it.
        self._known: dict[str, dict[Linear[int], dict[tuple[int, str], list[tuple[int, Guard | None]]]]] = {}
        self._initial: dict[str, Value] = {}
        #: Values of names at the end of the body, and copies for names that swap their values.
        self._finals: Mapping[str, int] = {}
        self._copies: dict[str, int] = {}

    def counter(self) -> int:
        """The loop variable."""
        return self.values.add(Item(COUNTER))

    def carried(self, name: str, initial: Value) -> int:
        """The value of a name at the end of the previous iteration."""
        self._initial[name] = initial
        return self.values.add(Item(CARRIED, immediate=name))

    def table(self, name: str, index: int) -> int:
        """Reads a word of a table."""
        return self.values.add(Item("table", (index,), memory=name, guard=self.guard))

    def load(self, array: str, index: int, op: str = "load") -> int:
        """Reads an array element (one per lane for lane operations): forwarded if known, loaded otherwise."""
        linear = self.values.linear(index)
        elements = self._known.setdefault(array, {}).setdefault(linear.varying, {})
        known = elements.setdefault((linear.constant, op), [])
        for value, guard in known:
            # With lanes, a load gives 0 where its condition is false, so only the same condition may reuse
            # it.
            if guard == self.guard or (guard is None and self.lanes == 1):
                return value
        value = self._access(op, array, index)
        known.append((value, self.guard))
        return value

    def store(self, array: str, index: int, value: int, op: str = "store") -> None:
        """Writes an array element (one per lane for lane operations); drops the dead stores before it."""
        own = Item(op, (index, value), None, array, self.guard)
        for access in reversed(self._accesses):
            item = self.values.items[access]
            if item.memory != array or not may_meet(self.values, item, own):
                continue
            if item.op in LOADS:
                break
            if self._replaced(item, own):
                self._accesses.remove(access)
        self._access(op, array, index, value)
        linear = self.values.linear(index)
        same = self._known.get(array, {}).get(linear.varying, {})
        # Elements at another constant distance stay known; all others may have changed.
        kept = {
            (constant, loaded): held
            for (constant, loaded), held in same.items()
            if not -self._elements(loaded) < wrap(constant - linear.constant) < self._elements(op)
        }
        # A value that differs between lanes cannot be forwarded: a single element receives the value of lane
        # 0, and a load under the same condition would give 0 in the other lanes.
        if self.lanes == 1 or (op != "store" and self.guard is None):
            kept[linear.constant, LOADS[STORES.index(op)]] = [(value, self.guard)]
        self._known[array] = {linear.varying: kept}

    def _elements(self, op: str) -> int:
        return self.values.elements(Item(op))

    def _replaced(self, earlier: Item, later: Item) -> bool:
        """Whether a store overwrites all that an earlier store to the same array wrote."""
        apart = self.values.difference(earlier.args[0], later.args[0])
        if apart is None or not 0 <= apart <= self.values.elements(later) - self.values.elements(earlier):
            return False
        return later.guard is None or (later.guard == earlier.guard and later.op == earlier.op)

    def _access(self, op: str, array: str, *args: int) -> int:
        """Adds a load or store."""
        item = Item(op, args, None, array, self.guard, len(self.values.items))
        self._accesses.append(self.values.add(item))
        return self._accesses[-1]

    def graph(self, name: str, finals: Mapping[str, int], tables: Mapping[str, Sequence[int]]) -> Graph:
        """Returns the graph of everything that stores and results need, in program order.

        `finals` are the names that the body sets, with their values at its end.
        """
        self._finals = finals
        outputs = {n: self._output(n, v) for n, v in finals.items() if not self.loop or n in self._initial}
        stores = [a for a in self._accesses if self.values.items[a].op in STORES]
        needed = self._needed([*stores, *(s.value for s in outputs.values())])
        numbers = {value: i for i, value in enumerate(needed)}
        nodes = [self._node(value, number) for value, number in numbers.items()]
        edges = [edge for value in needed for edge in self._edges(value, numbers)]
        edges += [
            Edge(numbers[a], numbers[b], distance, ORDER)
            for a, b, distance in orders(self.values, (a for a in self._accesses if a in numbers), self.loop)
        ]
        read = {n.memory.name for n in nodes if n.op == "table" and n.memory}
        words = tuple((n, tuple(w)) for n, w in tables.items() if n in read)
        found = tuple(Output(n, numbers[s.value], s.distance, s.initial) for n, s in outputs.items())
        lanes = self.lanes if any(OPERATIONS[n.op].of_lanes for n in nodes) else 1
        return drop_implied_order(Graph(name, tuple(nodes), tuple(edges), False, found, words, lanes))

    def _output(self, name: str, value: int) -> Source:
        """The value of a name after the loop: what the next iteration would read."""
        if not self.loop:
            # Straight-line code runs once, so there is no other iteration to take a value from.
            return self._source(value)._replace(distance=1, initial=(0,))
        found = self._source(self.values.add(Item(CARRIED, immediate=name)))
        # A name that never changes has no source in the loop except its initial value.
        return found if found.distance else Source(found.value, 1, (self._initial[name],))

    def _source(self, value: int) -> Source:
        """The source of a value; names that only pass on another name's value add to the distance."""
        passed: list[str] = []
        while self.values.items[value].op == CARRIED:
            name = str(self.values.items[value].immediate)
            final = self._finals.get(name, value)
            if final == value:
                # The name never changes.
                value = self.values.immediate(self._initial[name])
                break
            if name in passed:
                # Names that swap values form a cycle without an operation, so insert a copy.
                self._copies[name] = self.values.add(Item("mov", (final,)))
                return self._source(self.values.add(Item(CARRIED, immediate=passed[0])))
            passed.append(name)
            value = self._copies.get(name, final)
        return Source(value, len(passed), tuple(self._initial[name] for name in passed))

    def _operands(self, value: int) -> Iterator[tuple[str, bool, Source]]:
        """Yields the operands of a value: operand name, whether it is negated, source."""
        item = self.values.items[value]
        for operand, argument in zip(DATA, item.args, strict=False):
            yield operand, False, self._source(argument)
        if item.guard is not None:
            yield PREDICATE, item.guard[1], self._source(item.guard[0])

    def _needed(self, roots: Sequence[int]) -> list[int]:
        """All values that the roots depend on, in ascending order."""
        found: set[int] = set()
        stack = list(roots)
        while stack:
            value = stack.pop()
            if value not in found:
                found.add(value)
                stack += [source.value for _, _, source in self._operands(value)]
        return sorted(found)

    def _node(self, value: int, number: int) -> Node:
        item = self.values.items[value]
        memory = Memory(item.memory) if item.memory else None
        if item.op == COUNTER:
            return Node(number, "add", const=1)
        immediate = item.immediate
        if OPERATIONS[item.op].constant:
            immediate = self.values.items[item.args[-1]].immediate
        if isinstance(immediate, str):
            return Node(number, item.op, scalar=immediate, memory=memory)
        return Node(number, item.op, const=immediate, memory=memory)

    def _edges(self, value: int, numbers: Mapping[int, int]) -> list[Edge]:
        own = numbers[value]
        if self.values.items[value].op == COUNTER:
            return [Edge(own, own, 1, DATA[0], initial=(-1,))]
        return [
            Edge(numbers[source.value], own, source.distance, operand, negated, source.initial)
            for operand, negated, source in self._operands(value)
        ]
