"""A disk cache of mappings: graphs of equal structure are mapped once per fabric, or refused once.

Numbers, table contents and array addresses do not matter to a mapping. They are removed before mapping, so
the mapping does not depend on which graph of a structure came first.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hw.cache import directory, fingerprint, locked, write
from hw.fabric import Fabric
from sw.cgra.bounds import MII, bound
from sw.cgra.encode import differences
from sw.cgra.legal import prepare
from sw.cgra.mapping import Hop, Mapping, Place, Register
from sw.cgra.search import EFFORTS, NoMappingError, SearchResult, map_graphs
from sw.dfg.graph import Graph, Memory, Node

#: Increase when the file format changes.
VERSION = 2
#: Search effort for kernels: the smallest. On fabrics with few links, larger efforts take minutes and save a
#: cycle of II now and then, while most kernels wait for the array anyway.
BUDGET = EFFORTS[:1]
#: Errors that corrupt or foreign cache files may cause.
BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError)
#: Receives a message when a loop is being mapped, which may take minutes.
_listener: ContextVar[Callable[[str], None]] = ContextVar("listener", default=lambda text: None)


@contextlib.contextmanager
def heard(listener: Callable[[str], None]) -> Iterator[None]:
    """Calls `listener` with a message when mapping of a loop begins, and with an empty text when it ends."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def heard_of(part: str) -> contextlib.AbstractContextManager[None]:
    """Adds the name of a part of the model to the messages of the current listener."""
    listener = _listener.get()
    return heard(lambda text: listener(text and f"{text} ({part})"))


@functools.cache
def mapper(*packages: str) -> str:
    """A fingerprint of sources, by default the mapper's: another version may find other mappings."""
    folders = [resources.files(package) for package in packages or ("sw.cgra", "sw.dfg")]
    files = sorted((f.name, f) for folder in folders for f in folder.iterdir() if f.name.endswith(".py"))
    return fingerprint(text for name, file in files for text in (name, file.read_text(encoding="utf-8")))


def structure(graph: Graph) -> Graph:
    """The same graph without anything that does not matter to a mapping, except its name.

    `graph` is prepared (`sw.cgra.legal.prepare`).
    """
    place = {node.id: i for i, node in enumerate(graph.nodes)}
    arrays: dict[str, str] = {}
    tables = {name: f"t{i}" for i, (name, _) in enumerate(graph.tables)}

    def memory(node: Node) -> Memory | None:
        if node.memory is None:
            return None
        name = node.memory.name
        return Memory(tables[name] if node.op == "table" else arrays.setdefault(name, f"a{len(arrays)}"))

    nodes = tuple(
        replace(n, id=i, const=None if n.immediate is None else 0, scalar=None, memory=memory(n))
        for i, n in enumerate(graph.nodes)
    )
    edges = tuple(
        replace(e, source=place[e.source], target=place[e.target], initial=(0,) * len(e.initial))
        for e in graph.edges
    )
    words = tuple((tables[name], (0,) * len(held)) for name, held in graph.tables)
    return Graph(graph.name, nodes, edges, tables=words, lanes=graph.lanes)


def find(graph: Graph, fabric: Fabric, seed: int = 0, compared: bool = True) -> tuple[SearchResult, bool]:
    """Finds a mapping of a graph on a fabric, and says whether it came from disk.

    A mapping from disk is `compared` with the graph. Raises `NoMappingError` if there is no mapping, which is
    searched once and then known from disk, and `InputError` if an operation finds no PE, or if the cache
    cannot be written.
    """
    prepared = prepare(graph, fabric)
    common = structure(prepared)
    fabric_text = json.dumps(fabric.as_dict(), sort_keys=True)
    parts = (fabric_text, repr(common.nodes), repr(common.edges), repr(common.tables))
    key = fingerprint((str(VERSION), mapper(), str(seed), repr(BUDGET), *parts))
    path = directory() / "mappings" / f"{key}.json"
    held = _read(path, common, fabric, compared)
    found = held if held is not None else _mapped(path, common, prepared, fabric, seed, compared)
    mapping = found.found
    assert mapping.graph == common, "the structure of a prepared graph is prepared"
    places = {node.id: mapping.places[i] for i, node in enumerate(prepared.nodes)}
    mapping = replace(mapping, graph=prepared, places=places)
    return replace(found, graph=graph, prepared=prepared, mapping=mapping), held is not None


