"""Executes warps in some schedule, with the sequential interpreter's meaning of instructions.

A schedule reorders the instances of a program. So it is executed as a program of its own: these instances in
sequence, with a number for every expression.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hw.errors import InputError
from sw.check.streams import OP, SIGNAL, WAIT, Stream
from sw.ir.expression import Const, Expr, evaluate
from sw.ir.program import Instruction, Program
from sw.ir.walk import executions, map_expressions
from tests.sw.ir.interpret import Choice, Execution, Unknown
from tests.sw.ir.interpret import run as interpret


class StuckError(InputError):
    """A schedule after which no warp can go on."""


class FullError(InputError):
    """A schedule that signals a full channel."""


def random_schedule(streams: Mapping[int, Stream], depth: int, seed: int) -> list[tuple[int, int]]:
    """The events of all warps in an order that the channels permit: warp, and event of its stream.

    Odd seeds let warps run far ahead of each other, even ones mix them evenly. Raises `StuckError` and
    `FullError`.
    """
    rng = random.Random(seed)
    tokens: dict[int, int] = {}
    place = dict.fromkeys(streams, 0)
    kinds = {w: s.kinds.tolist() for w, s in streams.items()}
    channels = {w: s.channels.tolist() for w, s in streams.items()}
    done: list[tuple[int, int]] = []
    ranks = {w: rng.random() for w in streams}
    total = sum(s.events.size for s in streams.values())
    while len(done) < total:
        ready = [
            w
            for w, at in place.items()
            if at < len(kinds[w]) and (kinds[w][at] != WAIT or tokens.get(channels[w][at], 0) > 0)
        ]
        if not ready:
            stops = ", ".join(f"warp {w} at event {at}" for w, at in place.items() if at < len(kinds[w]))
            raise StuckError(f"the warps come to a stop: {stops}")
        if seed % 2 and rng.random() < 0.1:
            ranks[rng.choice(ready)] = rng.random()
        w = min(ready, key=ranks.__getitem__) if seed % 2 else rng.choice(ready)
        at, c = place[w], channels[w][place[w]]
        if kinds[w][at] == WAIT:
            tokens[c] -= 1
        elif kinds[w][at] == SIGNAL:
            tokens[c] = tokens.get(c, 0) + 1
            if tokens[c] > depth:
                raise FullError(f"warp {w} signals channel {c}, which holds {depth} tokens already")
        place[w] += 1
        done.append((w, at))
    return done


def execute(
    program: Program,
    streams: Mapping[int, Stream],
    values: Mapping[str, int],
    schedule: Sequence[tuple[int, int]],
    *,
    seed: int = 0,
    choice: Choice | None = None,
) -> Execution:
    """Run the operations of a schedule: operation k of a warp is its k-th instance.

    `seed` and `choice` are those of `tests.sw.ir.interpret.run`, whose result for the sequential program this
    can be compared with. Raises what it raises.
    """
    all_ = list(flatten(program, values))
    own = {w: [n for n, (i, _) in enumerate(all_) if i.warp == w] for w in streams}
    operations = {w: np.flatnonzero(s.kinds == OP) for w, s in streams.items()}
    order = [
        own[w][int(np.searchsorted(operations[w], event))]
        for w, event in schedule
        if streams[w].kinds[event] == OP
    ]
    return run_in_order(program, values, all_, order, seed=seed, choice=choice)


def run_in_order(
    program: Program,
    values: Mapping[str, int],
    all_: Sequence[tuple[Instruction, tuple[int, ...]]],
    order: Sequence[int],
    *,
    seed: int = 0,
    choice: Choice | None = None,
) -> Execution:
    """Run instances of a program (as from `flatten`) in some order."""
    labels = {f"{i.label}_{n}": (n, i, at) for n, (i, at) in enumerate(all_)}
    counts: dict[str, int] = {}
    occurrence = []
    for i, _ in all_:
        occurrence.append(counts.get(i.label, 0))
        counts[i.label] = occurrence[-1] + 1

    def choose(unknown: Unknown) -> object:
        # As the instance of the original program, so that the same choice is made.
        n, i, at = labels[unknown.instruction.label]
        assert choice is not None
        return choice(Unknown(i, at, occurrence[n], unknown.number, unknown.writes, unknown.shapes))

    body = tuple(dataclasses.replace(all_[n][0], label=f"{all_[n][0].label}_{n}", when=None) for n in order)
    sized = tuple(
        dataclasses.replace(b, shape=tuple(Const(evaluate(e, values)) for e in b.shape))
        for b in program.buffers
    )
    flat = Program(program.name, (), sized, body)
    return interpret(flat, {}, seed=seed, choice=None if choice is None else choose, trace=False)  # type: ignore[arg-type]


def flatten(program: Program, values: Mapping[str, int]) -> Iterator[tuple[Instruction, tuple[int, ...]]]:
    """The instances of a program in order, every expression of theirs a number, with their iterations."""
    now = dict(values)

    def number(expr: Expr) -> Expr:
        return Const(evaluate(expr, now), expr.kind)

    for i, iteration in executions(program.body, now):
        yield map_expressions(i, number), iteration
