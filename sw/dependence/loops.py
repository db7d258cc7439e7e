"""Loops: one iteration after the other where that is affordable, else one iteration that stands for all.

For the second, iteration number k is a symbol. The iterations k - T to k - 1 before it run first, so that
distances up to T come out exactly; those before are summed up: what they wrote together for certain is
killed, and each of their writes is a definition at a symbolic iteration k - d. The first T iterations, which
have fewer before them, run with their own numbers (docs/dependence.md, "Loops").
"""

from __future__ import annotations

from sw.dependence.conditions import Condition, Truth, assume
from sw.dependence.execute import Distance, Executor, Record, TooMuchWorkError
from sw.dependence.forms import Value, add, fits
from sw.dependence.heads import ENDLESS, Head, goes_on, head_of, value_at
from sw.dependence.plan import LoopPlan
from sw.dependence.region_map import Node
from sw.dependence.state import Branched, unchanged
from sw.dependence.sweep import Summary, apply_summary, exact_count, summarise
from sw.ir.expression import Var
from sw.ir.program import For, While
from sw.ir.types import BOOL, INT, Kind

#: Iterations of a `while` that are tried one by one.
_TRIED = 16
#: Work of an instance at least, and of an instruction where one iteration stands for all of a body larger
#: than that.
_INSTANCE_WORK, _SYMBOLIC_WORK, _LARGE = 3, 60, 100
#: Loops whose work was taken back, less those where it was not, before no other one is tried.
_FAILURES = 20
#: Loops of fewer iterations by their bounds are not asked for other limits.
_SHORT = 1024


def loop(ex: Executor, s: For | While) -> None:
    """Run a loop; the state is that after it."""
    head = head_of(ex, s)
    plan = ex.plan.loops[id(s)]
    if not ex.loops:
        _outermost(ex, head, plan)
    else:
        _precisely(ex, head, plan)
    if isinstance(s, For):
        ex.state.forget(s.variable)


def _outermost(ex: Executor, head: Head, plan: LoopPlan) -> None:
    """Run an outermost loop: with arrays if they do, else precisely, else at a cost that is nearly linear."""
    from sw.dependence.nest import collect
    from sw.dependence.unrolled import run_whole

    fits_arrays = ex.simple and isinstance(exact_count(head), int) and 0 < head.most <= plan.cells
    if fits_arrays and run_whole(ex, collect(ex, head, head.most), plan.cells):
        return
    if head.most <= plan.limit:
        least = head.most * _INSTANCE_WORK
    else:
        least = _SYMBOLIC_WORK if plan.instructions > _LARGE else 5 * _INSTANCE_WORK
    if least * plan.instructions > plan.work or ex.failures > _FAILURES:
        _steadily(ex, head, plan)
        return
    ex.state.open()
    depth, record, recording = len(ex.state.journals), ex.record, ex.recording
    ex.record, ex.swept_seen, ex.limit = _fresh(record), [], ex.work + plan.work
    after: Branched | None = None
    try:
        _precisely(ex, head, plan)
        after = ex.state.undo()
    except TooMuchWorkError:
        while len(ex.state.journals) >= depth:
            ex.state.undo()
        ex.loops, ex.iteration, ex.recording, ex.record = (), (), recording, record
        ex.failures += 1
    found, ex.record, ex.limit = ex.record, record, ENDLESS
    if after is not None:
        _merge_records(record, found)
        ex.state.take(after)
        ex.failures = max(0, ex.failures - 1)
    else:
        _steadily(ex, head, plan)


def _precisely(ex: Executor, head: Head, plan: LoopPlan) -> None:
    limit = plan.limit
    if 0 < limit < head.most and isinstance(head.s, For):
        limit = limit if most_of(ex, head, plan) <= limit else 0
    elif isinstance(head.s, While):
        limit = min(limit, _TRIED)
    if not (limit and unrolled(ex, head, plan, limit)):
        symbolic(ex, head, plan)


