"""What is known of a program before it is run: places of labels, sizes of loops, work that each may cost."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from sw.ir.intrinsics import effects
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement, While
from sw.ir.ranges import bounds
from sw.ir.types import Kind
from sw.ir.walk import statements

#: Instances that a program may always take, and per instruction of its text.
_INSTANCES = 20_000
_PER_INSTRUCTION: float = 16
#: Cells that whole loops may be spread over in any program, and per instruction of its text.
_CELLS, _CELLS_PER_INSTRUCTION = 1_000_000, 2_000
#: Steps of reads and writes in outermost loops of any program, and per instruction of its text.
_WORK, _WORK_PER_INSTRUCTION = 80_000, 30
#: Steps of exact walks of all reads together, and of each, for a small program.
_STEPS, _LEAST_STEPS = 20_000, 60
#: Instructions of a large program, and steps of each of its walks.
_LARGE, _FEWER_STEPS = 2_000, 14
_ENDLESS = 1 << 40


@dataclass(frozen=True)
class LoopPlan:
    """How a loop is run: iterations that may be run one by one, and rounds before one that stands for all."""

    number: int
    limit: int
    rounds: int
    #: Cells of buffers that all of its iterations may be spread over.
    cells: int
    #: Steps, definitions and distances of its reads and writes before it is run less precisely.
    work: int
    instructions: int
    #: Buffers that its body may write (None: all), and scalars that change in it.
    written: frozenset[str] | None
    carried: tuple[tuple[str, Kind], ...]


@dataclass
class Plan:
    """Places of labels in the text, plans of loops by identity, and steps of the walks of reads."""

    order: dict[str, int] = field(default_factory=dict)
    loops: dict[int, LoopPlan] = field(default_factory=dict)
    steps: int = _STEPS
    least_steps: int = _LEAST_STEPS
    #: The same of a read of what was before a loop that is run in frames: its region says little.
    steps_before: int = _LEAST_STEPS


def make_plan(program: Program) -> Plan:
    """The plan of a program."""
    plan = Plan()
    for s in statements(program.body):
        if isinstance(s, Instruction):
            plan.order[s.label] = len(plan.order)
    size = max(1, len(plan.order))
    if size > _LARGE:
        plan.least_steps, plan.steps_before = _FEWER_STEPS, 0
    share = max(_INSTANCES, _PER_INSTRUCTION * size) / size
    cells = max(_CELLS, _CELLS_PER_INSTRUCTION * size) / size
    work = max(_WORK, _WORK_PER_INSTRUCTION * size) / size
    _Planner(plan, share, cells, work).body(program.body)
    return plan


def trips(s: For) -> int:
    """The most iterations that the bounds of a loop allow."""
    (low, high), (end_low, end_high), (slow, fast) = bounds(s.start), bounds(s.stop), bounds(s.step)
    if slow > 0:
        span, step = end_high - low, slow
    elif fast < 0:
        span, step = high - end_low, -fast
    else:
        return _ENDLESS
    return max(0, -(-span // step))


@dataclass
class _Planner:
    """Plans loops from the inside out; `share` is how many instances an instruction of the text may take."""

    plan: Plan
    share: float
    cells: float
    work: float

    def body(self, body: tuple[Statement, ...]) -> tuple[int, float]:
        """Instructions of a body, and instances that running it takes."""
        count, cost = 0, 0.0
        for s in body:
            if isinstance(s, If):
                parts = [self.body(s.body), self.body(s.orelse)]
            elif isinstance(s, For | While):
                parts = [self.loop(s)]
            else:
                parts = [(int(isinstance(s, Instruction)), 1.0)]
            count += sum(n for n, _ in parts)
            cost += sum(c for _, c in parts)
        return count, cost

    def coarse(self, body: tuple[Statement, ...]) -> None:
        """Let one iteration stand for all in the loops of a body."""
        for s in statements(body):
            if isinstance(s, For | While):
                self.plan.loops[id(s)] = dataclasses.replace(self.plan.loops[id(s)], limit=0, rounds=0)

    def loop(self, s: For | While) -> tuple[int, float]:
        number = len(self.plan.loops) + 1
        # The number is taken before those of the loops inside.
        self.plan.loops[id(s)] = LoopPlan(number, 0, 0, 0, 0, 0, None, ())
        count, cost = self.body(s.body)
        cost = max(cost, 1.0)
        room = self.share * max(1, count)
        most = trips(s) if isinstance(s, For) else _ENDLESS
        fit = int(room / cost)
        if most <= fit:
            limit, rounds, total = most, 0, most * cost
        else:
            rounds = next((t for t in (16, 8, 4, 2, 1) if (3 * t + 2) * cost <= room), 0)
            limit = fit
            total = max(limit, 3 * rounds + 2 if rounds else 1) * cost
            if not rounds:
                # Once is what the loop can afford, and once it shall be further in.
                self.coarse(s.body)
                limit, total = 0, max(1.0, count)
        cells = int(self.cells * max(1, count))
        work = int(self.work * max(1, count))
        written = _written(s.body)
        # In structured text these are the scalars with a phi node at the loop's head.
        carried = {t.target: t.value.kind for t in statements(s.body) if isinstance(t, Assign)}
        self.plan.loops[id(s)] = LoopPlan(
            number, limit, rounds, cells, work, count, written, tuple(carried.items())
        )
        return count, total


def _written(body: tuple[Statement, ...]) -> frozenset[str] | None:
    """Buffers that a body may write; None: all."""
    written: set[str] = set()
    for s in statements(body):
        if isinstance(s, Instruction):
            for access in effects(s)[1]:
                if not isinstance(access, Region):
                    return None
                written.add(access.buffer)
    return frozenset(written)
