"""Random sequential programs for warps, their contents, and whether warps made from them are correct."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence

from hw.config import MachineConfig
from sw.check import Limits, compile_all
from sw.check.streams import run
from sw.check.trace import trace
from sw.ir.errors import IRError
from sw.ir.parameters import assignments
from sw.ir.parse import parse_program
from sw.ir.program import Parameter, Program
from sw.ir.scope import retype
from sw.ir.types import HIGH, LOW, Kind, Type
from sw.ir.walk import instructions
from tests.sw.check.execute import execute, random_schedule
from tests.sw.generic_programs import generic
from tests.sw.ir.interpret import difference, seeded_choice
from tests.sw.ir.interpret import run as interpret
from tests.sw.random_tile_programs import NESTS, Knobs, random_program
from tests.sw.warps.samples import with_warps

#: All values of the parameters together: of most programs, and of the others.
_FEW, _MANY = 24, 120

CONTROL = Knobs(branches=0.3, predicates=0.35, unknown=0.02, inexact=0.1, scalars=0.08, whiles=0)
ALL = Knobs(whiles=0, unknown=0.03)


def nests(rng: random.Random) -> Program:
    """Loops with known bounds, regions of all kinds, warps at random."""
    return _from_knobs(rng, NESTS)


def control(rng: random.Random) -> Program:
    """Branches and predicates above all."""
    return _from_knobs(rng, CONTROL)


def everything(rng: random.Random) -> Program:
    """Whatever a tile program may have."""
    return _from_knobs(rng, ALL)


def bindable(rng: random.Random) -> Program:
    """Generic instructions on regions without a space, so that they can be loads and stores."""
    while True:
        program = _from_knobs(rng, dataclasses.replace(ALL, unknown=0), instructions=8)
        return generic(program, rng, 1 + max(s.warp or 0 for s in instructions(program)))


def _from_knobs(rng: random.Random, knobs: Knobs, instructions: int = 12) -> Program:
    """A program of at least one run, with at most so many choices of parameters."""
    most = _MANY if rng.random() < 0.05 else _FEW
    while True:
        sizes = {"instructions": rng.randint(2, instructions), "buffers": rng.randint(1, 6)}
        program = _bounded(with_warps(rng, random_program(rng, knobs, **sizes), 6))
        count = math.prod(
            2 if p.type.kind is Kind.BOOL else p.type.high - p.type.low for p in program.parameters
        )
        if count <= most and runs(program):
            return program


def _bounded(program: Program) -> Program:
    """The program with a small range for every parameter."""

    def small(p: Parameter) -> Parameter:
        free = p.type.kind is Kind.INT and (p.type.low == LOW or p.type.high == HIGH)
        return dataclasses.replace(p, type=Type(Kind.INT, 0, 5)) if free else p

    return retype(dataclasses.replace(program, parameters=tuple(map(small, program.parameters))))


def runs(program: Program) -> list[dict[str, int]]:
    """All values of the parameters for which a program runs."""
    found = []
    for values in assignments(program, _MANY)[0]:
        try:
            trace(program, values)
        except IRError:
            continue
        found.append(values)
    return found


def pipelines(rng: random.Random) -> Program:
    """Phases of nests in which stages hand tiles on through rotating buffers."""
    while True:
        program = parse_program(_Pipeline(rng).text())
        if all(trace(program, v).count <= 700 for v in assignments(program, _FEW)[0]):
            return program


def long(rng: random.Random) -> Program:
    """The same with hundreds of iterations in the innermost loops."""
    return parse_program(_Pipeline(rng, long=True).text())


class _Pipeline:
    """The text of a random pipeline."""

    def __init__(self, rng: random.Random, *, long: bool = False):
        self.rng, self.long = rng, long
        self.warps = rng.randint(1, 6)
        #: By buffer how many tiles it holds, and their size.
        self.buffers = {
            f"b{n}": (rng.choice((1, 2, 2, 3, 4)), rng.choice((2, 4, 6))) for n in range(rng.randint(1, 6))
        }
        self.truths = [f"p{n}" for n in range(rng.choice((0, 0, 1, 2)))]
        self.numbers = [f"n{n}" for n in range(rng.choice((0, 0, 0, 1)))]
        self.names = itertools.count()
        self.lines: list[str] = []

    def text(self) -> str:
        """All of it."""
        for _ in range(self.rng.randint(1, 3)):
            self.loop(1, [], self.rng.randint(0, 2 if self.long else 3))
        given = [f"{p}: bool" for p in self.truths] + [f"{n}: int[0, 4]" for n in self.numbers]
        sizes = [f"    {b}: Buffer[{slots * size}]" for b, (slots, size) in self.buffers.items()]
        return "\n".join(["@program", f"def p({', '.join(given)}):", *sizes, *self.lines]) + "\n"

    def loop(self, indent: int, loops: list[tuple[str, str]], depth: int) -> None:
        """A nest of so many more loops, with stages in between now and then, and most at the bottom."""
        rng, pad = self.rng, "    " * indent
        if depth == 0:
            return self.stages(indent, loops, rng.randint(1, 4))
        name = f"i{next(self.names)}"
        trips = rng.randint(100, 400) if self.long and depth == 1 else rng.randint(1, 5)
        last = str(trips) if not self.numbers or rng.random() < 0.7 else rng.choice(self.numbers)
        if rng.random() < 0.25:
            self.stages(indent, loops, 1)
        self.lines.append(f"{pad}for {name} in range({last}):")
        inner = [*loops, (name, last)]
        if rng.random() < 0.25:
            self.stages(indent + 1, inner, 1)
        self.loop(indent + 1, inner, depth - 1)
        if rng.random() < 0.35:
            self.stages(indent + 1, inner, rng.randint(1, 2))
        return None

    def stages(self, indent: int, loops: list[tuple[str, str]], count: int) -> None:
        """Instructions, some of them in a branch."""
        rng, pad = self.rng, "    " * indent
        if rng.random() < 0.2:
            self.lines.append(f"{pad}if {self.condition(loops)}:")
            for _ in range(rng.randint(1, 2)):
                self.stage(indent + 1, loops)
            if rng.random() < 0.5:
                self.lines.append(f"{pad}else:")
                self.stage(indent + 1, loops)
        for _ in range(count):
            self.stage(indent, loops)

    def condition(self, loops: list[tuple[str, str]]) -> str:
        """What a branch or predicate depends on."""
        rng = self.rng
        choices = list(self.truths)
        for name, last in loops[-2:]:
            choices += [f"{name} == 0", f"{name} % 2 == 0", f"{name} + 1 == {last}", f"{name} > 1"]
        choices += [f"{n} > 1" for n in self.numbers]
        return rng.choice(choices or ["1 > 0"])

    def stage(self, indent: int, loops: list[tuple[str, str]]) -> None:
        """A stage that reads tiles, writes one, or both."""
        rng = self.rng
        reads = [self.tile(loops) for _ in range(rng.choice((0, 1, 1, 2)))]
        writes = [self.tile(loops)] if not reads or rng.random() < 0.6 else []
        given = [f"read=[{', '.join(reads)}]"] if reads else []
        given += [f"write=[{', '.join(writes)}]"] if writes else []
        if rng.random() < 0.2:
            given.append(f"when={self.condition(loops)}")
        label = f"S{next(self.names)}"
        self.lines.append(
            f"{'    ' * indent}{label} = f({', '.join(given)}, warp={rng.randrange(self.warps)})"
        )

    def tile(self, loops: list[tuple[str, str]]) -> str:
        """A tile of a buffer, often that of the innermost iteration, at times more or less than all of it."""
        rng = self.rng
        name, (slots, size) = rng.choice(list(self.buffers.items()))
        slot = str(rng.randrange(slots))
        if loops and slots > 1 and rng.random() < 0.85:
            variable = loops[-1][0] if rng.random() < 0.7 else rng.choice(loops)[0]
            index = variable if rng.random() < 0.8 else f"{variable} + {rng.randint(1, 3)}"
            if len(loops) > 1 and rng.random() < 0.2:
                index = f"{loops[-2][0]} * {rng.randint(1, 4)} + {variable}"
            slot = f"({index}) % {slots}"
        low, high = (0, size) if rng.random() < 0.7 else sorted(rng.sample(range(size + 1), 2))
        if rng.random() < 0.05:
            return f"{name}[0:{slots * size}]"
        return f"{name}[{size} * ({slot}) + {low}:{size} * ({slot}) + {high}]"


#: Kinds of random programs.
KINDS: Mapping[str, Callable[[random.Random], Program]] = {
    "nests": nests,
    "control": control,
    "everything": everything,
    "bindable": bindable,
    "pipelines": pipelines,
    "long": long,
}


def drawn(kind: str, seed: int) -> Program:
    """A random program of a kind; the same for the same seed."""
    return KINDS[kind](random.Random(f"{kind} {seed}"))


def differs(
    program: Program,
    texts: Mapping[int, str],
    config: MachineConfig,
    values: Sequence[Mapping[str, int]],
    schedules: int,
    seed: int = 0,
) -> str | None:
    """What comes out otherwise than of the sequential program under random schedules; None if nothing does.

    There are so many schedules for each of the values of the parameters. Raises `StuckError` and `FullError`
    where a schedule comes to a stop or a channel overflows.
    """
    limits = Limits(config.channels, config.channel_depth)
    warps = compile_all(program, texts, limits)
    for given in values:
        choice = seeded_choice(seed)
        sequential = interpret(program, given, seed=seed, choice=choice, trace=False)
        streams = {w: run(code, given) for w, code in warps.items()}
        for number in range(schedules):
            schedule = random_schedule(streams, config.channel_depth, seed * schedules + number)
            found = execute(program, streams, given, schedule, seed=seed, choice=choice)
            text = difference(sequential, found)
            if text is not None:
                return f"{given}: {text}"
    return None
