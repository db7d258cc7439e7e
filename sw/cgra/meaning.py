"""What a graph asks of a configuration, and what a configuration does, in one form that can be compared."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from hw.fabric.bitstream import PATCHED
from hw.fabric.decode import Decoded, Executed
from hw.fabric.layout import OPERAND_FIELDS
from sw.cgra.match import Shape
from sw.dfg.graph import DATA, PREDICATE, Edge, Graph, Node, NodeId
from sw.dfg.operations import Unit

_MASK = (1 << 32) - 1
_FIELD = dict(zip((*DATA, PREDICATE), OPERAND_FIELDS, strict=True))
#: Operand mux of the predicate.
_P = OPERAND_FIELDS[-1]


@dataclass(frozen=True)
class Vertex:
    """An operation without what flows into it.

    `numbers`: operands that are a number (`const` for what a `const` gives, or an opaque operator is).
    `initial`: operands that are an initial value first, in how many iterations, the value (None: a scalar).
    `words`: those of a table.
    """

    op: str
    negated: bool
    numbers: tuple[tuple[str, int | str], ...] = ()
    initial: tuple[tuple[str, int, int | None], ...] = ()
    words: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Name:
    """An array or a scalar; `number` where it is known, else it may be any."""

    what: str
    number: int | None


@dataclass
class Meaning:
    """Operations first, then arrays and scalars, as vertices; `texts` say what each is.

    An edge's label is `(operand, distance)` between operations, and what it is for from a `Name`.
    """

    vertices: list[Vertex | Name] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    edges: list[tuple[int, int, Hashable]] = field(default_factory=list)
    operations: int = 0

    def shape(self) -> Shape:
        """As a labelled graph."""
        return Shape(self.vertices, self.edges)

    def add(self, vertex: Vertex | Name, text: str) -> int:
        """A new vertex."""
        self.vertices.append(vertex)
        self.texts.append(text)
        return len(self.vertices) - 1


class _Names:
    """Arrays and scalars as vertices, each once."""

    def __init__(self, meaning: Meaning, number: Callable[[str, Hashable], int | None]):
        self.meaning, self.number = meaning, number
        self.known: dict[tuple[str, Hashable], int] = {}

    def use(self, what: str, name: Hashable, target: int, purpose: str) -> None:
        key = what, name
        if key not in self.known:
            vertex = Name(what, self.number(what, name))
            self.known[key] = self.meaning.add(vertex, f"{what} {name}")
        self.meaning.edges.append((self.known[key], target, purpose))


def opaque_number(node: Node) -> int:
    """What stands in a configuration for an operator of which nothing but the name is known."""
    text = node.op if node.immediate is None else f"{node.op}:{node.immediate}"
    return zlib.crc32(text.encode())


def operand_fields(graph: Graph, node: NodeId) -> dict[str, Edge]:
    """By operand mux: the edge that feeds it. Data operands of opaque operators take A, B, C in order."""
    routed = [edge for edge in graph.incoming[node] if edge.routed]
    if not graph.opaque:
        return {_FIELD[edge.operand]: edge for edge in routed}
    data = [edge for edge in routed if edge.operand != PREDICATE]
    fed = dict(zip(OPERAND_FIELDS, data, strict=False))
    return fed | {_FIELD[edge.operand]: edge for edge in routed if edge.operand == PREDICATE}


def of_graph(graph: Graph, arrays: Mapping[str, int] | None, scalars: Mapping[str, int] | None) -> Meaning:
    """What a graph asks for; numbers of arrays and scalars by name, where they are known."""
    meaning = Meaning()
    known = {"array": arrays, "scalar": scalars}

    def number(what: str, name: Hashable) -> int | None:
        table = known[what]
        return None if table is None else table.get(str(name), -1)

    names = _Names(meaning, number)
    place = {node.id: meaning.add(_of_node(graph, node), f"node {node}") for node in graph.nodes}
    meaning.operations = len(place)
    for node in graph.nodes:
        target = place[node.id]
        fed = operand_fields(graph, node.id)
        for name, edge in fed.items():
            meaning.edges.append((place[edge.source], target, (name, edge.distance)))
        if graph.opaque:
            continue
        # An entry has one initial value for all operands that need one: it is named once.
        for value in dict.fromkeys(value for edge in fed.values() for value in edge.initial):
            if isinstance(value, str):
                names.use("scalar", value, target, "init")
        if node.scalar is not None:
            names.use("scalar", node.scalar, target, _open(graph, node))
        if node.memory is not None and node.op != "table":
            names.use("array", node.memory.name, target, "array")
    return meaning


def _open(graph: Graph, node: Node) -> str:
    """The operand that is the node's immediate."""
    fed = operand_fields(graph, node.id)
    count = 0 if node.op == "const" else 3
    return next((name for name in OPERAND_FIELDS[:count] if name not in fed), "const")


