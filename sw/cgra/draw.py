"""Pictures of a mapping: a panel per context, operators in their PEs, values in links and registers."""

from __future__ import annotations

import math

from hw.fabric.draw import Panel, Text, document
from sw.cgra.mapping import Mapping
from sw.dfg.graph import NodeId

#: Colours of values, reused in order.
_COLOURS = (
    "#1f5fa8",
    "#b3541e",
    "#2e7d32",
    "#6a3d9a",
    "#a8324a",
    "#00796b",
    "#7a5c00",
    "#c2185b",
)
_PLAIN = "#1f2933"
_DIM = "#6b7785"


def to_svg(mapping: Mapping) -> str:
    """The mapping as SVG.

    The panel of a context shows the operators that start in it, and the contents of links and registers
    during it. A value has the name and colour of the operator that computes it.
    """
    panels = [panel(mapping, context) for context in range(mapping.ii)]
    return document(mapping.fabric, panels, per_row=math.ceil(math.sqrt(mapping.ii)))


def panel(mapping: Mapping, context: int) -> Panel:
    """One context."""
    graph, ii = mapping.graph, mapping.ii
    colours = {node.id: _COLOURS[i % len(_COLOURS)] for i, node in enumerate(graph.nodes)}
    boxes: dict[int, list[Text]] = {}
    for node in graph.nodes:
        place = mapping.places[node.id]
        if place.step % ii == context:
            given = "" if node.immediate is None else f" {node.immediate}"
            memory = "" if node.memory is None else f" {node.memory.name}"
            where = f"step {place.step}: stage {place.step // ii}"
            boxes[place.pe] = [
                Text(f"{node.id}: {node.op}", colours[node.id], f"{node}{memory}{given}, {where}"),
                Text(where, _DIM),
            ]
            if given or memory:
                boxes[place.pe].append(Text((memory + given).strip(), _PLAIN))
    links: dict[int, Text] = {}
    for (kind, pe, number), value in sorted(_held(mapping, context).items(), key=lambda item: item[0]):
        text = f"{value}"
        if kind == "link":
            links[number] = Text(text, colours[value])
        else:
            name = "result" if kind == "result" else f"r{number}"
            boxes.setdefault(pe, []).append(Text(f"{name} = {text}", colours[value]))
    return Panel(f"{graph.name}, context {context} of {ii}", boxes, links)


def _held(mapping: Mapping, context: int) -> dict[tuple[str, int, int], NodeId]:
    """By register (kind, PE, number): the node whose value it holds in a context."""
    found: dict[tuple[str, int, int], NodeId] = {}
    for number, hops in mapping.routes.items():
        for hop in hops:
            if hop.step % mapping.ii == context:
                register = hop.register
                found[register.kind, register.pe, register.number] = mapping.graph.edges[number].source
    return found
