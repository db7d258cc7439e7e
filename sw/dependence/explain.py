"""Explains why an instruction depends on others: the parts of its reads, and the kill sets before it.

A *descriptor* is a region that something writes. Its *definitions* are the instructions that write it, and
the kill set of a definition is the part of the region that later writes hide. A read of the region shows the
other part: a probe reads every descriptor at the position in question.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sw.dependence.accesses import Box, SymbolicAccess, access_tree
from sw.dependence.analysis import Dependences, analyse
from sw.ir.expression import Const
from sw.ir.intrinsics import effects
from sw.ir.program import (
    Instruction,
    Interval,
    Program,
    Region,
    Statement,
    print_access,
    print_statement,
)
from sw.ir.walk import instructions, rewrite

#: Most boxes printed of one list.
_SHOWN = 12
#: The label of the probe.
_PROBE = "probe"


@dataclass(frozen=True)
class Source:
    """A source of one read: the visible part of the buffer, and the distances in iterations."""

    label: str
    buffer: str
    areas: tuple[Box, ...]
    distance: tuple[object, ...]


@dataclass(frozen=True)
class ExplainedRead:
    """A region that an instruction reads, as text, with its sources."""

    region: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Row:
    """A descriptor with live definitions.

    `kill` holds the boxes that none of its definitions supplies any more, in order; `marked`: a write of
    unknown extent has overlapped it since it was defined.
    """

    descriptor: str
    definitions: tuple[str, ...]
    kill: tuple[Box, ...]
    marked: bool = False


@dataclass(frozen=True)
class Explanation:
    """The reads of an instruction with their sources, and the descriptors before it."""

    instruction: str
    reads: tuple[ExplainedRead, ...]
    before: tuple[Row, ...]

    def as_dict(self) -> dict[str, object]:
        """As JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [self.instruction]
        if not self.reads:
            lines.append("  reads nothing")
        for read in self.reads:
            lines.append(f"  reads {read.region}")
            if not read.sources:
                lines.append("    nothing reaches it: it is empty, or never executes")
            for s in read.sources:
                far = f", distance {_list(s.distance)}" if s.distance else ""
                lines.append(f"    {s.label} for {_boxes(s.buffer, s.areas)}{far}")
        lines.append("before it (intervals are half open):")
        if not self.before:
            lines.append("  nothing is defined")
        for row in self.before:
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
    """Explains an instruction; the dependences must hold details. Raises `KeyError` for an unknown label."""
    instruction = {i.label: i for i in instructions(found.program)}[label]
    reads = tuple(
        ExplainedRead(print_access(access), _sources(found, label, n))
        for n, access in enumerate(effects(instruction)[0])
    )
    return Explanation(print_statement(instruction), reads, tuple(rows(found.program, label)))


def _sources(found: Dependences, use: str, read: int) -> tuple[Source, ...]:
    """The sources of one of the reads of an instruction."""
    by_source: dict[tuple[str, str], set[Box]] = {}
    for e in found.edges:
        if (e.use, e.read) == (use, read):
            by_source.setdefault((e.buffer, e.source), set()).add(e.area)
    return tuple(
        Source(source, buffer, tuple(_merged(areas)), tuple(found.distance.get(f"{source}->{use}", ())))
        for (buffer, source), areas in sorted(by_source.items())
    )


@dataclass
class _Descriptor:
    """The definitions of a descriptor, in order, up to a position in the text."""

    buffer: str
    hull: Box
    found: dict[str, None] = field(default_factory=dict)
    marked: bool = False


