"""The dependences of a program: use-def and def-use chains with distances (docs/dependence.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sw.dependence.cells import Box
from sw.dependence.execute import ANY_DISTANCE, ENTRY, Component, Distance, execute
from sw.ir.program import Program


@dataclass(frozen=True)
class SeenWrite:
    """A read that may see a write.

    `read` and `write` count the accesses of the two instructions, `areas` are the parts of the read's region
    where, in elements and half open, `iteration` is that of the use where it was found, as text.
    """

    source: str
    use: str
    write: int
    read: int
    buffer: str
    areas: tuple[Box, ...]
    iteration: str
    source_iteration: str


@dataclass(frozen=True)
class Dependences:
    """Which writes every instruction's reads may see.

    `sources` has every label as a key: by source ("entry" for what a buffer held before the program) the
    distances in iterations of their common loops, outermost first, none where they have no loop in common.
    "*" stands for any number in place of one that is not constant or not bounded. `edges` tells of every read
    where; it is filled by `analyse(program, details=True)`.
    """

    program: Program
    sources: dict[str, dict[str, set[Distance]]]
    edges: tuple[SeenWrite, ...] = ()

    @cached_property
    def use_def(self) -> dict[str, list[str]]:
        """By label the sources of its reads, sorted."""
        return {use: sorted(sources) for use, sources in self.sources.items()}

    @cached_property
    def def_use(self) -> dict[str, list[str]]:
        """By label, and "entry", the instructions that may read what it wrote, sorted."""
        found: dict[str, list[str]] = {ENTRY: [], **{label: [] for label in self.sources}}
        for use in sorted(self.sources):
            for source in self.sources[use]:
                found[source].append(use)
        return found

    @cached_property
    def distance(self) -> dict[str, list[Component] | list[list[Component]]]:
        """By "source->use" the distances, sorted: numbers for one common loop, lists for several."""
        found: dict[str, list[Component] | list[list[Component]]] = {}
        for use, sources in self.sources.items():
            for source in sorted(sources):
                distances = sorted(sources[source], key=_order)
                if distances and len(distances[0]) == 1:
                    found[f"{source}->{use}"] = [d[0] for d in distances]
                elif distances:
                    found[f"{source}->{use}"] = [list(d) for d in distances]
        return found

    def as_dict(self) -> dict[str, object]:
        """What `jacquard deps --json` prints."""
        return {"use_def": self.use_def, "def_use": self.def_use, "distance": self.distance}


def _order(distance: Distance) -> tuple[tuple[bool, int], ...]:
    return tuple((isinstance(n, str), 0 if isinstance(n, str) else n) for n in distance)


def analyse(program: Program, *, details: bool = False) -> Dependences:
    """The dependences of a program; with `details` also where every read sees what."""
    record = execute(program, details)
    edges = tuple(
        SeenWrite(
            s.source,
            s.use,
            s.write,
            s.read,
            s.buffer,
            s.areas,
            ", ".join(map(str, s.iteration)),
            ", ".join(map(str, s.source_iteration)),
        )
        for s in record.details or ()
    )
    return Dependences(program, record.sources, edges)


__all__ = ["ANY_DISTANCE", "ENTRY", "Dependences", "SeenWrite", "analyse"]
