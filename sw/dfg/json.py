"""Graphs as JSON (docs/dfg.md): a reader that locates every error, and a writer."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hw.errors import InputError
from sw.dfg.graph import OPERANDS, PREDICATE, Edge, Graph, Memory, Node, NodeId, Output, Value
from sw.ir.errors import IRError, Location
from sw.ir.load import parse_json, read_text
from sw.ir.types import HIGH, LOW

#: JSON keys of node, edge and output fields that differ from the field's name.
_KEYS = {"source": "src", "target": "dst"}
#: Keys that only document a graph.
_NOTES = ("origin", "license")
#: Largest distance of an edge, in iterations.
_FARTHEST = 1 << 16

#: Converts the JSON value at a place such as `edges[3].src`; raises `InputError`.
Reader = Callable[[Any, str], Any]


def load_graph(path: str | Path) -> Graph:
    """Reads a graph file. Raises `InputError` with the place, what was found and what is needed."""
    name = str(path)
    return parse_graph(read_text(path, name), name)


def parse_graph(text: str, file: str = "<text>") -> Graph:
    """Parses a graph. Raises `InputError` with the place, what was found and what is needed."""
    try:
        data = parse_json(text, lambda name: repr(name[:40]), parse_constant=_constant)
        graph: Graph = _graph(data, "")
    except json.JSONDecodeError as error:
        raise IRError(Location(file, error.lineno, error.colno), error.msg, "JSON") from None
    except RecursionError:
        raise InputError(f"{file}: must be JSON, not a text nested too deep") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return graph


def format_graph(graph: Graph) -> str:
    """Formats a graph as text that `parse_graph` reads back."""
    data: dict[str, Any] = {"name": graph.name, **dict(graph.notes), "opaque": graph.opaque}
    if graph.lanes > 1:
        data["lanes"] = graph.lanes
    if graph.tables:
        data["tables"] = dict(graph.tables)
    data["nodes"] = [_written(node) for node in graph.nodes]
    data["edges"] = [_written(edge) for edge in graph.edges]
    if graph.outputs:
        data["outputs"] = [_written(output) for output in graph.outputs]
    return json.dumps(data, indent=1) + "\n"


def _written(value: Any) -> Any:
    """A node, edge, output or memory as a JSON object without its absent fields."""
    if not dataclasses.is_dataclass(value):
        return value
    fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return {
        _KEYS.get(name, name): _written(v)
        for name, v in fields
        if v is not None and v is not False and v != ()
    }


def _constant(text: str) -> float:
    raise InputError(f"must be JSON, which has no {text}")


# Readers of values


def _wrong(place: str, needed: str, value: object) -> InputError:
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return InputError(f"{place} must be {needed}, not {text if len(text) <= 60 else text[:57] + '...'}")


def _one(needed: str, fits: Callable[[Any], bool]) -> Reader:
    """Reads a single value that satisfies `fits`."""

    def read(value: Any, place: str) -> Any:
        if fits(value):
            return value
        raise _wrong(place, needed, value)

    return read


def _number(low: int, high: int) -> Reader:
    """Reads an integer in `low <= value < high`."""
    return _one(f"a whole number of {low} to {high - 1}", lambda v: type(v) is int and low <= v < high)


_text = _one("a text", lambda v: isinstance(v, str) and v != "")
_boolean = _one("true or false", lambda v: isinstance(v, bool))
_id = _one("a whole number or a text", lambda v: type(v) is int or (isinstance(v, str) and v != ""))
_operand = _one(f"one of {', '.join(OPERANDS)}", lambda v: v in OPERANDS)
_word = _number(LOW, HIGH)


def _value(value: Any, place: str) -> Value:
    found: Value = value if isinstance(value, str) else _word(value, place)
    return found


def _list(reader: Reader, what: str = "") -> Reader:
    """Reads a list whose elements `reader` reads."""

    def read(value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _wrong(place, f"a list{what}", value)
        return tuple(reader(item, f"{place}[{i}]") for i, item in enumerate(value))

    return read


def _tables(value: Any, place: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Reads the tables: lists of words by name."""
    if not isinstance(value, dict):
        raise _wrong(place, "an object of lists", value)
    words = _list(_word, " of numbers")
    return tuple((name, words(held, f"{place}.{name}")) for name, held in value.items())