def _steadily(ex: Executor, head: Head, plan: LoopPlan) -> None:
    """One body that stands for all iterations, and what is after the last one."""
    from sw.dependence.nest import collect
    from sw.dependence.steady import run_steady, see_before

    state = ex.state
    conditions: list[Condition] = []
    more = goes_on(ex, head, 0)
    if more != 0 and _enter(ex, more, conditions):
        most = most_of(ex, head, plan)
        if most > 0:
            reads, alive = run_steady(ex, collect(ex, head, most))
            if ex.recording:
                see_before(ex, reads)
            written = list(state.maps) if plan.written is None else sorted(plan.written)
            _last(ex, head, plan, {b: state.maps[b] for b in written}, 0, most, alive)
        else:
            state.dead = True
    _close(ex, conditions)


def iterate(ex: Executor, head: Head, plan: LoopPlan, number: Value) -> None:
    """One iteration."""
    s = head.s
    if isinstance(s, For):
        ex.state.set_value(s.variable, value_at(ex, head, number))
    loops, iteration = ex.loops, ex.iteration
    ex.loops, ex.iteration = (*loops, plan.number), (*iteration, number)
    ex.body(s.body)
    ex.loops, ex.iteration = loops, iteration


def unrolled(ex: Executor, head: Head, plan: LoopPlan, limit: int) -> bool:
    """Run a loop iteration by iteration; False (and nothing changed) if it has more than it may have."""
    ex.state.open()
    done = _peel(ex, head, plan, limit)
    if done is None:
        ex.state.undo()
        return False
    _close(ex, done)
    ex.state.take(ex.state.undo())
    return True


def _peel(ex: Executor, head: Head, plan: LoopPlan, limit: int) -> list[Condition] | None:
    """Run iterations until the loop surely ended; the conditions of the branches left open.

    None if it may have more than `limit` iterations; the branches are closed then.
    """
    conditions: list[Condition] = []
    for number in range(limit + 1):
        more = goes_on(ex, head, number)
        if more == 0:
            return conditions
        if number == limit:
            break
        if not _enter(ex, more, conditions):
            return conditions
        iterate(ex, head, plan, number)
        if ex.state.dead:
            return conditions
    for _ in conditions:
        ex.state.undo()
    return None


def _enter(ex: Executor, more: Truth, conditions: list[Condition]) -> bool:
    """Assume that there is another iteration; False if that contradicts what is known."""
    if isinstance(more, int):
        return bool(more)
    facts = assume(ex.state.facts, more)
    if facts is None:
        return False
    ex.state.open()
    ex.state.facts = facts
    conditions.append(more)
    return True


def _close(ex: Executor, conditions: list[Condition]) -> None:
    """The phi nodes of a loop that may end after every iteration."""
    for condition in reversed(conditions):
        after = ex.state.undo()
        ex.state.merge(condition, after, unchanged())


def symbolic(ex: Executor, head: Head, plan: LoopPlan) -> None:
    """Run a loop with an iteration that stands for all, with as many rounds before it as are worth it."""
    rounds = min(1, plan.rounds)
    while True:
        ex.state.open()
        outer_record, outer_seen = ex.record, ex.swept_seen
        ex.record = _fresh(outer_record)
        ex.swept_seen = []
        _attempt(ex, head, plan, rounds)
        record, swept, ex.record, ex.swept_seen = ex.record, ex.swept_seen, outer_record, outer_seen
        after = ex.state.undo()
        own = [d for d in swept if plan.number in d.loops]
        if rounds and rounds < plan.rounds and own:
            rounds = min(plan.rounds, rounds * 2)
            continue
        break
    _merge_records(outer_record, record)
    outer_seen += swept
    ex.state.take(after)


def _fresh(record: Record) -> Record:
    return Record(_Sources(), [] if record.details is not None else None)


class _Sources(dict[str, dict[str, set[Distance]]]):
    """Sources by use, made as uses come."""

    def __missing__(self, key: str) -> dict[str, set[Distance]]:
        found = self[key] = {}
        return found


def _merge_records(into: Record, record: Record) -> None:
    for use, sources in record.sources.items():
        known = into.sources[use]
        for source, distances in sources.items():
            known.setdefault(source, set()).update(distances)
    if into.details is not None and record.details is not None:
        into.details += record.details