def _of_node(graph: Graph, node: Node) -> Vertex:
    fed = operand_fields(graph, node.id)
    negated = any(edge.negated for edge in fed.values())
    if graph.opaque:
        op = "opaque_memory" if graph.unit(node) is Unit.MEMORY else "opaque"
        return Vertex(op, negated, (("const", opaque_number(node)),))
    initial: list[tuple[str, int, int | None]] = []
    for name in OPERAND_FIELDS:
        for value in dict.fromkeys(fed[name].initial if name in fed else ()):
            number = None if isinstance(value, str) else value & _MASK
            initial.append((name, fed[name].distance, number))
    numbers = () if node.const is None else ((_open(graph, node), node.const & _MASK),)
    words = None
    if node.op == "table" and node.memory is not None:
        words = tuple(word & _MASK for word in dict(graph.tables)[node.memory.name])
    return Vertex(node.op, negated, numbers, tuple(initial), words)


def of_configuration(decoded: Decoded, numbered_arrays: bool, numbered_scalars: bool) -> Meaning:
    """What a configuration does; numbers of arrays and scalars only where they are to be compared."""
    meaning = Meaning()
    known = {"array": numbered_arrays, "scalar": numbered_scalars}
    names = _Names(meaning, lambda what, name: int(str(name)) if known[what] else None)
    configuration = decoded.configuration
    # Patches are done in their order: the last one counts.
    patches = {(PATCHED[p.what], p.pe, p.at): p.scalar for p in configuration.patches if p.what < 2}
    for executed in decoded.operations:
        row, col = configuration.fabric.at(executed.pe)
        text = f"{executed.operation.name} in PE ({row},{col}), step {executed.step}"
        place = executed.pe, executed.step % configuration.ii
        const, init = (patches.get((what, *place)) for what in ("const", "init"))
        meaning.add(_of_executed(decoded, executed, const is not None, init is not None), text)
    meaning.operations = len(decoded.operations)
    for target, executed in enumerate(decoded.operations):
        place = executed.pe, executed.step % configuration.ii
        const, init = (patches.get((what, *place)) for what in ("const", "init"))
        if const is not None:
            for name in _takes_const(executed):
                names.use("scalar", const, target, name)
        if init is not None and _initial(executed):
            names.use("scalar", init, target, "init")
        if executed.operation.name in ("load", "store"):
            names.use("array", executed.array, target, "array")
    meaning.edges += [(flow.source, flow.target, (flow.field, flow.distance)) for flow in decoded.flows]
    return meaning


def _opaque(executed: Executed) -> bool:
    return executed.operation.name in ("opaque", "opaque_memory")


def _takes_const(executed: Executed) -> list[str]:
    """What the constant of an entry is used for."""
    if _opaque(executed) or executed.operation.name in ("const", "table"):
        return ["const"]
    # `const` is the second source of every data operand mux.
    return [name for name in executed.operands if name != _P and executed.entry[name] == 1]


def _initial(executed: Executed) -> list[str]:
    """The operands that are an initial value first."""
    return [n for i, n in enumerate(OPERAND_FIELDS) if executed.initial >> i & 1 and n in executed.operands]


def _of_executed(decoded: Decoded, executed: Executed, const: bool, init: bool) -> Vertex:
    """An operation whose constant or initial value may be patched."""
    numbers: list[tuple[str, int | str]] = []
    patched = _takes_const(executed) if const else []
    if (_opaque(executed) or executed.operation.name == "const") and not const:
        numbers.append(("const", executed.const & _MASK))
    for name, operand in executed.operands.items():
        if operand.why:
            numbers.append((name, operand.why))
        elif operand.value is not None and name not in patched:
            if name == _P:
                # What is always there is no predicate.
                numbers += [] if operand.value == 1 else [(name, operand.value)]
            elif not _opaque(executed):
                numbers.append((name, operand.value & _MASK))
    initial = tuple(
        (name, executed.first, None if init else executed.init & _MASK) for name in _initial(executed)
    )
    words = None
    if executed.operation.name == "table":
        start, count = executed.const & 0xFFFF, (executed.const & _MASK) >> 16
        words = decoded.configuration.tables.get(executed.pe, ())[start : start + count]
        words = tuple(word & _MASK for word in words) if len(words) == count else None
    return Vertex(executed.operation.name, executed.negate, tuple(numbers), initial, words)