def rows(program: Program, label: str, *, after: bool = False) -> list[Row]:
    """The descriptors with live definitions before or after an instruction."""
    order = {i.label: n for n, i in enumerate(instructions(program))}
    writes = [a for a in access_tree(program).accesses() if a.write]
    writes.sort(key=lambda a: (a.slot, a.position))
    descriptors = _descriptors(a for a in writes if order[a.instruction.label] < order[label] + after)
    reads = tuple(
        Region(d.buffer, tuple(Interval(Const(low), Const(high)) for low, high in d.hull))
        for d in descriptors.values()
    )
    probe = Instruction(_PROBE, _PROBE, reads=reads)

    def probed(s: Statement) -> Sequence[Statement]:
        if not isinstance(s, Instruction) or s.label != label:
            return (s,)
        return (s, probe) if after else (probe, s)

    found = analyse(dataclasses.replace(program, body=rewrite(program.body, probed)), details=True)
    seen: dict[tuple[int, str], list[Box]] = {}
    for edge in found.edges:
        if edge.use == _PROBE:
            seen.setdefault((edge.read, edge.source), []).append(edge.area)
    made = []
    for n, (name, d) in enumerate(descriptors.items()):
        alive = tuple(definition for definition in d.found if (n, definition) in seen)
        if alive:
            left = [area for definition in alive for area in seen[n, definition]]
            made.append(Row(name, alive, tuple(_without(d.hull, left)), d.marked))
    return made


def _descriptors(writes: Iterable[SymbolicAccess]) -> dict[str, _Descriptor]:
    """The descriptors that some writes define, by name in the order of their first definition."""
    made: dict[str, _Descriptor] = {}
    for w in writes:
        same = [d for d in made.values() if d.buffer == w.buffer]
        if w.box is None:
            if not same:
                same = [made.setdefault(_name(w), _Descriptor(w.buffer, w.hull))]
            for d in same:
                d.found[w.instruction.label] = None
            continue
        own = made.setdefault(_name(w), _Descriptor(w.buffer, w.hull))
        own.found.pop(w.instruction.label, None)
        own.found[w.instruction.label] = None
        if w.box == w.hull:
            own.marked = own.marked and bool(w.conditions)
        elif not w.conditions:
            for d in same:
                d.marked = d.marked or (d is not own and _meet(d.hull, w.hull))
    return made


def _name(w: SymbolicAccess) -> str:
    """A descriptor as text."""
    return f"{w.buffer}[{', '.join(f'{a}:{b}' for a, b in (w.hull if w.box is None else w.box))}]"


def _without(box: Box, others: Iterable[Box]) -> list[Box]:
    """The parts of a box in none of some others, in order."""
    left = [box]
    for other in others:
        left = [part for one in left for part in _less(one, other)]
    return _merged(left)


def _less(box: Box, other: Box) -> Iterator[Box]:
    """The parts of a box outside another one."""
    if not _meet(box, other):
        yield box
        return
    for axis, ((low, high), (first, last)) in enumerate(zip(box, other, strict=True)):
        if low < first:
            yield (*box[:axis], (low, first), *box[axis + 1 :])
        if last < high:
            yield (*box[:axis], (last, high), *box[axis + 1 :])
        box = (*box[:axis], (max(low, first), min(high, last)), *box[axis + 1 :])


def _meet(a: Box, b: Box) -> bool:
    return all(
        low < other_high and other_low < high
        for (low, high), (other_low, other_high) in zip(a, b, strict=True)
    )


def _merged(boxes: Iterable[Box]) -> list[Box]:
    """Disjoint boxes in order, merged where two of them form one."""
    found = sorted(boxes)
    if not found:
        return []
    for axis in reversed(range(len(found[0]))):
        groups: dict[Box, list[Box]] = {}
        for box in found:
            groups.setdefault((*box[:axis], *box[axis + 1 :]), []).append(box)
        joined: list[Box] = []
        for group in groups.values():
            group.sort(key=lambda box: box[axis])
            run = group[0]
            for box in group[1:]:
                if box[axis][0] <= run[axis][1]:
                    run = (*run[:axis], (run[axis][0], max(run[axis][1], box[axis][1])), *run[axis + 1 :])
                else:
                    joined.append(run)
                    run = box
            joined.append(run)
        found = sorted(joined)
    return found
