"""Checks a mapping against the fabric: places, timing, registers and ports (docs/cgra.md)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hw.fabric import Unit
from hw.fabric.layout import ARRAYS
from sw.cgra.legal import starts
from sw.cgra.mapping import Hop, Mapping, Register
from sw.dfg.graph import ORDER, Edge, NodeId

#: What is used: a kind of resource, PE, number, context.
Use = tuple[str, int, int, int]


def check(mapping: Mapping) -> list[str]:
    """All that is wrong with a mapping, in words; nothing where it can be configured."""
    return [*_places(mapping), *_edges(mapping), *_shared(mapping), *_memories(mapping)]


def _places(mapping: Mapping) -> Iterator[str]:
    """Every operation on a PE that has its unit, at most one per PE and context, within the stages."""
    graph, fabric, ii = mapping.graph, mapping.fabric, mapping.ii
    if not 1 <= ii <= fabric.contexts:
        yield f"II must be 1 to {fabric.contexts}, not {ii}"
    taken: dict[tuple[int, int], NodeId] = {}
    for node in graph.nodes:
        if node.id not in mapping.places:
            yield f"node {node} has no place"
            continue
        place = mapping.places[node.id]
        what = graph.operation(node)
        if not 0 <= place.pe < fabric.size or not fabric.kinds[place.pe].executes(what):
            yield f"node {node} needs a PE with {what.unit}, {place.pe} is none"
        held = set() if graph.opaque else starts(graph, node.id)
        first = max((count for count, _ in held), default=0)
        if len(held) > 1:
            yield f"node {node} needs {len(held)} different starts, an entry has one"
        if place.step < 0 or place.step // ii + first >= fabric.stages:
            yield f"node {node} in step {place.step} is beyond stage {fabric.stages - first}"
        slot = place.pe, place.step % ii
        if slot in taken:
            yield f"nodes {taken[slot]} and {node.id} are both on PE {slot[0]} in context {slot[1]}"
        taken[slot] = node.id


def _edges(mapping: Mapping) -> Iterator[str]:
    """Every value arrives in time through registers that lead to one another."""
    graph, ii, places = mapping.graph, mapping.ii, mapping.places
    for number, edge in enumerate(graph.edges):
        name = f"edge {edge.source} -> {edge.target} ({edge.operand})"
        if not edge.routed:
            if number in mapping.routes:
                yield f"{name} has a route"
            if edge.operand == ORDER:
                steps = places[edge.target].step - places[edge.source].step + edge.distance * ii
                if steps < 1:
                    yield f"{name} has {steps} steps, needs 1"
            continue
        hops = mapping.routes.get(number, ())
        first = places[edge.source].step + graph.latency(edge.source)
        last = places[edge.target].step + edge.distance * ii
        if not hops or [h.step for h in hops] != list(range(first, last + 1)):
            yield f"{name} must have hops in steps {first} to {last}, not {[h.step for h in hops]}"
            continue
        yield from (f"{name}: {wrong}" for wrong in _path(mapping, edge, hops))


def _path(mapping: Mapping, edge: Edge, hops: tuple[Hop, ...]) -> Iterator[str]:
    """Whether each register can take the value from the one before."""
    links = mapping.fabric.links

    def read(register: Register) -> int:
        """The PE where a register is read."""
        return links[register.number].target if register.kind == "link" else register.pe

    source = mapping.places[edge.source].pe
    if hops[0].register.pe != source:
        yield f"starts at PE {hops[0].register.pe}, its operation is on {source}"
    for before, after in pairwise(hops):
        x, y = before.register, after.register
        if x == y:
            continue
        if y.kind == "result":
            yield f"step {after.step}: only operations write result registers"
        elif y.pe != read(x):
            yield f"step {after.step}: {y} cannot take what {x} holds"
        elif y.kind == "register" and x.kind != "link":
            yield f"step {after.step}: a register takes values from links and operations, not from {x}"
    target = mapping.places[edge.target].pe
    if read(hops[-1].register) != target:
        yield f"ends at PE {read(hops[-1].register)}, its operation is on {target}"
    for hop in hops:
        r = hop.register
        if r.kind == "link" and links[r.number].source != r.pe:
            yield f"{r} is not a link of its PE"
        if r.kind == "register" and r.number >= mapping.fabric.kinds[r.pe].registers:
            yield f"{r} is not there"


def uses(mapping: Mapping, number: int) -> Iterator[tuple[Use, tuple[NodeId, int, int]]]:
    """What a route uses, with what it carries: the source, the step, and the register for a port."""
    source, ii = mapping.graph.edges[number].source, mapping.ii
    before: Register | None = None
    hops = mapping.routes[number]
    for i, hop in enumerate(hops):
        r, step = hop.register, hop.step
        yield (r.kind, r.pe, r.number, step % ii), (source, step, 0)
        if r.kind == "register" and r != before:
            yield ("write port", r.pe, 0, (step - 1) % ii), (source, step, r.number)
        if r.kind == "register" and (i + 1 == len(hops) or hops[i + 1].register != r):
            yield ("read port", r.pe, 0, step % ii), (source, step, r.number)
        before = r


def _shared(mapping: Mapping) -> Iterator[str]:
    """Registers and ports hold one value each; a value comes to a register in one way."""
    holders: dict[Use, tuple[NodeId, int, int]] = {}
    origins: dict[Use, Register | None] = {}
    for number, hops in sorted(mapping.routes.items()):
        for use, value in uses(mapping, number):
            if holders.setdefault(use, value) != value:
                what, pe, register, context = use
                here = f"{what} {register} of PE {pe} in context {context}"
                yield f"{here} has {holders[use][:2]} and {value[:2]}"
        for before, hop in zip((None, *hops), hops, strict=False):
            r = hop.register
            origin = before.register if before else None
            key = r.kind, r.pe, r.number, hop.step % mapping.ii
            if origins.setdefault(key, origin) != origin:
                yield f"{r} in step {hop.step} comes from {origins[key]} and {origin}"


def _memories(mapping: Mapping) -> Iterator[str]:
    """Tables fit into their PEs, arrays into the numbers there are."""
    graph = mapping.graph
    if graph.opaque:
        return
    sizes = {name: len(words) for name, words in graph.tables}
    held: dict[int, set[str]] = {}
    arrays: set[str] = set()
    for node in graph.nodes:
        if node.memory and node.op == "table":
            held.setdefault(mapping.places[node.id].pe, set()).add(node.memory.name)
        elif node.memory and graph.operation(node).unit is Unit.MEMORY:
            arrays.add(node.memory.name)
    for pe, names in sorted(held.items()):
        words, room = sum(sizes[n] for n in names), mapping.fabric.kinds[pe].table_words
        if words > room:
            yield f"the tables of PE {pe} take {words} words, there are {room}"
    if len(arrays) > ARRAYS:
        yield f"{len(arrays)} arrays, a configuration has {ARRAYS}"