def _mapped(
    path: Path, common: Graph, prepared: Graph, fabric: Fabric, seed: int, compared: bool
) -> SearchResult:
    """Computes a mapping; if several processes need it at once, one computes it and the others wait."""
    bound(prepared, fabric)  # raises an error with the graph's own name if an operation has no PE
    say, refusal = _listener.get(), _refusal(path, common)
    _raise_refused(refusal, common, fabric)
    try:
        with locked(path, lambda: say(f"waiting for a loop of {fabric.name} that another process maps")):
            held = _read(path, common, fabric, compared)
            if held is not None:
                return held
            _raise_refused(refusal, common, fabric)
            say(f"mapping loops to {fabric.name}")
            try:
                found = map_graphs([common], fabric, seed=seed, budget=BUDGET)[common]
            except NoMappingError as error:
                _write(refusal, {"obstacle": error.obstacle})
                raise
            _write(path, _written(found))
            return found
    finally:
        say("")


def _refusal(path: Path, common: Graph) -> Path:
    """The file that says that there is no mapping for `path`.

    Its key has all that decides whether one is found: beside the graph, the fabric, the seed, the effort and
    the mapper, which are in the key of the mapping, the rules of fabrics and the constraint solver.
    """
    parts = (path.stem, "refused", str(common.lanes), mapper("hw.fabric"), version("ortools"))
    return path.with_name(f"{fingerprint(parts)}.json")


def _raise_refused(refusal: Path, common: Graph, fabric: Fabric) -> None:
    """Raise the `NoMappingError` of an earlier search, if there was one."""
    try:
        obstacle = _held(refusal)["obstacle"]
    except BROKEN:
        return
    raise NoMappingError(common, fabric, str(obstacle))


def _write(path: Path, values: dict[str, Any]) -> None:
    text = json.dumps(values, separators=(",", ":"))
    write(path, f"{fingerprint((text,))}\n{text}\n")


def _held(path: Path) -> dict[str, Any]:
    """The contents of a file; raises one of `BROKEN` where they are not whole."""
    check_sum, text = path.read_text(encoding="utf-8").split("\n")[:2]
    if check_sum != fingerprint((text,)):
        raise ValueError("damaged")
    held: dict[str, Any] = json.loads(text)
    return held


def _written(found: SearchResult) -> dict[str, Any]:
    mapping = found.found
    places = [mapping.places[node.id] for node in mapping.graph.nodes]
    routes = {
        str(edge): [[hop.register.kind, hop.register.pe, hop.register.number, hop.step] for hop in hops]
        for edge, hops in sorted(mapping.routes.items())
    }
    return {
        **found.bound.as_dict(),
        "proved_minimal": found.proved_minimal,
        "ii": mapping.ii,
        "places": [[p.pe, p.step] for p in places],
        "routes": routes,
    }


def _read(path: Path, graph: Graph, fabric: Fabric, compared: bool) -> SearchResult | None:
    """Reads a cache file; None if it does not hold a mapping of the graph."""
    try:
        held = _held(path)
        places = {node.id: Place(*p) for node, p in zip(graph.nodes, held["places"], strict=True)}
        routes = {
            int(edge): tuple(Hop(Register(kind, pe, number), step) for kind, pe, number, step in hops)
            for edge, hops in held["routes"].items()
        }
        mapping = Mapping(graph, fabric, held["ii"], places, routes)
        if compared and differences(mapping):
            return None
        least = MII(held["res_mii"], held["rec_mii"], held["why"])
        return SearchResult(graph, graph, mapping, least, held["proved_minimal"])
    except BROKEN:
        return None
