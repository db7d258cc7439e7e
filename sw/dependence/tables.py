"""Descriptors with their definitions and kill sets, as the tables of docs/dependence.md show them.

A *descriptor* is a region that something writes, its *definitions* are the instructions that do, and a
definition's kill set is the part of the region where the writes after it hide it. A read of the region tells
which part that is not: a probe reads every descriptor at the place that is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sw.dependence.accesses import SymbolicAccess, access_tree
from sw.dependence.analysis import analyse
from sw.dependence.places import Box
from sw.ir.expression import Const
from sw.ir.program import Instruction, Interval, Program, Region, Statement
from sw.ir.walk import instructions, rewrite

#: The label of the probe.
_PROBE = "probe"


@dataclass(frozen=True)
class Row:
    """A descriptor that has living definitions.

    `kill` are the boxes that none of its definitions holds any more, in order; `marked`: a write of unknown
    extent has overlapped it since it was defined.
    """

    descriptor: str
    definitions: tuple[str, ...]
    kill: tuple[Box, ...]
    marked: bool = False


@dataclass
class _Descriptor:
    """What the text up to a place says of a descriptor: its definitions in order."""

    buffer: str
    hull: Box
    found: dict[str, None] = field(default_factory=dict)
    marked: bool = False


def tables(program: Program, *, before: str | None = None) -> dict[str, list[Row]]:
    """The descriptors after every instruction, by label; with `before` only those before that one."""
    writes = [a for a in access_tree(program).accesses() if a.write]
    writes.sort(key=lambda a: (a.slot, a.position))
    labels = [i.label for i in instructions(program)]
    if before is not None:
        return {before: _rows(program, writes, before, after=False)} if before in labels else {}
    return {label: _rows(program, writes, label, after=True) for label in labels}


def _rows(program: Program, writes: list[SymbolicAccess], label: str, *, after: bool) -> list[Row]:
    """The descriptors with living definitions before or after an instruction."""
    descriptors = _descriptors(_until(program, writes, label, after))
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
            seen.setdefault((edge.read, edge.source), []).extend(edge.areas)
    rows = []
    for n, (name, d) in enumerate(descriptors.items()):
        alive = tuple(definition for definition in d.found if (n, definition) in seen)
        if alive:
            left = [area for definition in alive for area in seen[n, definition]]
            rows.append(Row(name, alive, tuple(_without(d.hull, left)), d.marked))
    return rows


def _until(
    program: Program, writes: list[SymbolicAccess], label: str, after: bool
) -> Iterator[SymbolicAccess]:
    """The writes up to an instruction, in the order of the text."""
    order = {i.label: n for n, i in enumerate(instructions(program))}
    last = order[label] + after
    return (a for a in writes if order[a.instruction.label] < last)


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
    return merge(left)


def _less(box: Box, other: Box) -> Iterator[Box]:
    """The parts of a box outside of another one."""
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


def merge(boxes: Iterable[Box]) -> list[Box]:
    """Disjoint boxes in order, put together where two of them make one."""
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


__all__ = ["Row", "merge", "tables"]
