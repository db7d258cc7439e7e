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
#: A value and an alternative option for it.
Move = tuple[Expr, Option]
#: The price of a move, its position in program order, and the move.
Priced = tuple[float, int, Move]
#: Operations lowered, over all evaluations, before a search stops; large programs get fewer evaluations. The
#: strategy `EVERYTHING` and then spilling stop at these shares of it.
WORK = 20_000
EVERYTHING_SHARE, RELIEVE_SHARE = 0.4, 0.7
#: Share of operations that one search for improvements may lower. With all of them, the layer of BERT took
#: the same number of cycles on four machines.
CLIMB = 5_000
#: Spare registers with which allocation surely succeeds, so it need not be tried.
SLACK = 4
#: Additional weight of a turn before the first engine operation.
START = 2


@dataclass(frozen=True)
class Result:
    """An evaluated choice: its program, its cost, and the alternatives.

    `excess` sums the registers needed beyond those available over all instructions. `start` is the number of
    turns before the first engine operation.
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
        """Turns, with those before the first engine operation weighted more."""
        return self.turns + START * self.start


@dataclass
class Search:
    """Evaluates choices for a program with `registers` registers, r0 included."""

    placement: Placement
    registers: int
    #: Turns of the best simpler strategy, which the result must not exceed.
    limit: float = inf
    #: Operations lowered so far.
    work: int = 0
    _known: dict[frozenset[tuple[Expr, Option]], Result] = field(default_factory=dict)

    def result(self, chosen: Chosen) -> Result:
        """Evaluates a choice; results are cached."""
        key = frozenset(chosen.items())
        if key not in self._known:
            self._known[key] = self.measured(*self.placement.build(chosen))
        return self._known[key]

    def measured(self, program: Program, asked: Asked) -> Result:
        """Measures a program."""
        # Branches that have lost their operands may be small enough for predication.
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
        """Sort key of choices; smaller is better."""
        return self.rank(self.result(chosen))

    def rank(self, r: Result) -> tuple[float, ...]:
        """Sort key of results; smaller is better."""
        return r.excess, max(0.0, r.turns - self.limit), r.cost, r.static, r.registers

    def nothing(self) -> Chosen:
        """The choice that computes everything at its use."""
        return self.computed({})

    def computed(self, chosen: Chosen) -> Chosen:
        """Extends a choice to compute everything it does not name."""
        while new := self.result(chosen).asked.keys() - chosen.keys():
            chosen = chosen | dict.fromkeys(new, COMPUTE)
        return chosen

    def everything(self) -> Chosen:
        """Keeps every value as far outside as possible, in program order, while registers last.

        Tries several values at a time, and halves their number on failure.
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
        """The best choice found from several starts, never more expensive than the simpler strategies."""
        others = [self.everything(), self.nothing()]
        results = [self.result(o) for o in others]
        self.limit = min((r.turns for r in results if not r.excess), default=inf)
        mine = self.climb(self.relieve({}))
        found = min([mine, *others], key=self.key)
        return found if found is mine else self.climb(found)

    def moves(self, chosen: Chosen) -> list[Move]:
        """Alternatives for the values in use."""
        asked = self.result(chosen).asked
        return [(e, o) for e, options in asked.items() for o in options if o != chosen.get(e, options[0])]

    def relieve(self, chosen: Chosen) -> Chosen:
        """Spills values, cheapest per relieved register first, until the rest fits.

        The price of a value is checked again just before it is spilled; earlier spills change prices little.
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
        """Hill climbing: applies every single change that improves the result, until there is none."""
        moves = [] if self.result(chosen).excess else self.moves(chosen)
        most = min(WORK, self.work + CLIMB)
        while moves:
            before = chosen
            for expr, option in moves:
                if self.work >= most:
                    return chosen
                # An earlier change may have made this value unnecessary.
                trial = chosen | {expr: option}
                if expr in self.result(chosen).asked and self.key(trial) < self.key(chosen):
                    chosen = trial
            moves = [] if chosen is before else self.moves(chosen)
        return chosen


def start_turns(code: Code) -> float:
    """Scalar turns before the first engine operation.

    They count once even in loops: in later iterations the engines are already busy.
    """
    before = itertools.takewhile(lambda o: is_scalar(o) or o.name in ("wait", "signal"), code.operations)
    return sum(min(1.0, o.weight) * isa.INSTRUCTIONS[o.name].turns for o in before if is_scalar(o))
