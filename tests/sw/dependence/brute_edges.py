"""Edges of a program found by executing it element by element, for comparison with `sw.dependence.edges`."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sw.dependence.edges import edges
from sw.ir.errors import IRError
from sw.ir.expression import evaluate
from sw.ir.intrinsics import effects
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement

Box = tuple[tuple[int, int], ...]
Found = dict[tuple[str, str, bool], set[tuple[int, ...]]]


@dataclass(frozen=True)
class Instance:
    """One execution of an instruction; `loops` tell loops apart, `numbers` are the iterations."""

    instruction: Instruction
    loops: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass
class _Execution:
    values: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    steps: int
    #: By buffer: what accesses it, where, "r" for a read, "w" for a write, "m" for one at an unknown address.
    accesses: dict[str, list[tuple[Instance, Box, str]]] = field(default_factory=dict)

    def body(self, body: Sequence[Statement], loops: tuple[int, ...], numbers: tuple[int, ...]) -> None:
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(Instance(s, loops, numbers))
            elif isinstance(s, Assign):
                self.values[s.target] = evaluate(s.value, self.values)
            elif isinstance(s, If):
                self.body(s.body if evaluate(s.condition, self.values) else s.orelse, loops, numbers)
            else:
                assert isinstance(s, For)
                ends = [evaluate(e, self.values) for e in (s.start, s.stop, s.step)]
                for number, value in enumerate(range(*ends)):
                    self.values[s.variable] = value
                    self.body(s.body, (*loops, id(s)), (*numbers, number))

    def instruction(self, instance: Instance) -> None:
        s = instance.instruction
        self.steps -= 1
        if self.steps < 0:
            raise IRError(None, "a long program", "a short one")
        if s.when is not None and not evaluate(s.when, self.values):
            return
        for kind, accesses in zip("rw", effects(s), strict=True):
            for access in accesses:
                if isinstance(access, Region):
                    self.access(instance, access.buffer, self.box(access), kind)
                    continue
                for buffer, shape in self.shapes.items():
                    whole = tuple((0, size) for size in shape)
                    self.access(instance, buffer, whole, "r" if kind == "r" else "m")

    def box(self, region: Region) -> Box:
        ends = [[evaluate(e, self.values) for e in (i.start, i.stop)] for i in region.box]
        found = tuple((start, stop) for start, stop in ends)
        shape = self.shapes[region.buffer]
        if all(a < b for a, b in found) and not all(
            a >= 0 and b <= n for (a, b), n in zip(found, shape, strict=True)
        ):
            raise IRError(None, "a region outside of its buffer", "one inside")
        return found

    def access(self, instance: Instance, buffer: str, box: Box, kind: str) -> None:
        if all(a < b for a, b in box):
            self.accesses.setdefault(buffer, []).append((instance, box, kind))


def brute_edges(program: Program, values: Mapping[str, int], steps: int = 100_000) -> Found:
    """The edges of one run between different warps, with their distances."""
    shapes = {b.name: tuple(evaluate(n, dict(values)) for n in b.shape) for b in program.buffers}
    execution = _Execution(dict(values), shapes, steps)
    execution.body(program.body, (), ())
    pairs: dict[tuple[Instance, Instance], bool] = {}
    for accesses in execution.accesses.values():
        for source, sink, data in _pairs(accesses):
            if source.instruction.warp is None or source.instruction.warp != sink.instruction.warp:
                pairs[source, sink] = pairs.get((source, sink), False) or data
    found: Found = {}
    for (source, sink), data in pairs.items():
        common = sum(
            1
            for _ in itertools.takewhile(lambda p: p[0] == p[1], zip(source.loops, sink.loops, strict=False))
        )
        distance = tuple(b - a for a, b in zip(source.numbers[:common], sink.numbers[:common], strict=True))
        key = source.instruction.label, sink.instruction.label, data
        found.setdefault(key, set()).add(distance)
    return found


def _pairs(accesses: Sequence[tuple[Instance, Box, str]]) -> Iterator[tuple[Instance, Instance, bool]]:
    """Source and sink of every edge in one buffer, whose cells end wherever an access does."""
    axes = range(len(accesses[0][1]))
    ends = [sorted({end for _, box, _ in accesses for end in box[d]}) for d in axes]
    history: dict[tuple[int, ...], list[tuple[str, Instance]]] = {}
    for instance, box, kind in accesses:
        spans = [range(bisect_left(e, a), bisect_left(e, b)) for e, (a, b) in zip(ends, box, strict=True)]
        for cell in itertools.product(*spans):
            events = history.setdefault(cell, [])
            bare = True
            for before, source in reversed(events):
                if source is instance and before != "r":
                    continue
                if kind == "r" and before != "r":
                    yield source, instance, True
                elif kind != "r" and (before == "r" or bare):
                    yield source, instance, False
                bare = bare and before != "r"
            if kind == "w":
                events.clear()
            if (kind, instance) not in events:
                events.append((kind, instance))


@dataclass
class Compared:
    """What the analysis misses of runs, and what no run showed."""

    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


def compared(program: Program, runs: Sequence[Mapping[str, int]], steps: int = 100_000) -> Compared:
    """Compare the edges of a program with those of runs that stay inside of their buffers."""
    real: Found = {}
    for values in runs:
        try:
            for key, distances in brute_edges(program, values, steps).items():
                real.setdefault(key, set()).update(distances)
        except (IRError, ValueError, ArithmeticError):
            continue
    listed = {(e.source, e.sink, e.data): e.distances for e in edges(program)}
    result = Compared()
    for (source, sink, data), distances in real.items():
        known = set(listed.get((source, sink, data), ())) | (
            set() if data else set(listed.get((source, sink, True), ()))
        )
        result.missing += [
            f"{source}->{sink} {'data' if data else 'resource'} {d}"
            for d in distances
            if not any(all(a in (b, "*") for a, b in zip(other, d, strict=True)) for other in known)
        ]
    for (source, sink, data), given in listed.items():
        shown = real.get((source, sink, data), set())
        result.extra += [
            f"{source}->{sink} {'data' if data else 'resource'} {d}" for d in given if d not in shown
        ]
    return result
