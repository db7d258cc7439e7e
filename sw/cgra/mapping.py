"""A mapped graph: PE and step of every operation, and the registers that hold every value."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hw.fabric import Fabric
from sw.dfg.graph import Graph, NodeId


class Place(NamedTuple):
    """The PE of an operation, and its step counted from the start of its iteration.

    The step's context is `step % ii`, its stage `step // ii`.
    """

    pe: int
    step: int


@dataclass(frozen=True)
class Register:
    """A register of the fabric: `number` is that of a link, or of an entry of the register file.

    `pe` is its location: the source of a link.
    """

    kind: Literal["link", "result", "register"]
    pe: int
    number: int = 0

    def reader(self, fabric: Fabric) -> int:
        """The PE that reads it."""
        return fabric.links[self.number].target if self.kind == "link" else self.pe


def registers_of(fabric: Fabric, most: int) -> list[Register]:
    """Links, result registers, then up to this many entries of every register file."""
    found = [Register("link", link.source, i) for i, link in enumerate(fabric.links)]
    found += [Register("result", pe) for pe in range(fabric.size)]
    for pe, kind in enumerate(fabric.kinds):
        found += [Register("register", pe, i) for i in range(min(kind.registers, most))]
    return found


@dataclass(frozen=True)
class Hop:
    """A register that holds a value in a step, counted like the steps of the value's iteration."""

    register: Register
    step: int


@dataclass(frozen=True)
class Mapping:
    """A graph on a fabric with an initiation interval.

    `routes` holds, by number of the edge in `graph.edges`, the registers of every routed edge: one hop per
    step, the first in the source's step plus its latency, the last in the target's step plus
    distance x ii. Edges of one source share the registers that they have in common.
    """

    graph: Graph
    fabric: Fabric
    ii: int
    places: Dictionary[NodeId, Place]
    routes: Dictionary[int, tuple[Hop, ...]]

    @property
    def depth(self) -> int:
        """Steps of an iteration: one more than the last step in which an operation starts."""
        return 1 + max((place.step for place in self.places.values()), default=-1)
