"""Descriptors with their definitions and kill sets, as the tables of dependence.md show them.

The analysis keeps chains per element (`sw.dependence.cells`). Here they are turned round: a definition's kill
set is what its descriptor covers, less the elements whose chains still hold it; a descriptor's is the
intersection of those of its definitions. Intervals are half open, as in the program text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sw.dependence.cells import Box, Definition, visible_in
from sw.dependence.execute import ENTRY, Executor, execute
from sw.dependence.region_map import pieces
from sw.ir.program import Instruction, Program


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
    """What was recorded for a descriptor: its definitions in order, without those that are gone."""

    buffer: str
    hull: Box
    exact: bool
    found: dict[Definition, None] = field(default_factory=dict)
    marked: bool = False


@dataclass
class Ledger:
    """Descriptors in the order in which they were defined."""

    descriptors: dict[str, _Descriptor] = field(default_factory=dict)

    def defined(self, ex: Executor, d: Definition, sure: Box | None) -> None:
        """A definition has been made."""
        if not d.visible:
            return
        own = self.descriptors.setdefault(name_of(d), _Descriptor(d.buffer, d.hull, d.exact or d.box is None))
        if d.box is None:
            for other in self.descriptors.values():
                if other.buffer == d.buffer and (other is not own or not self._covered(own)):
                    other.found[d] = None
            return
        if d.exact and sure is not None:
            own.marked = False
        own.found[d] = None
        if not d.exact and d.happens == 1:
            for other in self.descriptors.values():
                if (
                    other is not own
                    and other.buffer == d.buffer
                    and other.found
                    and _meet(other.hull, d.hull)
                ):
                    other.marked = True

    def _covered(self, whole: _Descriptor) -> bool:
        """Whether a buffer has descriptors beside the whole one, which an unknown address then defines."""
        return any(o is not whole and o.buffer == whole.buffer for o in self.descriptors.values())

    def rows(self, ex: Executor) -> list[Row]:
        """The descriptors with living definitions."""
        found = []
        for name, descriptor in self.descriptors.items():
            kills: list[list[Box]] = []
            alive: dict[str, None] = {}
            for d in descriptor.found:
                left = _kill_set(ex, descriptor, d)
                if left != [descriptor.hull]:
                    alive[d.label] = None
                    kills.append(left)
            if alive:
                common = kills[0]
                for other in kills[1:]:
                    common = _intersection(common, other)
                found.append(Row(name, tuple(alive), tuple(common), descriptor.marked))
        return found


def name_of(d: Definition) -> str:
    """A descriptor as text."""
    if d.box is None:
        return f"{d.buffer}[{', '.join(f'{a}:{b}' for a, b in d.hull)}]"
    return f"{d.buffer}[{', '.join(f'{a}:{b}' for a, b in d.box)}]"


def _kill_set(ex: Executor, descriptor: _Descriptor, d: Definition) -> list[Box]:
    """The parts of a descriptor that do not hold a definition any more, in order."""
    gone: list[Box] = []
    buffer = descriptor.buffer
    for part, sections in pieces(ex.state.maps[buffer], ex.extents[buffer], descriptor.hull):
        if not any(d in visible_in(section) for section in sections):
            pairs = zip(part, descriptor.hull, strict=True)
            gone.append(tuple((max(a, low), min(b, high)) for (a, b), (low, high) in pairs))
    return merge(gone)


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


def _meet(a: Box, b: Box) -> bool:
    return all(
        low < other_high and other_low < high
        for (low, high), (other_low, other_high) in zip(a, b, strict=True)
    )


def _intersection(a: list[Box], b: list[Box]) -> list[Box]:
    found = []
    for one in a:
        for other in b:
            if _meet(one, other):
                pairs = zip(one, other, strict=True)
                found.append(tuple((max(low, p), min(high, q)) for (low, high), (p, q) in pairs))
    return merge(found)


def tables(program: Program, *, before: str | None = None) -> dict[str, list[Row]]:
    """The descriptors after every instruction, by label; with `before` only those before that one.

    An instruction that is run several times keeps the table of its last time.
    """
    found: dict[str, list[Row]] = {}
    ledger = Ledger()

    def start(ex: Executor, s: Instruction) -> None:
        if s.label == before:
            found[s.label] = ledger.rows(ex)

    def end(ex: Executor, s: Instruction) -> None:
        if before is None:
            found[s.label] = ledger.rows(ex)

    execute(program, watch=(start, end, ledger.defined))
    return found


__all__ = ["ENTRY", "Ledger", "Row", "merge", "name_of", "tables"]
