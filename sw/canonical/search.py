"""Chooses which values to keep in registers: fewest executed turns within a register budget."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter

from hw import isa
from sw.canonical.count import is_scalar
from sw.canonical.placement import COMPUTE, Asked, Option, Placement
from sw.codegen.allocate import allocate, live_out, pressure
from sw.codegen.lower import lower
from sw.codegen.virtual import Code
from sw.ir.expression import Expr
from sw.ir.program import If, Program
from sw.ir.walk import statements

Chosen = dict[Expr, Option]
#: A value, and another way to have it.
Move = tuple[Expr, Option]
#: The price of a move, its place in the program's order, and the move.
Priced = tuple[float, int, Move]
#: Operations that all evaluations together lower before a search ends: large programs get fewer evaluations.
#: Shares of it may be used up when the strategy `EVERYTHING`, then giving up values, end.
WORK = 20_000
EVERYTHING_SHARE, RELIEVE_SHARE = 0.4, 0.7
#: Of these, operations that one look for improvements may lower: with all of them BERT's layer took the same
#: cycles on four machines.
CLIMB = 5_000
#: Registers to spare with which allocation surely succeeds, so that choices need not wait for it.
SLACK = 4
#: By how much more than another one a turn before the first operation of an engine counts.
START = 2


@dataclass(frozen=True)
class Result:
    """A choice made into a program: what it costs, and what else could have been chosen.

    `excess` is by how much the registers are exceeded, summed over the instructions where they are; `start`
    the turns before the first operation of an engine.
    """

    program: Program
    asked: Asked
    excess: int
    turns: float
    start: float
    registers: int
    static: int

    @property
    def cost(self) -> float:
        """Turns; those in which an engine has nothing to do count several times."""
        return self.turns + START * self.start


@dataclass
class Search:
    """Evaluates choices for a program and a number of registers, r0 included."""

    placement: Placement
    registers: int
    #: Cycles of the better one of the other strategies, which the best must not exceed.
    limit: float = inf
    #: Operations that were lowered for that.
    work: int = 0
    _known: dict[frozenset[tuple[Expr, Option]], Result] = field(default_factory=dict)

    def result(self, chosen: Chosen) -> Result:
        """What a choice comes to."""
        key = frozenset(chosen.items())
        if key not in self._known:
            self._known[key] = self.measured(*self.placement.build(chosen))
        return self._known[key]

    def measured(self, program: Program, asked: Asked) -> Result:
        """What a program comes to."""
        # Branches that have lost their operands may be small enough for predicates.
        simple = not any(isinstance(s, If) for s in statements(program.body))
        code = lower(program, simple=simple, uniform=self.placement.uniform)
        live = live_out(code)
        needs = pressure(code, live)
        excess = sum(max(0, n + 1 - self.registers) for n in needs)
        registers = max(needs) + 1
        if not excess and registers + SLACK > self.registers:
            registers = allocate(code, live).count
            excess = max(0, registers - self.registers)
        self.work += len(code.operations)
        scalar = [o for o in code.operations if is_scalar(o)]
        turns = sum(o.weight * isa.INSTRUCTIONS[o.name].turns for o in scalar)
        return Result(program, asked, excess, turns, start_turns(code), registers, len(code.operations))

    def key(self, chosen: Chosen) -> tuple[float, ...]:
        """What choices are compared by: less is better."""
        return self.rank(self.result(chosen))

    def rank(self, r: Result) -> tuple[float, ...]:
        """What results are compared by: less is better."""
        return r.excess, max(0.0, r.turns - self.limit), r.cost, r.static, r.registers

    def nothing(self) -> Chosen:
        """Everything is computed where it is used."""
        return self.computed({})

    def computed(self, chosen: Chosen) -> Chosen:
        """A choice that computes all that it does not name."""
        while new := self.result(chosen).asked.keys() - chosen.keys():
            chosen = chosen | dict.fromkeys(new, COMPUTE)
        return chosen

    def everything(self) -> Chosen:
        """Every value is kept as far outside as possible, in the program's order, while registers last.

        Several values are tried at a time, half as many whenever that fails.
        """
        if not self.result({}).excess:
            return {}
        chosen = self.nothing()
        waiting = list(self.result({}).asked.items())
        seen: set[Expr] = set()
        size = max(1, self.registers // 2)
        while waiting and self.work < EVERYTHING_SHARE * WORK:
            group = {e: options[0] for e, options in waiting[:size] if e not in seen}
            tried = seen | group.keys()
            trial = self.computed(chosen | group)
            if self.result(trial).excess <= self.result(chosen).excess:
                chosen = trial
                waiting += [(e, o) for e, o in self.result(trial).asked.items() if e not in tried]
            elif size > 1:
                size //= 2
                continue
            del waiting[:size]
            seen = tried
        return chosen

    def budget(self) -> Chosen:
        """The best that was found from several starts, never dearer than the other strategies."""
        others = [self.everything(), self.nothing()]
        results = [self.result(o) for o in others]
        self.limit = min((r.turns for r in results if not r.excess), default=inf)
        mine = self.climb(self.relieve({}))
        found = min([mine, *others], key=self.key)
        return found if found is mine else self.climb(found)

    def moves(self, chosen: Chosen) -> list[Move]:
        """Values that are had in another way."""
        asked = self.result(chosen).asked
        return [(e, o) for e, options in asked.items() for o in options if o != chosen.get(e, options[0])]

    def relieve(self, chosen: Chosen) -> Chosen:
        """Give up values, those that cost least per register relieved first, until the rest fits.

        What a value costs is looked at again when its turn comes: prices change little with what was given up
        before.
        """
        waiting: list[Priced] = []
        while self.result(chosen).excess and self.work < RELIEVE_SHARE * WORK:
            waiting = waiting or self._priced(chosen, self.moves(chosen))
            if not waiting:
                break
            (_, _, (expr, option)), *waiting = waiting
            fresh = self._priced(chosen, [(expr, option)])
            if fresh and waiting and fresh[0][0] > waiting[0][0]:
                waiting = sorted([*fresh, *waiting], key=itemgetter(0, 1))
            elif fresh:
                chosen = chosen | {expr: option}
        return chosen

    def _priced(self, chosen: Chosen, moves: list[Move]) -> list[Priced]:
        """Moves that relieve registers, with their price in turns per register, cheapest first."""
        now = self.result(chosen)
        found: list[Priced] = []
        for i, (expr, option) in enumerate(moves):
            if self.work >= RELIEVE_SHARE * WORK:
                break
            then = self.result(chosen | {expr: option})
            if then.excess < now.excess:
                price = (then.cost - now.cost) / (now.excess - then.excess)
                found.append((price, i, (expr, option)))
        return sorted(found, key=itemgetter(0, 1))

    def climb(self, chosen: Chosen) -> Chosen:
        """Take every change of one value that is for the better, round after round, until there is none."""
        moves = [] if self.result(chosen).excess else self.moves(chosen)
        most = min(WORK, self.work + CLIMB)
        while moves:
            before = chosen
            for expr, option in moves:
                if self.work >= most:
                    return chosen
                # Another change may have made the values of this one unnecessary.
                trial = chosen | {expr: option}
                if expr in self.result(chosen).asked and self.key(trial) < self.key(chosen):
                    chosen = trial
            moves = [] if chosen is before else self.moves(chosen)
        return chosen


def start_turns(code: Code) -> float:
    """Scalar turns before the first operation of an engine.

    They count once, in loops too: further steps come when the engine has something to do.
    """
    before = itertools.takewhile(lambda o: is_scalar(o) or o.name in ("wait", "signal"), code.operations)
    return sum(min(1.0, o.weight) * isa.INSTRUCTIONS[o.name].turns for o in before if is_scalar(o))