def _record(kind: Callable[..., Any], needed: Mapping[str, Reader], others: Mapping[str, Reader]) -> Reader:
    """Reads an object as an instance of `kind`; keys in `others` may be missing or null."""
    readers = {**needed, **others}
    own = {key: name for name, key in _KEYS.items()}

    def read(data: Any, place: str) -> Any:
        within = place or "the graph"
        if not isinstance(data, dict):
            raise _wrong(within, "an object", data)
        for name in data:
            if name not in readers:
                raise _wrong(f"a name in {within}", f"one of {', '.join(readers)}", name)
        found = {
            own.get(name, name): reader(data.get(name), f"{place}.{name}" if place else name)
            for name, reader in readers.items()
            if name in needed or data.get(name) is not None
        }
        return kind(**found)

    return read


def _made(nodes: Sequence[Node], edges: Sequence[Edge], opaque: bool = True, **others: Any) -> Graph:
    """Makes a graph, which is opaque by default."""
    notes = tuple((key, others.pop(key)) for key in _NOTES if key in others)
    found = distinct(nodes, edges) if opaque else (nodes, edges)
    return Graph(nodes=tuple(found[0]), edges=tuple(found[1]), opaque=opaque, notes=notes, **others)


_initial = _list(_value, " of numbers and names of scalars")
_memory = _record(Memory, {"name": _text}, {"bytes": _number(0, 1 << 62)})
_node = _record(Node, {"id": _id, "op": _text}, {"const": _word, "scalar": _text, "memory": _memory})
_edge = _record(
    Edge,
    {"src": _id, "dst": _id, "operand": _operand},
    {"distance": _number(0, _FARTHEST), "negated": _boolean, "initial": _initial},
)
_output = _record(
    Output, {"name": _text, "src": _id, "distance": _number(1, _FARTHEST), "initial": _initial}, {}
)
_graph = _record(
    _made,
    {"name": _text, "nodes": _list(_node), "edges": _list(_edge)},
    {"opaque": _boolean, "outputs": _list(_output), "tables": _tables, "lanes": _word}
    | dict.fromkeys(_NOTES, _text),
)

#: Operators of a loop's end mark: `storeb` writes a constant, with the start flag as its predicate.
_CONSTANT, _STORE, _FLAG = "movc", "storeb", "loadb"


def distinct(nodes: Sequence[Node], edges: Sequence[Edge]) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
    """Gives nodes unique ids: node 88 of the end mark becomes `88.storeb`, the other one stays 88.

    The mark has exactly two edges, so it is known which node each edge belongs to. Other duplicate ids are
    left alone.
    """
    count = Counter(node.id for node in nodes)
    marks = Counter(node.id for node in nodes if node.op in (_CONSTANT, _STORE))
    known = {(node.id, node.op) for node in nodes}

    def named(node: NodeId, op: str) -> NodeId:
        """The new id of the end mark's node with this id and operator."""
        shared = count[node] == 2 and marks[node] == 1 and (node, op) in known
        return f"{node}.{op}" if shared and op in (_CONSTANT, _STORE) else node

    found: list[Edge] = []
    taken: set[tuple[NodeId, str]] = set()
    for edge in edges:
        constant = (edge.source, _CONSTANT) in known and edge.operand == "I1"
        flag = (edge.source, _FLAG) in known and edge.operand == PREDICATE
        stored = (edge.target, _STORE) in known and (edge.target, edge.operand) not in taken
        if stored and (constant or flag):
            taken.add((edge.target, edge.operand))
            source = named(edge.source, _CONSTANT) if constant else edge.source
            edge = dataclasses.replace(edge, source=source, target=named(edge.target, _STORE))
        found.append(edge)
    return tuple(dataclasses.replace(node, id=named(node.id, node.op)) for node in nodes), tuple(found)
