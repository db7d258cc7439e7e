"""Interpreter of graphs and kernels: their reference semantics, exact in 32-bit two's complement.

A graph is translated to the source of a Python function that runs its iterations; `hw.semantics` supplies
the text of each operation.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from hw.errors import InputError
from hw.fabric.operations import LOADS, STORES, WIDE
from hw.semantics import SEMANTICS, wrap
from sw.dfg.graph import DATA, PREDICATE, Edge, Graph, Node, NodeId, Output, Value
from sw.dfg.kernel import HostLoop, Kernel, Launch, Step, trips
from sw.dfg.operations import OPERATIONS

#: Most iterations in one launch; index strides cannot wrap around below this.
MOST_ITERATIONS = (1 << 24) - 1

Words = MutableSequence[int]


@dataclass(frozen=True)
class Results:
    """Results of a kernel: all arrays, and the scalars it returns."""

    arrays: Mapping[str, np.ndarray]
    scalars: tuple[int, ...]


class _Code:
    """Source of a graph's function: values v, queues q of values for later iterations, scalars s, memories m.

    A wide node has one variable per lane. The value of a wide output is that of lane 0.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.number = {node: i for i, node in enumerate(graph.order)}
        self.scalars = {name: f"s{i}" for i, name in enumerate(graph.scalars)}
        named = dict.fromkeys(n.memory.name for n in graph.nodes if n.memory)
        self.memories = {name: f"m{i}" for i, name in enumerate(named)}
        self.start: list[str] = []
        self.end: list[str] = []

    def text(self) -> str:
        """The complete function, which returns the outputs."""
        body = [line for node in self.graph.order for line in self._node(self.graph.by_id[node])]
        outputs = []
        for output in self.graph.outputs:
            queue = self._queue(output)
            self.end.append(f"{queue}.popleft()")
            outputs.append(f"{queue}[0]")
        lines = ["def loop(iterations, scalars, memories, fail):"]
        lines += [f"    [{', '.join(self.scalars.values())}] = scalars"] * bool(self.scalars)
        lines += [f"    [{', '.join(self.memories.values())}] = memories"] * bool(self.memories)
        lines += [f"    {line}" for line in self.start]
        lines += ["    for t in range(iterations):", "        pass"]
        lines += [f"        {line}" for line in (*body, *self.end)]
        return "\n".join([*lines, f"    return [{', '.join(outputs)}]"])

    def _lanes(self, node: NodeId) -> range:
        """The lanes in which a node's value has a variable of its own."""
        return range(self.graph.lanes if node in self.graph.wide else 1)

    def _value(self, node: NodeId, lane: int = 0) -> str:
        """The variable of a node's value; for a wide node, in this lane."""
        return f"v{self.number[node]}{f'_{lane}' * (node in self.graph.wide)}"

    def _queue(self, carried: Edge | Output, lane: int = 0) -> str:
        """A queue of a node's values in the last iterations, filled with the initial values at first."""
        name = f"q{len(self.start)}"
        self.start.append(f"{name} = deque([{', '.join(map(self._known, carried.initial))}])")
        self.end.append(f"{name}.append({self._value(carried.source, lane)})")
        return name

    def _known(self, value: Value) -> str:
        return f"({value})" if isinstance(value, int) else self.scalars[value]

    def _operand(self, given: Edge | Value) -> list[str]:
        """An operand: one text for all lanes, or one per lane."""
        if not isinstance(given, Edge):
            return [self._known(given)]
        lanes = self._lanes(given.source)
        if given.distance:
            return [f"{self._queue(given, lane)}.popleft()" for lane in lanes]
        return [self._value(given.source, lane) for lane in lanes]

    def _node(self, node: Node) -> Iterator[str]:
        own, names = f"v{self.number[node.id]}", dict[str, list[str]]()
        for operand, given in self.graph.operands(node).items():
            names[operand] = self._operand(given)
            if isinstance(given, Edge) and given.distance:
                lanes = self._lanes(given.source)
                held = [f"{own}{operand}{f'_{lane}' * (len(lanes) > 1)}" for lane in lanes]
                yield from (f"{name} = {text}" for name, text in zip(held, names[operand], strict=True))
                names[operand] = held
        condition = next((e for e in self.graph.incoming[node.id] if e.operand == PREDICATE), None)
        sense = "==" if condition and condition.negated else "!="
        holds = [f"{text} {sense} 0" for text in names.pop(PREDICATE, ())]
        operands = [names[name] for name in DATA if name in names]
        if node.op in WIDE:
            yield from self._neighbours(node, operands, holds or ["True"])
            return
        for lane in self._lanes(node.id):
            value = self._value(node.id, lane)
            body = self._action(node, value, operands, lane)
            if holds:
                yield f"{value} = 0"
                yield f"if {_in(holds, lane)}:"
                body = (f"    {line}" for line in body)
            yield from body

    def _action(self, node: Node, own: str, given: Sequence[Sequence[str]], lane: int) -> Iterator[str]:
        """Statements that execute a node in one lane."""
        operands = [_in(texts, lane) for texts in given]
        if node.op == "const":
            yield f"{own} = {self._known(node.immediate or 0)}"
            return
        if OPERATIONS[node.op].of_lanes:
            yield f"{own} = {self._across(node, given, lane)}"
            return
        if node.memory is None or node.op not in (*LOADS, *STORES, "table"):
            if OPERATIONS[node.op].constant:
                operands.append(self._known(node.immediate or 0))
            yield f"{own} = {SEMANTICS[node.op].text(*operands)}"
            return
        m, index = self.memories[node.memory.name], operands[0]
        yield f"if not 0 <= {index} < len({m}): fail({self.number[node.id]}, t, {index}, len({m}))"
        if node.op == "store":
            yield f"{own} = 0"
            yield f"{m}[{index}] = {operands[1]}"
        else:
            yield f"{own} = {m}[{index}]"

    def _across(self, node: Node, given: Sequence[Sequence[str]], lane: int) -> str:
        """A value that depends on the lane number or on all lanes."""
        if node.op == "lane":
            return str(lane)
        count = self.graph.lanes
        both = [_in(operand, other) for operand in given[:2] for other in range(count)]
        if node.op in ("even_lanes", "odd_lanes"):
            return both[2 * lane + (node.op == "odd_lanes")]
        if node.op == "shift_lanes":
            return f"({', '.join(both[lane : lane + count])})[{given[2][0]} % {count}]"
        every = f"({', '.join(both[:count])})"
        return f"max({every})" if node.op == "max_lanes" else f"wrap(sum({every}))"

    def _neighbours(self, node: Node, operands: Sequence[Sequence[str]], holds: list[str]) -> Iterator[str]:
        """An access to neighbouring elements: one for each lane whose predicate holds."""
        assert node.memory is not None
        m, (index, *_), count = self.memories[node.memory.name], operands[0], self.graph.lanes
        loads = node.op == "load_lanes"
        if loads:
            yield from (f"{self._value(node.id, lane)} = 0" for lane in range(count))
        yield f"if {' or '.join(holds)}:"
        wrong = f"{index} % {count} or not 0 <= {index} <= len({m}) - {count}"
        yield f"    if {wrong}: fail({self.number[node.id]}, t, {index}, len({m}))"
        for lane in range(count):
            element = f"{m}[{index} + {lane}]"
            moved = f"{self._value(node.id, lane)} = {element}" if loads else ""
            yield f"    if {_in(holds, lane)}: {moved or f'{element} = {_in(operands[1], lane)}'}"


