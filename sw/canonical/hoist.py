"""Hoisting and strength reduction within a register budget (canonical.md, "Hoisting")."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from hw.errors import InputError
from sw.canonical.count import count
from sw.canonical.placement import Placement
from sw.canonical.prepare import prepare
from sw.canonical.search import Result, Search
from sw.ir.check import problems
from sw.ir.program import Program, Statement, While
from sw.ir.scope import retype
from sw.ir.walk import Body, assigned, statements, used_names, uses

#: More registers than any program needs.
UNLIMITED = 1 << 16
#: Approximate number of statements that are optimised together.
SECTION = 24
#: Fewest registers that a section is asked to do with.
FEWEST = 4


class Strategy(enum.Enum):
    """What registers keep: only loop counters, everything until they run out, or the best selection found."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    BUDGET = "budget"


def optimise(
    program: Program, registers: int, strategy: Strategy = Strategy.BUDGET, *, uniform: bool = False
) -> Program:
    """Keeps values of a warp's program in scalars, to minimise the executed turns.

    Invariants are assigned outside the loops that do not change them, induction variables are updated at loop
    ends, and common subexpressions are computed once. All this only as far as `registers` (the machine's, r0
    included) suffice; other values are computed at each use. With `uniform`, distances added to addresses are
    kept like constants that do not fit an immediate, as `sw.codegen.generate` then requires.

    Programs with a `while` are returned unchanged, since the sequencer cannot run them. So are programs in
    which hoisting reveals a certain failure, because the parser would reject the result.
    """
    if any(isinstance(s, While) for s in statements(program.body)):
        return program
    parts = sections(program.body)
    made = _joined(program, parts, registers, strategy, uniform)
    fewer = registers
    while len(parts) > 1 and (excess := count(made, uniform).registers - registers) > 0:
        # Values that all sections share take registers that each counted for itself: each does with fewer.
        fewer -= excess
        whole = fewer < FEWEST
        sizes = (program.body,) if whole else parts
        other = _joined(program, sizes, registers if whole else fewer, strategy, uniform)
        made = min(made, other, key=lambda p: count(p, uniform).registers)
        if whole:
            break
    return made


def _joined(
    program: Program, parts: Sequence[Body], registers: int, strategy: Strategy, uniform: bool
) -> Program:
    """The program of sections that are optimised one by one."""
    taken = used_names(program)
    made: list[Statement] = []
    for section in parts:
        part = dataclasses.replace(program, body=section)
        search = Search(Placement(prepare(part), uniform=uniform, taken=taken), registers)
        found = _section(search, part, strategy)
        taken |= used_names(found)
        made += found.body
    return retype(dataclasses.replace(program, body=tuple(made)))


def sections(body: Body) -> list[Body]:
    """Cuts a body into sections of about `SECTION` statements that share no assigned scalars.

    Each choice of a search costs one evaluation of the whole section, and operators of a model share hardly
    any values. On a whole model, a search could afford only a dozen choices.
    """
    scalars, last = assigned(body), dict[str, int]()
    for i, statement in enumerate(body):
        last |= dict.fromkeys((*assigned((statement,)), *uses((statement,)).keys() & scalars.keys()), i)
    found: list[Body] = []
    begin, size, end = 0, 0, 0
    for i, statement in enumerate(body):
        size += sum(1 for _ in statements((statement,)))
        end = max([end, *(last[name] for name in assigned((statement,)))])
        if i + 1 == len(body) or (size >= SECTION and end <= i):
            found.append(body[begin : i + 1])
            begin, size = i + 1, 0
    return found


def _section(search: Search, program: Program, strategy: Strategy) -> Program:
    """The best program that a search finds for a section, which is a program by itself."""
    match strategy:
        case Strategy.NOTHING:
            chosen = search.nothing()
        case Strategy.EVERYTHING:
            chosen = search.everything()
        case Strategy.BUDGET:
            chosen, given = search.budget(), _written(search, program)
            if given and search.rank(given) < search.key(chosen):
                return given.program
    return _readable(retype(search.result(chosen).program), program)


def _written(search: Search, program: Program) -> Result | None:
    """The result for the program as written; None if it cannot be lowered without preparation."""
    try:
        return search.measured(retype(program), {})
    except InputError:
        return None


def reduce_strength(program: Program) -> Program:
    """Keeps every induction variable that saves turns, regardless of registers."""
    if any(isinstance(s, While) for s in statements(program.body)):
        return program
    search = Search(Placement(prepare(program), keep=False), UNLIMITED)
    return _readable(retype(search.result(search.climb({})).program), program)


def _readable(made: Program, program: Program) -> Program:
    """The transformed program, or the original if the parser would reject only the transformed one."""
    return program if problems(made) and not problems(program) else made
