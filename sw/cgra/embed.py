"""Maps to a part of a fabric, and embeds the mapping in the whole fabric."""

from __future__ import annotations

from dataclasses import replace

from hw.fabric import Fabric, Link
from sw.cgra.mapping import Hop, Mapping, Place, Register


def smaller(fabric: Fabric) -> Fabric | None:
    """The fabric without its last column, or last row if it has more rows; None for one PE."""
    rows, cols = fabric.rows, fabric.cols
    if rows * cols == 1:
        return None
    rows, cols = (rows - 1, cols) if rows > cols else (rows, cols - 1)
    inside = [pe for pe in range(fabric.size) if fabric.at(pe)[0] < rows and fabric.at(pe)[1] < cols]
    number = {pe: i for i, pe in enumerate(inside)}
    links = sorted(
        Link(number[link.source], number[link.target])
        for link in fabric.links
        if link.source in number and link.target in number
    )
    kinds = tuple(fabric.kinds[pe] for pe in inside)
    return replace(fabric, rows=rows, cols=cols, kinds=kinds, links=tuple(links))


def embed(mapping: Mapping, fabric: Fabric) -> Mapping:
    """A mapping on the first rows and columns of a fabric, as a mapping on the whole."""
    part = mapping.fabric
    number = {link: i for i, link in enumerate(fabric.links)}

    def pe(at: int) -> int:
        row, col = part.at(at)
        return row * fabric.cols + col

    def register(r: Register) -> Register:
        if r.kind != "link":
            return replace(r, pe=pe(r.pe))
        link = part.links[r.number]
        return Register("link", pe(link.source), number[Link(pe(link.source), pe(link.target))])

    places = {node: Place(pe(place.pe), place.step) for node, place in mapping.places.items()}
    routes = {
        edge: tuple(Hop(register(hop.register), hop.step) for hop in hops)
        for edge, hops in mapping.routes.items()
    }
    return replace(mapping, fabric=fabric, places=places, routes=routes)
