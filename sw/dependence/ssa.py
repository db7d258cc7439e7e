"""Phi nodes of the scalars: where versions of one scalar meet (dependence.md, "Method", 1)."""

from __future__ import annotations

from sw.dependence.cfg import Graph
from sw.ir.program import Assign, For, While
from sw.ir.types import Kind


def phi_nodes(graph: Graph) -> list[dict[str, Kind]]:
    """For every block the scalars that need a phi node at its start.

    They are the iterated dominance frontiers of the blocks that assign a scalar.
    """
    frontiers = graph.frontiers()
    assigned: dict[str, tuple[Kind, set[int]]] = {}
    for block in graph.blocks:
        for s in block.statements:
            if isinstance(s, Assign):
                assigned.setdefault(s.target, (s.value.kind, set()))[1].add(block.number)
    found: list[dict[str, Kind]] = [{} for _ in graph.blocks]
    for name, (kind, blocks) in assigned.items():
        pending = list(blocks)
        while pending:
            for number in frontiers[pending.pop()]:
                if name not in found[number]:
                    found[number][name] = kind
                    if number not in blocks:
                        pending.append(number)
    return found


def carried_scalars(graph: Graph) -> dict[int, tuple[tuple[str, Kind], ...]]:
    """By identity of a loop, the scalars that have a phi node at its head: iterations hand them on."""
    nodes = phi_nodes(graph)
    found: dict[int, tuple[tuple[str, Kind], ...]] = {}
    for block in graph.blocks:
        if isinstance(block.head, For | While):
            found[id(block.head)] = tuple(nodes[block.number].items())
    return found
