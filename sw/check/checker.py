"""Checks that warps are equivalent to the sequential program that they were made from (docs/check.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hw.errors import InputError
from sw.check.affine import Around, Box
from sw.check.binding import Flow, Limits, Verdict, check_binding, compile_all
from sw.check.boxes import DecisionRun, FailsError, is_small, middle, whole, without
from sw.check.dependences import TooLargeError
from sw.check.repeated_loops import UnlikeError
from sw.check.streams import Compiled
from sw.check.symbolic import Symbolic
from sw.check.trace import TooLongError
from sw.ir.errors import IRError
from sw.ir.parameters import assignments
from sw.ir.program import Assign, For, Program
from sw.ir.types import Kind
from sw.ir.walk import expressions, statements

#: Most parameter combinations that are checked individually straight away.
FEW = 64
#: Most combinations checked individually if they cannot be grouped into classes.
MANY = 4096
#: Most classes of values, and most statements and instructions executed to find them.
CLASSES, FOLLOWED = 512, 60_000
#: Most instances checked over all values together.
INSTANCES = 50_000_000
#: The same for the symbolic argument.
REPEATED = 2_000_000
#: Values sampled if nothing can be shown for all, and the number of instances after which sampling stops.
SAMPLES, SAMPLED = 32, 200_000


def check(
    program: Program,
    texts: Mapping[int, str],
    *,
    channels: int,
    depth: int,
    pending_signals: int,
    registers: int = 32,
    samples_suffice: bool = False,
) -> Verdict:
    """The verdict on warp programs, given as assembly text by warp, for a sequential program.

    `channels`, `depth` (tokens per channel), `pending_signals` and `registers` are the machine's. The verdict
    holds for all parameter values for which the program itself runs. If that cannot be proved, some values
    are tried; the result is then not `ok`, unless `samples_suffice`. Raises `InputError` for malformed texts
    and programs, and if a warp fails by itself, for example with a division by zero. Raises `IRError` if the
    program runs for none of the values tried.
    """
    for what, number in (("channels", channels), ("depth", depth), ("pending_signals", pending_signals)):
        if number < 1:
            raise InputError(f"{what} must be at least 1, not {number}")
    limits = Limits(channels, depth, registers)
    job = _Job(program, compile_all(program, texts, limits), limits)
    why = ""
    try:
        for small, run in ((FEW, job.each), (None, job.symbolic), (None, job.classes), (MANY, job.each)):
            if small is None or is_small(program, small):
                job.done.clear()
                try:
                    return run()
                except UnlikeError:
                    continue
                except TooLargeError as error:
                    why = why or str(error)
        job.done.clear()
        return job.samples(why, samples_suffice)
    except WrongError as wrong:
        return wrong.verdict


class WrongError(Exception):
    """Values for which the warps are wrong, so that nothing else needs checking."""

    def __init__(self, verdict: Verdict):
        super().__init__(verdict.reason)
        self.verdict = verdict


@dataclass
class _Job:
    """The ways to check all parameter values. All raise `WrongError`, and `TooLargeError` to give up."""

    program: Program
    warps: Mapping[int, Compiled]
    limits: Limits
    #: Verdicts on values that are correct.
    done: list[Verdict] = field(default_factory=list)

    @property
    def instances(self) -> int:
        """Number of instances checked."""
        return sum(v.instances for v in self.done)

    def one(self, values: Mapping[str, int]) -> None:
        found = check_binding(self.program, self.warps, values, self.limits)
        if not found.ok:
            raise WrongError(found)
        self.done.append(found)

    def those(self, values: Iterable[Mapping[str, int]], most: int = INSTANCES) -> None:
        """Checks some values one by one, up to a limit on instances.

        Values for which the program itself fails do not count; raises `IRError` if there are no others.
        """
        failed = None
        for given in values:
            try:
                self.one(given)
            except TooLongError as error:
                raise TooLargeError(error.found) from None
            except IRError as error:
                failed = error
            if self.instances > most:
                break
        if not self.done and failed is not None:
            raise failed

    def each(self) -> Verdict:
        self.those(assignments(self.program, MANY)[0])
        if self.instances > INSTANCES:
            raise TooLargeError(
                f"more than {INSTANCES:,} instances for all values of the parameters together"
            )
        return merged(self.done, "exact")

    def symbolic(self) -> Verdict:
        """Checks all values of trip-count parameters, for each value of the others."""
        used = in_bounds(self.program)
        names: list[str] = []
        rest = self.program
        for p in sorted(rest.parameters, key=lambda p: p.type.low - p.type.high):
            if p.type.kind is Kind.INT and p.name in used and not is_small(rest, FEW):
                names.append(p.name)
                rest = replace(rest, parameters=tuple(q for q in rest.parameters if q != p))
        if not is_small(rest, FEW):
            raise UnlikeError("parameters besides those that say how often loops run")

        def one(values: Mapping[str, int]) -> None:
            self.one(values)
            if self.done[-1].method != "exact":
                raise UnlikeError("tokens of several warps in a channel")
            if self.instances > REPEATED:
                raise UnlikeError(f"more than {REPEATED:,} instances for all values")

        try:
            for fixed in assignments(rest, FEW)[0]:
                Symbolic.of(self.program, self.warps, names, fixed, self.limits.depth).show(one)
        except IRError as error:
            raise UnlikeError(str(error)) from None
        return merged(self.done, "symbolic")

    def classes(self) -> Verdict:
        """Checks one value, in the middle of a box, for each class of values that behave alike."""
        todo: list[Box] = [whole(self.program)]
        steps = FOLLOWED
        for _ in range(CLASSES):
            box = todo.pop()
            walk = DecisionRun(Around(middle(box), box), steps)
            with contextlib.suppress(FailsError):
                walk.program(self.program)
                self.one(middle(box))
                for code in self.warps.values():
                    walk.warp(code)
            steps = walk.steps
            todo += without(box, walk.around.box)
            if not todo:
                break
        else:
            raise TooLargeError(f"more than {CLASSES} classes of values of the parameters")
        if not self.done:
            self.those([middle(whole(self.program))])
        return merged(self.done, "exact")

    def samples(self, why: str, suffice: bool) -> Verdict:
        """Checks samples, if not all values can be covered."""
        reason = f"cannot be shown for all values of the parameters: {why}"
        try:
            self.those(assignments(self.program, SAMPLES)[0], SAMPLED)
        except TooLargeError as more:
            return Verdict(False, "sampled", reason=f"{reason}; nor for those that were tried: {more}")
        text = f"{reason}; it holds for the {len(self.done)} that were tried"
        return replace(merged(self.done, "sampled"), ok=suffice, reason=text)


def in_bounds(program: Program) -> set[str]:
    """The names that occur in loop bounds, directly or through scalars."""
    found: set[str] = set()
    for s in reversed([*statements(program.body)]):
        if isinstance(s, For) or (isinstance(s, Assign) and s.target in found):
            found |= {v.name for e in expressions(s) for v in e.variables()}
    return found


def merged(verdicts: Sequence[Verdict], method: str) -> Verdict:
    """One verdict for several parameter values that are all correct."""
    flows: dict[int, Flow] = {}
    for v in verdicts:
        for c, flow in v.channels.items():
            old = flows.get(c, flow)
            flows[c] = Flow(
                tuple(sorted({*old.source, *flow.source})),
                tuple(sorted({*old.sink, *flow.sink})),
                max(old.tokens, flow.tokens),
                max(old.most, flow.most),
            )
    if method == "exact" and any(v.method == "explored" for v in verdicts):
        method = "explored"
    return Verdict(
        True,
        method,
        dependences=sum(v.dependences for v in verdicts),
        instances=sum(v.instances for v in verdicts),
        bindings=len(verdicts),
        channels=flows,
    )
