"""Graphs as JSON (docs/dfg.md): reading with the place of every mistake, writing what reads back the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hw.errors import InputError
from sw.dfg.end_marks import distinct
from sw.dfg.graph import OPERANDS, Edge, Graph, Memory, Node, NodeId, Output, Value
from sw.ir.errors import IRError, Location
from sw.ir.load import read_text
from sw.ir.types import HIGH, LOW

_GRAPH = ("name", "nodes", "edges", "opaque", "outputs", "tables")
#: What documents a graph and means nothing here.
_NOTES = ("origin", "license")
_NODE = ("id", "op", "const", "scalar", "memory")
_EDGE = ("src", "dst", "distance", "operand", "negated", "initial")
_OUTPUT = ("name", "src", "distance", "initial")
#: Digits of a number that Python still converts.
_LONGEST = 4000
#: Iterations back that an edge may reach.
_FARTHEST = 1 << 16


def load_graph(path: str | Path) -> Graph:
    """Read the graph in a file; raises `InputError` with place, what was found and what is needed."""
    name = str(path)
    return parse_graph(read_text(path, name), name)


def parse_graph(text: str, file: str = "<text>") -> Graph:
    """Read a graph; raises `InputError` with place, what was found and what is needed."""
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_int=_whole, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise IRError(Location(file, error.lineno, error.colno), error.msg, "JSON") from None
    except RecursionError:
        raise InputError(f"{file}: must be JSON, not a text nested too deep") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return _GraphReader(file).graph(data)


def format_graph(graph: Graph) -> str:
    """The graph as a text that `parse_graph` reads back."""
    data: dict[str, Any] = {"name": graph.name, **dict(graph.notes), "opaque": graph.opaque}
    if graph.tables:
        data["tables"] = {name: list(words) for name, words in graph.tables}
    data["nodes"] = [_node(node) for node in graph.nodes]
    data["edges"] = [_edge(edge) for edge in graph.edges]
    if graph.outputs:
        data["outputs"] = [
            {"name": o.name, "src": o.source, "distance": o.distance, "initial": list(o.initial)}
            for o in graph.outputs
        ]
    return json.dumps(data, indent=1) + "\n"


def _node(node: Node) -> dict[str, Any]:
    data: dict[str, Any] = {"id": node.id, "op": node.op}
    if node.const is not None:
        data["const"] = node.const
    if node.scalar is not None:
        data["scalar"] = node.scalar
    if node.memory is not None:
        data["memory"] = {"name": node.memory.name}
        if node.memory.bytes is not None:
            data["memory"]["bytes"] = node.memory.bytes
    return data


def _edge(edge: Edge) -> dict[str, Any]:
    data: dict[str, Any] = {"src": edge.source, "dst": edge.target, "distance": edge.distance}
    data["operand"] = edge.operand
    if edge.negated:
        data["negated"] = True
    if edge.initial:
        data["initial"] = list(edge.initial)
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ; Python would keep the last of equal ones and say nothing."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{name[:40]!r} must be given once, it is there twice")
        values[name] = value
    return values


def _whole(text: str) -> float:
    """A whole number; one that Python does not convert is endless, which every place refuses."""
    return int(text) if len(text) < _LONGEST else math.inf


def _constant(text: str) -> float:
    raise InputError(f"must be JSON, which has no {text}")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = repr(text) if isinstance(value, str) else text
    return text if len(text) <= 60 else text[:57] + "..."


class _GraphReader:
    """Reads pieces; `place` is where they are, like `edges[3].src`."""

    def __init__(self, file: str):
        self.file = file

    def error(self, place: str, needed: str, value: object) -> InputError:
        """An error at a place."""
        return InputError(f"{self.file}: {place} must be {needed}, not {_shown(value)}")

    def graph(self, data: Any) -> Graph:
        """The whole graph."""
        self.known(data, (*_GRAPH, *_NOTES), "the graph")
        name = self.text(data.get("name"), "name")
        opaque = self.boolean(data.get("opaque", True), "opaque")
        nodes = [self.node(item, f"nodes[{i}]") for i, item in enumerate(self.items(data, "nodes"))]
        edges = [self.edge(item, f"edges[{i}]") for i, item in enumerate(self.items(data, "edges"))]
        outputs = self.items(data, "outputs") if "outputs" in data else []
        found = tuple(self.output(item, f"outputs[{i}]") for i, item in enumerate(outputs))
        tables = data.get("tables", {})
        if not isinstance(tables, dict):
            raise self.error("tables", "an object of lists", tables)
        words = tuple((key, self.words(value, f"tables.{key}")) for key, value in tables.items())
        notes = tuple((key, self.text(data[key], key)) for key in _NOTES if key in data)
        named, joined = distinct(nodes, edges) if opaque else (tuple(nodes), tuple(edges))
        try:
            return Graph(name, named, joined, opaque, found, words, notes)
        except InputError as error:
            raise InputError(f"{self.file}: {error}") from None

    def known(self, data: Any, names: tuple[str, ...], place: str) -> None:
        """Only an object with these names."""
        if not isinstance(data, dict):
            raise self.error(place, "an object", data)
        for name in data:
            if name not in names:
                raise self.error(f"a name in {place}", f"one of {', '.join(names)}", name)

    def items(self, data: Mapping[str, Any], key: str) -> list[Any]:
        """A list."""
        found = data.get(key)
        if not isinstance(found, list):
            raise self.error(key, "a list", found)
        return found

    def words(self, value: Any, place: str) -> tuple[int, ...]:
        """Numbers of 32 bits."""
        if not isinstance(value, list):
            raise self.error(place, "a list of numbers", value)
        return tuple(self.number(item, f"{place}[{i}]", LOW, HIGH) for i, item in enumerate(value))

    def node(self, data: Any, place: str) -> Node:
        """One node."""
        self.known(data, _NODE, place)
        const, scalar, memory = data.get("const"), data.get("scalar"), data.get("memory")
        return Node(
            self.id(data.get("id"), f"{place}.id"),
            self.text(data.get("op"), f"{place}.op"),
            None if const is None else self.number(const, f"{place}.const", LOW, HIGH),
            None if scalar is None else self.text(scalar, f"{place}.scalar"),
            None if memory is None else self.memory(memory, f"{place}.memory"),
        )

    def memory(self, data: Any, place: str) -> Memory:
        """What a node accesses."""
        self.known(data, ("name", "bytes"), place)
        size = data.get("bytes")
        size = None if size is None else self.number(size, f"{place}.bytes", 0, 1 << 62)
        return Memory(self.text(data.get("name"), f"{place}.name"), size)

    def edge(self, data: Any, place: str) -> Edge:
        """One edge."""
        self.known(data, _EDGE, place)
        operand = data.get("operand")
        if operand not in OPERANDS:
            raise self.error(f"{place}.operand", f"one of {', '.join(OPERANDS)}", operand)
        return Edge(
            self.id(data.get("src"), f"{place}.src"),
            self.id(data.get("dst"), f"{place}.dst"),
            self.number(data.get("distance", 0), f"{place}.distance", 0, _FARTHEST),
            operand,
            self.boolean(data.get("negated", False), f"{place}.negated"),
            self.values(data.get("initial", []), f"{place}.initial"),
        )

    def output(self, data: Any, place: str) -> Output:
        """One scalar result."""
        self.known(data, _OUTPUT, place)
        return Output(
            self.text(data.get("name"), f"{place}.name"),
            self.id(data.get("src"), f"{place}.src"),
            self.number(data.get("distance"), f"{place}.distance", 1, _FARTHEST),
            self.values(data.get("initial"), f"{place}.initial"),
        )

    def values(self, value: Any, place: str) -> tuple[Value, ...]:
        """Numbers and names of scalars."""
        if not isinstance(value, list):
            raise self.error(place, "a list of numbers and names of scalars", value)
        return tuple(
            item if isinstance(item, str) else self.number(item, f"{place}[{i}]", LOW, HIGH)
            for i, item in enumerate(value)
        )

    def id(self, value: Any, place: str) -> NodeId:
        """The id of a node."""
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self.error(place, "a whole number or a text", value)

    def text(self, value: Any, place: str) -> str:
        """A text that is not empty."""
        if isinstance(value, str) and value:
            return value
        raise self.error(place, "a text", value)

    def boolean(self, value: Any, place: str) -> bool:
        """True or false."""
        if isinstance(value, bool):
            return value
        raise self.error(place, "true or false", value)

    def number(self, value: Any, place: str, low: int, high: int) -> int:
        """A whole number within limits, half open."""
        if isinstance(value, int) and not isinstance(value, bool) and low <= value < high:
            return value
        raise self.error(place, f"a whole number of {low} to {high - 1}", value)