def _in(texts: Sequence[str], lane: int) -> str:
    """Selects a lane's text if there is one per lane."""
    return texts[lane % len(texts)]


@functools.lru_cache(maxsize=256)
def _compiled(graph: Graph) -> tuple[Callable[..., list[int]], tuple[str, ...]]:
    """The compiled function of a graph, and its memories in order of the arguments."""
    code = _Code(graph)
    names: dict[str, Callable[..., Any]] = {"deque": deque, "wrap": wrap}
    exec(compile(code.text(), f"<graph {graph.name}>", "exec"), names)
    return names["loop"], tuple(code.memories)


def run_graph(
    graph: Graph,
    arrays: Mapping[str, Words],
    scalars: Mapping[str, int],
    iterations: int,
) -> dict[str, int]:
    """Runs a loop; updates the arrays (lists of integers) in place and returns the scalar results by name.

    A node whose predicate is false gives 0 and accesses nothing. Raises `InputError` for an opaque graph, a
    missing array or scalar, and an index out of bounds.
    """
    place = f"graph {graph.name!r}"
    if graph.opaque:
        raise InputError(f"{place}: its operators must have a meaning to run, they are opaque")
    if iterations > MOST_ITERATIONS:
        raise InputError(f"{place}: iterations must be at most {MOST_ITERATIONS}, not {iterations}")
    loop, names = _compiled(graph)
    memories: dict[str, Words] = {**arrays, **{name: list(words) for name, words in graph.tables}}
    for what, wanted, given in (("scalar", graph.scalars, scalars), ("array", names, memories)):
        for name in wanted:
            if name not in given:
                raise InputError(f"{place}: the {what} {name!r} must be given")

    def fail(number: int, iteration: int, index: int, size: int) -> NoReturn:
        node = graph.by_id[graph.order[number]]
        count = graph.lanes if graph.operation(node).of_lanes else 1
        limits = f"0 to {size - 1}" if size else "of an array that has elements"
        if count > 1:
            limits = f"a multiple of {count} with {count} elements of {size} from there on"
        what = f"{node.op} of {node.memory.name if node.memory else ''}[{index}]"
        at = f"node {node.id}, iteration {iteration}"
        raise InputError(f"{place}, {at}: {what}: the index must be {limits}")

    found = loop(iterations, [scalars[n] for n in graph.scalars], [memories[n] for n in names], fail)
    return {output.name: value for output, value in zip(graph.outputs, found, strict=True)}


