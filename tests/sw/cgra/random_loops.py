"""Random loops with arguments for them: as graphs, and as functions in Python."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hw.fabric.operations import STORES
from sw.dfg.graph import DATA, HINT, ORDER, PREDICATE, Edge, Graph, Memory, Node, Output, Value
from sw.dfg.kernel import Array, Kernel, Launch
from sw.dfg.operations import OPERATIONS
from sw.dfg.python import parse_kernel
from tests.sw.dfg.random_functions import MOST, SIZE, Writer

#: Elements of arrays that indices reach (a power of two).
REACH = 32
#: Operations of a function's largest loop.
LARGEST = 40
ARRAYS = ("a", "b", "c")
TABLES = (("T", (3, -1, 4, 1, -5, 9, 2, 6)), ("U", tuple(range(-70, 90, 10))))
SCALARS = ("p", "q")
_NUMBERS = (0, 1, -1, 2, 3, 5, 31, 77, 1000003, 2147483647, -2147483648)
#: Operations of the ALU and the multiplier.
_VALUES = tuple(n for n, o in OPERATIONS.items() if not o.of_lanes and n not in ("load", "store", "table"))
_OF_LANES = ("lane", "load_lanes", "load_lanes", "store_lanes", "sum_lanes", "max_lanes")
_MOVED = ("shift_lanes", "even_lanes", "odd_lanes")
#: Distances of what is carried; more than 7 first iterations do not fit into one entry.
_DISTANCES = (1, 1, 1, 1, 2, 2, 3, 5, 9)
_TYPES = ("int32", "int32", "int8", "uint8")


@dataclass(frozen=True)
class Loop:
    """A kernel with arguments; `text` is what it was written as, nothing where it was drawn as a graph."""

    kernel: Kernel
    arrays: Mapping[str, np.ndarray]
    #: The number of iterations among them.
    scalars: Mapping[str, int]
    text: str = ""


def random_loop(seed: int, lanes: int = 1) -> Loop:
    """A random loop: a graph for even seeds, a function for odd ones; a graph works on so many lanes."""
    rng = random.Random(f"loop {seed}")
    if seed % 2 == 0:
        grower = _Grower(rng, lanes)
        kernel, text = grower.kernel(f"graph{seed}"), ""
    else:
        kernel, text = _function(rng)
    arrays = {}
    for array in kernel.arrays:
        kind = rng.choice(_TYPES)
        limits = np.iinfo(kind)
        arrays[array.name] = np.array(
            [_bounded(rng, int(limits.min), int(limits.max)) for _ in range(SIZE)], kind
        )
    known = {"p": rng.randint(-9, 9), "q": -rng.getrandbits(31), "m": rng.choice((0, 1, 4))}
    scalars = {name: known.get(name, 0) for name in kernel.scalars}
    if kernel.iterations is not None:
        scalars[kernel.iterations] = rng.choice((0, 1, 2, MOST, MOST, MOST))
    return Loop(kernel, arrays, scalars, text)


def _function(rng: random.Random) -> tuple[Kernel, str]:
    """A function none of whose loops is large, and its text."""
    while True:
        text = Writer(rng).function()
        kernel = parse_kernel(text, "f")
        if all(len(launch.graph.nodes) <= LARGEST for launch in kernel.launches):
            return kernel, text


def _bounded(rng: random.Random, low: int, high: int) -> int:
    return rng.choice((rng.randint(-9, 9) if low < 0 else rng.randint(0, 9), rng.randint(low, high)))


@dataclass
class _Grower:
    """Makes one graph; `values` are the nodes that give one, `accesses` those of memory by array."""

    rng: random.Random
    lanes: int
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    accesses: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    #: Operands that later get a source of an earlier iteration: target, operand, negated.
    carried: list[tuple[str, str, bool]] = field(default_factory=list)

    def kernel(self, name: str) -> Kernel:
        """A loop of 4 to 30 operations and what belongs to them."""
        rng = self.rng
        self.count()
        for _ in range(rng.choice((4, 8, 8, 14, 20, 30))):
            if self.lanes > 1 and rng.random() < 0.35:
                self.across(rng.choice(_OF_LANES + _MOVED))
                continue
            drawn = rng.random()
            if drawn < 0.14:
                self.access("load")
            elif drawn < 0.25:
                self.access("store")
            elif drawn < 0.31:
                self.table()
            else:
                self.value(rng.choice(_VALUES))
        self.access("store")
        for target, operand, negated in self.carried:
            distance = rng.choice(_DISTANCES)
            source, initial = rng.choice(self.values), self.initial(distance)
            self.edges.append(Edge(source, target, distance, operand, negated, initial))
        self.order()
        read = {e.source for e in self.edges}
        left = [value for value in self.values if value not in read]
        outputs = []
        for i, source in enumerate(rng.sample(left, min(len(left), rng.randint(0, 3)))):
            distance = rng.choice((1, 1, 2, 3))
            outputs.append(Output(f"r{i}", source, distance, self.initial(distance)))
        used = {node.memory.name for node in self.nodes if node.op == "table" and node.memory}
        tables = tuple(table for table in TABLES if table[0] in used)
        graph = Graph(
            f"{name}.1", tuple(self.nodes), tuple(self.edges), False, tuple(outputs), tables, self.lanes
        )
        arrays = tuple(
            Array(a, any(not stores for _, stores in found), any(stores for _, stores in found))
            for a, found in self.accesses.items()
        )
        scalars = tuple(s for s in SCALARS if s in graph.scalars)
        body = (Launch(graph, "n"),)
        return Kernel(name, "<random>", arrays, scalars, "n", body, tuple(o.name for o in outputs))

    # Operations

    def add(self, op: str, open_: tuple[str, ...], immediate: Value | None, memory: str | None = None) -> str:
        """A node whose operands `open_` get sources: values made before, or carried ones."""
        name = f"{op}{len(self.nodes)}"
        number = immediate if isinstance(immediate, int) else None
        scalar = immediate if isinstance(immediate, str) else None
        self.nodes.append(Node(name, op, number, scalar, Memory(memory) if memory else None))
        predicate = (PREDICATE,) if self.rng.random() < 0.15 else ()
        for operand in (*open_, *predicate):
            negated = operand == PREDICATE and self.rng.random() < 0.5
            if self.rng.random() < 0.12:
                self.carried.append((name, operand, negated))
            else:
                self.edges.append(Edge(self.recent(), name, 0, operand, negated))
        return name

    def value(self, op: str) -> None:
        """An operation of the ALU or the multiplier."""
        operands = list(DATA[: OPERATIONS[op].operands])
        immediate = self.number() if OPERATIONS[op].constant else None
        if immediate is None and (not operands or (len(operands) > 1 and self.rng.random() < 0.3)):
            immediate = self.number()
            if operands:
                operands.remove(self.rng.choice(operands))
        self.values.append(self.add(op, tuple(operands), immediate))

    def across(self, op: str) -> None:
        """An operation of lanes."""
        if op in ("load_lanes", "store_lanes"):
            self.access(op)
        elif op == "shift_lanes" and self.rng.random() < 0.5:
            self.values.append(self.add(op, ("I1", "I2"), self.rng.randrange(-self.lanes, 2 * self.lanes)))
        else:
            self.values.append(self.add(op, DATA[: OPERATIONS[op].operands], None))

    def count(self) -> None:
        """A number that rises from iteration to iteration."""
        step = self.rng.choice((1, 1, 2, 3))
        self.nodes.append(Node("i", "add", step))
        self.edges.append(Edge("i", "i", 1, "I1", initial=(-step,)))
        self.values.append("i")

    def index(self, length: int, multiple: int = 1) -> str:
        """A multiple of a number below `length`; both are powers of two."""
        if multiple == 1 and length > 3 * MOST and self.rng.random() < 0.5:
            return "i"
        name = f"index{len(self.nodes)}"
        self.nodes.append(Node(name, "and", length - multiple))
        self.edges.append(Edge(self.recent(), name, 0))
        return name

    def access(self, op: str) -> None:
        """A load or a store; a guarded one has an index that is outside where it does not happen."""
        rng, array = self.rng, self.rng.choice(ARRAYS)
        constant, guarded = rng.random() < 0.1, rng.random() < 0.15
        stores, count = op in STORES, self.lanes if OPERATIONS[op].of_lanes else 1
        if constant:
            name = self.add(op, ("I2",) if stores else (), rng.randrange(0, REACH, count), array)
        elif guarded and count == 1:
            index = self.index(4 * REACH)
            guard, name = f"guard{len(self.nodes)}", f"{op}{len(self.nodes)}"
            within = rng.random() < 0.5
            self.nodes.append(Node(guard, "lt" if within else "ge", REACH))
            self.edges.append(Edge(index, guard))
            self.nodes.append(Node(name, op, memory=Memory(array)))
            self.edges += [Edge(index, name), Edge(guard, name, 0, PREDICATE, not within)]
            if stores:
                self.edges.append(Edge(self.recent(), name, 0, "I2"))
        else:
            index = self.index(REACH, count)
            number = self.number() if stores and rng.random() < 0.15 else None
            name = self.add(op, ("I2",) if stores and number is None else (), number, array)
            self.edges.append(Edge(index, name))
        self.accesses.setdefault(array, []).append((name, stores))
        if not stores:
            self.values.append(name)

    def table(self) -> None:
        """A word of a table."""
        table, words = self.rng.choice(TABLES)
        if self.rng.random() < 0.1:
            name = self.add("table", (), self.rng.randrange(len(words)), table)
        else:
            index = self.index(len(words))
            name = self.add("table", (), None, table)
            self.edges.append(Edge(index, name))
        self.values.append(name)

    def order(self) -> None:
        """Accesses of an array that is written stay in order, in every iteration and from one to the next."""
        for found in self.accesses.values():
            for i, (first, one) in enumerate(found):
                for second, other in found[i + 1 :]:
                    if one or other:
                        self.edges.append(Edge(first, second, 0, ORDER))
                        self.edges.append(Edge(second, first, 1, ORDER))
                    elif self.rng.random() < 0.2:
                        self.edges.append(Edge(first, second, 0, HINT))

    # Numbers

    def recent(self) -> str:
        """One of the last values, seldom any."""
        return self.rng.choice(self.values[-8:] if self.rng.random() < 0.9 else self.values)

    def number(self) -> Value:
        """A number or the name of a scalar."""
        return self.rng.choice((*_NUMBERS, *SCALARS))

    def initial(self, distance: int) -> tuple[Value, ...]:
        """Initial values, often all equal."""
        if self.rng.random() < 0.5:
            return (self.number(),) * distance
        return tuple(self.number() for _ in range(distance))
