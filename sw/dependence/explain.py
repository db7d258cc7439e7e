"""Why an instruction depends on others: the parts of its reads, and the kill sets before it."""

from __future__ import annotations

from dataclasses import dataclass

from sw.dependence.analysis import Dependences, SeenWrite
from sw.dependence.places import Box
from sw.dependence.tables import Row, merge, tables
from sw.ir.intrinsics import effects
from sw.ir.program import Instruction, print_access, print_statement
from sw.ir.walk import instructions

#: Boxes that are printed of one list.
_SHOWN = 12


@dataclass(frozen=True)
class Source:
    """A source of one read: which part of the buffer it is seen in, and from how many iterations before."""

    label: str
    buffer: str
    areas: tuple[Box, ...]
    distances: tuple[object, ...]


@dataclass(frozen=True)
class Explanation:
    """The reads of an instruction with their sources, and the descriptors before it."""

    text: str
    reads: tuple[tuple[str, tuple[Source, ...]], ...]
    rows: tuple[Row, ...]

    def as_dict(self) -> dict[str, object]:
        """As JSON."""
        return {
            "instruction": self.text,
            "reads": [
                {
                    "region": region,
                    "sources": [
                        {"label": s.label, "buffer": s.buffer, "areas": s.areas, "distance": s.distances}
                        for s in sources
                    ],
                }
                for region, sources in self.reads
            ],
            "before": [
                {"descriptor": r.descriptor, "definitions": r.definitions, "kill": r.kill, "marked": r.marked}
                for r in self.rows
            ],
        }

    def __str__(self) -> str:
        lines = [self.text]
        if not self.reads:
            lines.append("  reads nothing")
        for region, sources in self.reads:
            lines.append(f"  reads {region}")
            if not sources:
                lines.append("    nothing reaches it: it is empty, or never happens")
            for s in sources:
                far = f", distance {_list(s.distances)}" if s.distances else ""
                lines.append(f"    {s.label} for {_boxes(s.buffer, s.areas)}{far}")
        lines.append("before it (intervals are half open):")
        if not self.rows:
            lines.append("  nothing is defined")
        for row in self.rows:
            mark = ", marked killed" if row.marked else ""
            kill = "{" + ", ".join(_box(box) for box in row.kill[:_SHOWN]) + "}"
            lines.append(f"  {row.descriptor}: {{{', '.join(row.definitions)}}}, kill {kill}{mark}")
        return "\n".join(lines)


def _list(items: tuple[object, ...]) -> str:
    texts = [str(i).replace("'", "") for i in items]
    return ", ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


def _box(box: Box) -> str:
    return "[" + ", ".join(f"{a}:{b}" for a, b in box) + "]"


def _boxes(buffer: str, boxes: tuple[Box, ...]) -> str:
    text = ", ".join(buffer + _box(box) for box in boxes[:_SHOWN])
    return text + (f" and {len(boxes) - _SHOWN} more" if len(boxes) > _SHOWN else "")


def explain(found: Dependences, label: str) -> Explanation:
    """Explain an instruction; the dependences must hold details. Raises `KeyError` for an unknown label."""
    instruction = {i.label: i for i in instructions(found.program)}[label]
    reads = effects(instruction)[0]
    edges = [e for e in found.edges if e.use == label]
    rows = tables(found.program, before=label).get(label, [])
    explained = tuple(
        (print_access(access), _sources(found, [e for e in edges if e.read == n], instruction))
        for n, access in enumerate(reads)
    )
    return Explanation(print_statement(instruction), explained, tuple(rows))


def _sources(found: Dependences, edges: list[SeenWrite], use: Instruction) -> tuple[Source, ...]:
    by_source: dict[tuple[str, str], list[Box]] = {}
    for e in edges:
        by_source.setdefault((e.buffer, e.source), []).extend(e.areas)
    return tuple(
        Source(source, buffer, _merged(areas), tuple(found.distance.get(f"{source}->{use.label}", ())))
        for (buffer, source), areas in sorted(by_source.items())
    )


def _merged(areas: list[Box]) -> tuple[Box, ...]:
    """Boxes without repetition; those of several iterations may overlap in more than one dimension."""
    return tuple(merge(set(areas)))
