"""The meaning of a graph and of a kernel: an interpreter, exact on 32-bit two's complement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.dfg.graph import DATA, PREDICATE, Graph, Node, NodeId, Value
from sw.dfg.kernel import HostLoop, Kernel, Launch, Step
from sw.dfg.operations import OPERATIONS
from sw.ir.types import HIGH, LOW

#: Iterations of one launch: strides of indices are known not to wrap around below this.
MOST_ITERATIONS = (1 << 24) - 1

#: Called after every iteration with its number and what every node gave.
Observer = Callable[[int, Mapping[NodeId, int]], None]
Words = MutableSequence[int]
Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Results:
    """What a kernel leaves: every array, and the scalars that it returns."""

    arrays: Mapping[str, Array]
    scalars: tuple[int, ...]


class _Operand(NamedTuple):
    """A value of an earlier iteration: its place among the operands, the source's history, distance."""

    place: int
    source: int
    distance: int
    initial: tuple[int, ...]


class _Code:
    """A graph as a list of steps over numbered places: nodes first, then immediates and carried operands."""

    def __init__(self, graph: Graph, arrays: Mapping[str, Words], scalars: Mapping[str, int]):
        self.graph, self.scalars = graph, scalars
        self.memories: dict[str, Words] = {**arrays, **{name: list(words) for name, words in graph.tables}}
        self.number = {node: i for i, node in enumerate(graph.order)}
        self.values = [0] * len(graph.nodes)
        self.carried: list[_Operand] = []
        self.depth: dict[int, int] = {}
        self.iteration = 0
        for output in graph.outputs:
            self._reach(self.number[output.source], output.distance)
        self.steps = [self._step(graph.by_id[node]) for node in graph.order]
        self.history = {source: [0] * depth for source, depth in self.depth.items()}

    def value(self, value: Value) -> int:
        """A number, or that of a scalar."""
        if isinstance(value, int):
            return value
        if value not in self.scalars:
            raise InputError(f"graph {self.graph.name!r}: the scalar {value!r} must be given")
        return self.scalars[value]

    def _reach(self, source: int, distance: int) -> None:
        self.depth[source] = max(self.depth.get(source, 0), distance)

    def _place(self, value: int) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _step(self, node: Node) -> Callable[[], None]:
        """What one node does in an iteration."""
        places: dict[str, int] = {}
        negated = False
        for edge in self.graph.incoming[node.id]:
            if not edge.routed:
                continue
            source = self.number[edge.source]
            places[edge.operand] = source
            if edge.distance:
                place = places[edge.operand] = self._place(0)
                initial = tuple(self.value(v) for v in edge.initial)
                self.carried.append(_Operand(place, source, edge.distance, initial))
                self._reach(source, edge.distance)
            if edge.operand == PREDICATE:
                negated = edge.negated
        operation = OPERATIONS[node.op]
        if node.immediate is not None:
            opened = [d for d in DATA[: operation.operands] if d not in places]
            places[opened[0] if opened else "I1"] = self._place(self.value(node.immediate))
        own, values = self.number[node.id], self.values
        action = self._action(node, own, [places[d] for d in DATA if d in places])
        if PREDICATE not in places:
            return action
        predicate = places[PREDICATE]

        def guarded() -> None:
            if (values[predicate] == 0) is negated:
                action()
            else:
                values[own] = 0

        return guarded

    def _action(self, node: Node, own: int, places: Sequence[int]) -> Callable[[], None]:
        values, meaning = self.values, OPERATIONS[node.op].meaning
        if node.op == "const":
            (only,) = places

            def copy() -> None:
                values[own] = values[only]

            return copy
        if meaning is None:
            return self._access(node, own, places)
        match places:
            case [a]:

                def act() -> None:
                    values[own] = meaning(values[a])
            case [a, b]:

                def act() -> None:
                    values[own] = meaning(values[a], values[b])
            case _:
                a, b, c = places

                def act() -> None:
                    values[own] = meaning(values[a], values[b], values[c])

        return act

    def _access(self, node: Node, own: int, places: Sequence[int]) -> Callable[[], None]:
        """A load, store or table load; raises `InputError` outside of the array."""
        assert node.memory is not None
        if node.memory.name not in self.memories:
            raise InputError(f"graph {self.graph.name!r}: the array {node.memory.name!r} must be given")
        words, values, size = (
            self.memories[node.memory.name],
            self.values,
            len(self.memories[node.memory.name]),
        )
        index = places[0]

        def checked() -> int:
            found = values[index]
            if not 0 <= found < size:
                assert node.memory is not None
                what = f"{node.op} of {node.memory.name}[{found}]"
                limits = f"0 to {size - 1}" if size else "of an array that has elements"
                place = f"graph {self.graph.name!r}, node {node.id}, iteration {self.iteration}"
                raise InputError(f"{place}: {what}: the index must be {limits}")
            return found

        if node.op == "store":
            value = places[1]

            def store() -> None:
                words[checked()] = values[value]

            return store

        def load() -> None:
            values[own] = words[checked()]

        return load

    def run(self, iterations: int, observe: Observer | None) -> None:
        """All iterations."""
        values, history = self.values, self.history
        for t in range(iterations):
            self.iteration = t
            for place, source, distance, initial in self.carried:
                past = history[source]
                values[place] = initial[t] if t < distance else past[(t - distance) % len(past)]
            for step in self.steps:
                step()
            for source, past in history.items():
                past[t % len(past)] = values[source]
            if observe:
                observe(t, {node: values[i] for node, i in self.number.items()})

    def outputs(self, iterations: int) -> dict[str, int]:
        """The scalar results after this many iterations."""
        found: dict[str, int] = {}
        for output in self.graph.outputs:
            past = self.history[self.number[output.source]]
            if iterations < output.distance:
                found[output.name] = self.value(output.initial[iterations])
            else:
                found[output.name] = past[(iterations - output.distance) % len(past)]
        return found


