"""Programs for the tests of warps, and their properties, computed in a plain way."""

from __future__ import annotations

import dataclasses
import random
import textwrap
from collections import defaultdict
from collections.abc import Mapping

from cosim.session.warps import MOST_RUNS
from sw.check.trace import Trace, trace
from sw.ir.errors import IRError
from sw.ir.expression import Const, evaluate
from sw.ir.parameters import assignments
from sw.ir.parse import parse_program
from sw.ir.program import Assign, If, Instruction, Program, Statement
from sw.ir.split import share, warps
from tests.sw.random_tile_programs import Knobs, random_program, sample_parameters

#: The example of the source: three phases, triple buffering.
WORKED = """
    @program
    def worked():
        a: Buffer[60]
        for i in range(3):
            P = produce(write=a[10 * i : 10 * i + 10], warp=0)
            C = consume(read=a[10 * i : 10 * i + 10], warp=1)
        for i in range(3):
            P4 = produce(write=a[15 * i + 15 : 15 * i + 30], warp=0)
            C4 = consume(read=a[15 * i + 15 : 15 * i + 30], warp=1)
        P7 = produce(write=a[0:50], warp=0)
        C7 = consume(read=a[0:50], warp=1)
"""


def program_of(text: str) -> Program:
    """A program from indented text."""
    return parse_program(textwrap.dedent(text))


def values_of(program: Program) -> list[dict[str, int]]:
    """All values of a program's parameters, or some where there are many."""
    return assignments(program, MOST_RUNS)[0]


def with_warps(rng: random.Random, program: Program, most: int) -> Program:
    """The program with random warps, at most so many."""
    count = rng.randint(1, most)

    def visit(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for s in body:
            if isinstance(s, Instruction):
                s = dataclasses.replace(s, warp=rng.randrange(count))
            elif isinstance(s, If):
                s = dataclasses.replace(s, body=visit(s.body), orelse=visit(s.orelse))
            elif not isinstance(s, Assign):
                s = dataclasses.replace(s, body=visit(s.body))
            made.append(s)
        return tuple(made)

    return dataclasses.replace(program, body=visit(program.body))


def random_trace(seed: int, knobs: Knobs, most: int = 4) -> Trace | None:
    """The trace of a random program with random warps, None where it does not run."""
    rng = random.Random(seed)
    program = with_warps(rng, random_program(rng, knobs, whiles=0), most)
    values = sample_parameters(rng, program)
    if values is None:
        return None
    try:
        return trace(program, values)
    except IRError:
        return None


#: What a warp does: an operation by label, or a wait or signal with its channel.
Operation = tuple[str, str | int]


def streams(program: Program, values: Mapping[str, int]) -> dict[int, list[Operation]]:
    """What every warp of a program without loops does."""
    found: dict[int, list[Operation]] = {}
    for warp in warps(program):
        known = dict(values)
        stream = found[warp] = []

        def visit(
            body: tuple[Statement, ...],
            known: dict[str, int] = known,
            stream: list[Operation] = stream,
        ) -> None:
            for s in body:
                if isinstance(s, Assign):
                    known[s.target] = evaluate(s.value, known)
                elif isinstance(s, If):
                    visit(s.body if evaluate(s.condition, known) else s.orelse, known, stream)
                elif isinstance(s, Instruction) and s.name in ("wait", "signal"):
                    channel = dict(s.operands)["channel"]
                    assert isinstance(channel, Const)
                    stream.append((s.name, channel.value))
                elif isinstance(s, Instruction) and (s.when is None or evaluate(s.when, known)):
                    stream.append(("op", s.label))

        visit(share(program, warp).body)
    return found


def ordered(found: Mapping[int, list[Operation]], depth: int) -> dict[str, set[str]]:
    """By operation all that surely happen before it, with waits taking tokens first in, first out.

    Asserts that nothing blocks, that no channel can hold more than `depth` tokens, that all are taken, and
    that every channel has one warp that signals and one that waits.
    """
    past: dict[int, set[str | tuple[str, int, int]]] = {warp: set() for warp in found}
    tokens: defaultdict[int, list[set[str | tuple[str, int, int]]]] = defaultdict(list)
    taken: defaultdict[int, int] = defaultdict(int)
    ends: defaultdict[tuple[str, str | int], set[int]] = defaultdict(set)
    done = dict.fromkeys(found, 0)
    before: dict[str, set[str]] = {}
    progress = True
    while progress:
        progress = False
        for warp, stream in found.items():
            while done[warp] < len(stream):
                kind, what = stream[done[warp]]
                known = past[warp]
                if kind == "op":
                    before[str(what)] = {p for p in known if isinstance(p, str)}
                    known.add(str(what))
                else:
                    channel = int(what)
                    ends[kind, channel].add(warp)
                    if kind == "signal":
                        number = len(tokens[channel])
                        assert number < depth or ("taken", channel, number - depth) in known
                        tokens[channel].append(set(known))
                    elif taken[channel] == len(tokens[channel]):
                        break
                    else:
                        known |= tokens[channel][taken[channel]]
                        known.add(("taken", channel, taken[channel]))
                        taken[channel] += 1
                done[warp] += 1
                progress = True
    assert all(done[warp] == len(stream) for warp, stream in found.items()), "warps block each other"
    assert all(taken[channel] == len(given) for channel, given in tokens.items())
    assert all(len(warps) == 1 for warps in ends.values())
    return before
