"""The choice of what to keep in registers: least executed cycles within a number of registers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from operator import itemgetter

from hw import isa
from sw.canonical.count import is_scalar
from sw.canonical.placement import COMPUTE, Asked, Option, Placement
from sw.codegen.allocate import allocate, live_out, pressure
from sw.codegen.lower import lower
from sw.codegen.virtual import Code
from sw.ir.expression import Apply, Expr
from sw.ir.program import If, Program
from sw.ir.walk import statements

Chosen = dict[Expr, Option]
#: Values that are had in another way.
Move = tuple[tuple[Expr, Option], ...]
#: The price of a move, its place in the program's order, and the move.
Priced = tuple[float, int, Move]
#: Choices after which no more improvements are looked for, and twice as many until one must fit.
LIMIT = 250
#: Operations that all evaluations together lower before a search ends: large programs get fewer evaluations.
#: Shares of it may be used up when the strategy `EVERYTHING`, then giving up values, end.
WORK = 20_000
EVERYTHING_SHARE, RELIEVE_SHARE = 0.4, 0.7
#: Of these, operations that one look for improvements may lower: with all of them BERT's layer took the same
#: cycles on four machines.
CLIMB = 5_000
#: Registers to spare with which allocation surely succeeds, so that choices need not wait for it.
SLACK = 4
#: By how much more than another one a cycle before the first operation of an engine counts, and one between a
#: wait and its operation.
START, LATE = 2, 1


@dataclass(frozen=True)
class Result:
    """A choice made into a program: what it costs, and what else could have been chosen.

    `excess` is by how much the registers are exceeded, summed over the instructions where they are; `start`
    the cycles before the first operation of an engine, `late` those between any wait and the operation that
    comes after it.
    """

    program: Program
    asked: Asked
    excess: int
    cycles: float
    start: float
    late: float
    registers: int
    static: int

    @property
    def cost(self) -> float:
        """Cycles; those that an engine surely waits for count several times."""
        return self.cycles + START * self.start + LATE * self.late

    @property
    def measures(self) -> tuple[float, float, float]:
        """What must not be worse than with another strategy."""
        return self.cycles, self.start, self.late

    def beyond(self, limits: tuple[float, ...]) -> float:
        """By how much the measures are above these."""
        found = self.measures
        return sum(max(0.0, value - limit) for value, limit in zip(found, limits, strict=True))


@dataclass
class Search:
    """Evaluates choices for a program and a number of registers, r0 included."""

    placement: Placement
    registers: int
    #: Measures of the better one of the other strategies, which the best must not exceed.
    limits: tuple[float, ...] = (inf, inf, inf)
    #: Choices that were evaluated.
    evaluated: int = 0
    #: Operations that were lowered for that.
    work: int = 0
    _known: dict[frozenset[tuple[Expr, Option]], Result] = field(default_factory=dict)

    def result(self, chosen: Chosen) -> Result:
        """What a choice comes to."""
        key = frozenset(chosen.items())
        if key not in self._known:
            self.evaluated += 1
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
        cycles = sum(o.weight * isa.INSTRUCTIONS[o.name].cycles for o in scalar)
        return Result(program, asked, excess, cycles, *delays(code), registers, len(code.operations))

    def key(self, chosen: Chosen) -> tuple[float, ...]:
        """What choices are compared by: less is better."""
        return self.rank(self.result(chosen))

    def rank(self, r: Result) -> tuple[float, ...]:
        """What results are compared by: less is better."""
        return r.excess, r.beyond(self.limits), r.cost, r.static, r.registers

    # Strategies

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

    def budget(self, given: Result | None = None) -> Chosen:
        """The best that was found from several starts, never worse than the other strategies.

        `given` is what the program comes to as it was written, which limits the measures as well.
        """
        others = [self.everything(), self.nothing()]
        results = [self.result(o) for o in others] + ([given] if given else [])
        fitting = [r for r in results if not r.excess]
        if fitting:
            best = min(fitting, key=lambda r: r.cost)
            self.limits = (min(r.cycles for r in fitting), min(r.start for r in fitting), best.late)
        mine = self.relieve({})
        for start in others:
            if self.result(mine).excess:
                mine = min(mine, self.relieve(start), key=self.key)
        mine = self.climb(mine)
        found = min([mine, *others], key=self.key)
        return found if found is mine else self.climb(found)

    def moves(self, chosen: Chosen) -> list[Move]:
        """Changes of one value, and of all that are made of one part, which they share if computed."""
        asked = self.result(chosen).asked
        present = {e: chosen.get(e, a[0]) for e, a in asked.items()}
        found: list[Move] = [((e, o),) for e, a in asked.items() for o in a if o != present[e]]
        made_of: dict[Expr, list[Expr]] = {}
        for expr, option in present.items():
            if option != COMPUTE and isinstance(expr, Apply):
                for part in expr.args:
                    if isinstance(part, Apply):
                        made_of.setdefault(part, []).append(expr)
        found += [tuple((e, COMPUTE) for e in users) for users in made_of.values() if len(users) > 1]
        return found

    def relieve(self, chosen: Chosen) -> Chosen:
        """Give up values, those that cost least per register relieved first, until the rest fits.

        What a value costs is looked at again when its turn comes: prices change little with what was given up
        before.
        """
        waiting: list[Priced] = []
        while self.result(chosen).excess and self.evaluated < 2 * LIMIT and self.work < RELIEVE_SHARE * WORK:
            waiting = waiting or self._priced(chosen, self.moves(chosen))
            if not waiting:
                break
            (_, _, move), *waiting = waiting
            fresh = self._priced(chosen, [move])
            if fresh and waiting and fresh[0][0] > waiting[0][0]:
                waiting = sorted([*fresh, *waiting], key=itemgetter(0, 1))
            elif fresh:
                chosen = chosen | dict(move)
        return chosen

    def _priced(self, chosen: Chosen, moves: list[Move]) -> list[Priced]:
        """Moves that relieve registers, with their price in cycles per register, cheapest first."""
        now = self.result(chosen)
        found: list[Priced] = []
        for i, move in enumerate(moves):
            if self.work >= RELIEVE_SHARE * WORK:
                break
            then = self.result(chosen | dict(move))
            if then.excess < now.excess:
                price = (then.cost - now.cost) / (now.excess - then.excess)
                found.append((price, i, move))
        return sorted(found, key=itemgetter(0, 1))

    def climb(self, chosen: Chosen) -> Chosen:
        """Take every change of one value that is for the better, round after round, until there is none."""
        moves = [] if self.result(chosen).excess else self.moves(chosen)
        last, most = self.evaluated + LIMIT, min(WORK, self.work + CLIMB)
        while moves:
            before = chosen
            for move in moves:
                if self.evaluated >= last or self.work >= most:
                    return chosen
                # Another change may have made the values of this one unnecessary.
                asked = self.result(chosen).asked
                trial = chosen | dict(move)
                if any(expr in asked for expr, _ in move) and self.key(trial) < self.key(chosen):
                    chosen = trial
            moves = [] if chosen is before else self.moves(chosen)
        return chosen


def delays(code: Code) -> tuple[float, float]:
    """Scalar cycles before the first operation, and late ones.

    Those before the first operation count once, in loops too: further steps come when the engine has
    something to do. Late are those between waits and operations, once per wait. A predicated operation may
    not be the one that the wait was for; what comes until the next signal counts.
    """
    start = late = waiting = 0.0
    issued = False
    for o in code.operations:
        if is_scalar(o):
            cycles = isa.INSTRUCTIONS[o.name].cycles
            start += 0 if issued else min(1.0, o.weight) * cycles
            late += min(o.weight, waiting) * cycles
        elif o.name == "wait":
            waiting = o.weight
        elif o.name == "signal":
            waiting = 0.0
        else:
            issued = True
            waiting = waiting if o.predicate else 0.0
    return start, late