def run_graph(
    graph: Graph,
    arrays: Mapping[str, Words],
    scalars: Mapping[str, int],
    iterations: int,
    observe: Observer | None = None,
) -> dict[str, int]:
    """Run a loop; changes the arrays (lists of integers) and gives the scalar results by name.

    A node whose predicate does not hold gives 0 and accesses nothing. Raises `InputError` for opaque graphs,
    for arrays and scalars that are missing, and for an index outside of its array.
    """
    if graph.opaque:
        raise InputError(f"graph {graph.name!r}: its operators must have a meaning to run, they are opaque")
    if iterations > MOST_ITERATIONS:
        raise InputError(
            f"graph {graph.name!r}: iterations must be at most {MOST_ITERATIONS}, not {iterations}"
        )
    code = _Code(graph, arrays, scalars)
    code.run(iterations, observe)
    return code.outputs(iterations)


def run(
    kernel: Kernel, arrays: Mapping[str, Array], scalars: Mapping[str, int], iterations: int = 0
) -> Results:
    """Run a kernel; `iterations` is what the name in its outermost `range()` holds.

    Raises `InputError` for arguments that are missing, unknown, of another type or beyond 32 bits, and as
    `run_graph`.
    """
    place = f"kernel {kernel.name!r}"
    names = [array.name for array in kernel.arrays]
    for what, wanted, given in (("arrays", names, arrays), ("scalars", kernel.scalars, scalars)):
        if set(wanted) != set(given):
            listed = ", ".join(sorted(wanted)) or "none"
            raise InputError(f"{place}: {what} must be {listed}, not {', '.join(sorted(given)) or 'none'}")
    for name, array in arrays.items():
        if array.dtype != np.int32 or array.ndim != 1:
            found = f"{array.dtype} of {array.ndim} dimensions"
            raise InputError(f"{place}: array {name!r} must be int32 of one dimension, not {found}")
    known = dict(scalars)
    if kernel.iterations is not None:
        known[kernel.iterations] = iterations
    for name, value in known.items():
        if not LOW <= value < HIGH:
            raise InputError(f"{place}: scalar {name!r} must fit 32 bits, not {value}")
    words: dict[str, Words] = {name: array.tolist() for name, array in arrays.items()}
    execute(kernel.body, words, known)
    after = {name: np.array(values, dtype=np.int32) for name, values in words.items()}
    return Results(after, tuple(v if isinstance(v, int) else known[v] for v in kernel.results))


def execute(body: Sequence[Step], arrays: Mapping[str, Words], scalars: dict[str, int]) -> None:
    """Run steps; changes the arrays, and sets scalars by name. Raises `InputError` as `run_graph`."""
    for step in body:
        count = step.count.evaluate(scalars)
        if isinstance(step, Launch):
            scalars.update(run_graph(step.graph, arrays, scalars, count))
            continue
        assert isinstance(step, HostLoop)
        for i in range(count):
            scalars[step.variable] = i
            execute(step.body, arrays, scalars)