class _Bytes(list[int]):
    """A list of single-byte elements: a store keeps the lowest byte."""

    def __init__(self, array: np.ndarray):
        super().__init__(array.tolist())
        self.low = int(np.iinfo(array.dtype).min)

    def __setitem__(self, index: object, value: object) -> None:
        assert isinstance(index, int)
        assert isinstance(value, int)
        super().__setitem__(index, (value - self.low) % 256 + self.low)


def words_of(array: np.ndarray) -> Words:
    """Converts an array of int32, int8 or uint8 for `execute`."""
    found: list[int] = array.tolist() if array.dtype.itemsize > 1 else _Bytes(array)
    return found


def run(kernel: Kernel, arrays: Mapping[str, np.ndarray], scalars: Mapping[str, int]) -> Results:
    """Runs a kernel; `scalars` includes the number of iterations. Raises `InputError` like `run_graph`."""
    words = {name: words_of(array) for name, array in arrays.items()}
    known = dict(scalars)
    execute(kernel.body, words, known)
    after = {name: np.array(words[name], dtype=array.dtype) for name, array in arrays.items()}
    return Results(after, tuple(v if isinstance(v, int) else known[v] for v in kernel.results))


def execute(body: Sequence[Step], arrays: Mapping[str, Words], scalars: dict[str, int]) -> None:
    """Runs steps; updates the arrays and sets scalars by name. Raises `InputError` like `run_graph`."""
    for step in body:
        count = trips(step.count, scalars)
        if isinstance(step, Launch):
            scalars.update(run_graph(step.graph, arrays, scalars, count))
            continue
        assert isinstance(step, HostLoop)
        for i in range(count):
            scalars[step.variable] = i
            execute(step.body, arrays, scalars)
