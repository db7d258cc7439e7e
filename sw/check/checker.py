"""Check that warps are equivalent to the sequential program that they were made from (docs/check.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

#: Values of the parameters, all together, up to which each is checked by itself at once.
FEW = 64
#: And up to which each is, where they cannot be taken together in classes.
MANY = 4096
#: Classes of values that are looked for, and statements and instructions followed for it.
CLASSES, FOLLOWED = 512, 60_000
#: Instances that are checked for all values together.
INSTANCES = 50_000_000
#: And for the symbolic argument.
REPEATED = 2_000_000
#: Values that are tried where nothing can be shown for all, and instances after which no more are.
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

    `channels`, `depth` (tokens that a channel holds), `pending_signals` and `registers` are the machine's.
    The verdict holds for all values of the parameters for which the program itself runs. Where that cannot be
    shown, some values are tried; it is then not `ok`, unless `samples_suffice`.

    Raises `InputError` for texts and programs that are not well formed, and where a warp fails by itself,
    such as by a division by zero; `IRError` where the program runs for no values that were tried.
    """
    for what, number in (("channels", channels), ("depth", depth), ("pending_signals", pending_signals)):
        if number < 1:
            raise InputError(f"{what} must be at least 1, not {number}")
    limits = Limits(channels, depth, registers)
    job = _Job(program, compile_all(program, texts, limits), limits)
    why = ""
    for small, run in ((FEW, job.each), (None, job.symbolic), (None, job.classes), (MANY, job.each)):
        if small is None or is_small(program, small):
            try:
                return run()
            except UnlikeError:
                job.done.clear()
            except TooLargeError as error:
                why = why or str(error)
                job.done.clear()
    return job.samples(why, samples_suffice)


@dataclass
class _Job:
    program: Program
    warps: Mapping[int, Compiled]
    limits: Limits
    done: list[Verdict] = field(default_factory=list)
    #: Statements and instructions that may still be followed, and classes for which the program fails.
    steps: int = FOLLOWED
    fails: int = 0

    def one(self, values: Mapping[str, int]) -> Verdict | None:
        """The verdict for some values where something is wrong; what is right is collected."""
        found = check_binding(self.program, self.warps, values, self.limits)
        if not found.ok:
            return found
        self.done.append(found)
        if sum(v.instances for v in self.done) > INSTANCES:
            raise TooLargeError(
                f"more than {INSTANCES:,} instances for all values of the parameters together"
            )
        return None

    def each(self) -> Verdict:
        """Every value by itself."""
        values, _ = assignments(self.program, MANY)
        bad, error = self.all(values)
        if bad is None and not self.done and error is not None:
            raise error
        return bad or merged(self.done, "exact")

    def all(self, values: Iterable[Mapping[str, int]]) -> tuple[Verdict | None, IRError | None]:
        """Some values; those for which the program itself fails do not count."""
        failed = None
        for given in values:
            try:
                bad = self.one(given)
            except IRError as error:
                if isinstance(error, TooLongError):
                    raise TooLargeError(error.found) from None
                failed = error
                continue
            if bad is not None:
                return bad, None
        return None, failed

    def symbolic(self) -> Verdict:
        """All values of parameters that say how often loops run, for each value of the others."""
        used = in_bounds(self.program)
        names: list[str] = []
        rest = self.program
        for p in sorted(rest.parameters, key=lambda p: p.type.low - p.type.high):
            if p.type.kind is Kind.INT and p.name in used and not is_small(rest, FEW):
                names.append(p.name)
                rest = replace(rest, parameters=tuple(q for q in rest.parameters if q != p))
        if not is_small(rest, FEW):
            raise UnlikeError("parameters besides those that say how often loops run")

        def one(values: Mapping[str, int]) -> Verdict | None:
            bad = self.one(values)
            if bad is None and self.done[-1].method != "exact":
                raise UnlikeError("tokens of several warps in a channel")
            if sum(v.instances for v in self.done) > REPEATED:
                raise UnlikeError(f"more than {REPEATED:,} instances for all values")
            return bad

        for fixed in assignments(rest, FEW)[0]:
            try:
                bad = Symbolic.of(self.program, self.warps, names, fixed, self.limits.depth).show(one)
            except IRError as error:
                raise UnlikeError(str(error)) from None
            if bad is not None:
                return bad
        return merged(self.done, "symbolic")

    def classes(self) -> Verdict:
        """One value for each class of values for which all is the same."""
        todo: list[Box] = [whole(self.program)]
        while todo:
            if len(self.done) + self.fails >= CLASSES:
                raise TooLargeError(f"more than {CLASSES} classes of values of the parameters")
            box = todo.pop()
            part, bad = self.exactly(box)
            if bad is not None:
                return bad
            todo += without(box, part)
        if not self.done:
            bad, error = self.all([middle(whole(self.program))])
            raise error or AssertionError(bad)
        return merged(self.done, "exact")

    def exactly(self, box: Box) -> tuple[Box, Verdict | None]:
        """Values of a box for which everything is as for the value in its middle; what is wrong there."""
        values = middle(box)
        walk = DecisionRun(Around(values, box), self.steps)
        try:
            walk.program(self.program)
        except FailsError:
            self.steps, self.fails = walk.steps, self.fails + 1
            return walk.around.box, None
        found = check_binding(self.program, self.warps, values, self.limits)
        if not found.ok:
            return box, found
        for code in self.warps.values():
            walk.warp(code)
        self.steps = walk.steps
        self.done.append(found)
        return walk.around.box, None

    def samples(self, why: str, suffice: bool) -> Verdict:
        """Some values, where all of them cannot be shown."""
        values, _ = assignments(self.program, SAMPLES)
        reason = f"cannot be shown for all values of the parameters: {why}"
        error: IRError | None = None
        for given in values:
            try:
                bad, failed = self.all([given])
            except TooLargeError as more:
                return Verdict(False, "sampled", reason=f"{reason}; nor for those that were tried: {more}")
            if bad is not None:
                return bad
            error = error or failed
            if sum(v.instances for v in self.done) > SAMPLED:
                break
        if not self.done:
            raise error or InputError(reason)
        made = merged(self.done, "sampled")
        text = f"{reason}; it holds for the {len(self.done)} that were tried"
        return replace(made, ok=suffice, reason=text)


def in_bounds(program: Program) -> set[str]:
    """The names that occur in bounds of loops, directly or through scalars."""
    found: set[str] = set()
    for s in reversed([*statements(program.body)]):
        if isinstance(s, For) or (isinstance(s, Assign) and s.target in found):
            found |= {v.name for e in expressions(s) for v in e.variables()}
    return found


def merged(verdicts: Iterable[Verdict], method: str) -> Verdict:
    """One verdict for several values of the parameters that are all right."""
    all_ = list(verdicts)
    flows: dict[int, Flow] = {}
    for v in all_:
        for c, flow in v.channels.items():
            old = flows.get(c, flow)
            flows[c] = Flow(
                tuple(sorted({*old.source, *flow.source})),
                tuple(sorted({*old.sink, *flow.sink})),
                max(old.tokens, flow.tokens),
                max(old.most, flow.most),
            )
    if method == "exact" and any(v.method == "explored" for v in all_):
        method = "explored"
    return Verdict(
        True,
        method,
        dependences=sum(v.dependences for v in all_),
        instances=sum(v.instances for v in all_),
        bindings=len(all_),
        channels=flows,
    )