def _attempt(ex: Executor, head: Head, plan: LoopPlan, rounds: int) -> None:
    """The first iterations by themselves, then one for all of the others, then what is after the last."""
    state = ex.state
    written = list(state.maps) if plan.written is None else sorted(plan.written)
    before = {b: state.maps[b] for b in written}
    conditions: list[Condition] = []
    more: Truth = 1
    for number in range(rounds + 1):
        more = goes_on(ex, head, number)
        if more == 0 or not _enter(ex, more, conditions):
            more = 0
            break
        if number < rounds:
            iterate(ex, head, plan, number)
            if state.dead:
                more = 0
                break
    if more != 0:
        most = most_of(ex, head, plan)
        if most > rounds:
            recording = ex.recording
            state.open()
            k = state.evaluator.symbols.fresh("k", rounds, most - 1)
            _rounds(ex, head, plan, before, k, rounds, most, recording)
            state.undo()
            _last(ex, head, plan, before, rounds, most)
            ex.recording = recording
        else:
            # The regions leave their buffers before.
            state.dead = True
    _close(ex, conditions)


def most_of(ex: Executor, head: Head, plan: LoopPlan) -> int:
    """The most iterations: by the bounds, and until the regions of certain accesses leave their buffers."""
    most = head.most
    if most < _SHORT:
        return most
    ex.state.open()
    k = ex.state.evaluator.symbols.fresh("k", 0, max(0, most - 1))
    restart(ex, head, plan)
    summary = summarise(ex, head, plan, k, False)
    ex.state.undo()
    return min(most, summary.most)


def restart(ex: Executor, head: Head, plan: LoopPlan) -> None:
    """Nothing is known of what the loop's scalars are at the start of some iteration."""
    state = ex.state
    for name, kind in plan.carried:
        state.set_value(name, state.evaluator.unknown(Var(name, BOOL if kind is Kind.BOOL else INT)))


def _rounds(
    ex: Executor,
    head: Head,
    plan: LoopPlan,
    before: dict[str, Node],
    last: Value,
    rounds: int,
    most: int,
    recording: bool,
) -> None:
    """Iterations up to `last`: those more than `rounds` before it summed up, the others run."""
    state = ex.state
    for buffer, node in before.items():
        state.set_map(buffer, node)
    restart(ex, head, plan)
    if most - 1 > rounds:
        _sum_up(ex, head, plan, last, rounds + 1, most)
        restart(ex, head, plan)
    for back in range(rounds, -1, -1):
        number = add(last, -back)
        more = goes_on(ex, head, number)
        facts = assume(state.facts, more)
        if facts is None or state.dead:
            state.dead = True
            return
        state.facts = facts
        ex.recording = recording and back == 0
        iterate(ex, head, plan, number)


def _sum_up(
    ex: Executor,
    head: Head,
    plan: LoopPlan,
    last: Value,
    skip: int,
    most: int,
    alive: set[tuple[str, int, str]] | None = None,
) -> None:
    """Put the iterations 0 to `last` - `skip` into the state at once."""
    back = ex.state.evaluator.symbols.fresh("d", skip, most - 1)
    ex.state.open()
    restart(ex, head, plan)
    summary: Summary = summarise(ex, head, plan, add(last, back, -1))
    ex.state.undo()
    if alive is not None:
        summary.writes = [
            w
            for w in summary.writes
            if (w.definition.label, w.definition.index, w.definition.buffer) in alive
        ]
    apply_summary(ex, summary, back, last, skip)


def _last(
    ex: Executor,
    head: Head,
    plan: LoopPlan,
    before: dict[str, Node],
    rounds: int,
    most: int,
    alive: set[tuple[str, int, str]] | None = None,
) -> None:
    """The state after the last iteration, whatever its number."""
    count = _count(ex, head, rounds, most)
    if rounds:
        _rounds(ex, head, plan, before, add(count, -1), rounds, most, False)
        return
    for buffer, node in before.items():
        ex.state.set_map(buffer, node)
    restart(ex, head, plan)
    _sum_up(ex, head, plan, add(count, -1), 0, most, alive)
    restart(ex, head, plan)


def _count(ex: Executor, head: Head, rounds: int, most: int) -> Value:
    """The number of iterations, given that there are more than `rounds`."""
    if head.step is not None:
        span = add(head.stop, head.start, -1) if head.step > 0 else add(head.start, head.stop, -1)
        if isinstance(span, int):
            return -(-span // abs(head.step))
        if abs(head.step) == 1 and fits(span) and fits(head.start) and fits(head.stop):
            return span
    return ex.state.evaluator.symbols.fresh("n", rounds + 1, max(rounds + 1, most))
