"""Lowers the statements of one warp to operations on virtual registers (docs/codegen.md, "Code").

Operands and parameters of an operation are computed before the waits directly before it, because anything
between a wait and its operation would delay the operation.
"""

from __future__ import annotations

from collections.abc import Callable

from hw import isa
from hw.errors import InputError
from sw.codegen.loops import expected_trips, likelihood, simplify, trip_count
from sw.codegen.operands import (
    UNSTATED,
    Growth,
    Uses,
    evaluated,
    growth_of,
    growth_of_condition,
    is_engine,
    operands,
    unbounded,
)
from sw.codegen.parameters import Held, Wanted, check
from sw.codegen.select import Selector, guarded
from sw.codegen.virtual import PARAMI_BITS, ZERO, Code, Emitter, Predicate, fits
from sw.ir.expression import Const, Expr, Op, Var, apply, names
from sw.ir.program import Assign, For, If, Instruction, Program, Statement, While
from sw.ir.ranges import bounds, may_wrap
from sw.ir.walk import scalar_expressions, statements

Finish = Callable[[], None]

#: Stands for an instruction that the machine does not have, in programs that are only counted.
GENERIC = "generic"


def lower(program: Program, *, simple: bool = False, exact: bool = False, uniform: bool = False) -> Code:
    """The operations of a program; instructions that the machine does not have count as one each.

    Parameters of the program are assumed to be in registers. With `simple`, `simplify` has nothing to do.
    With `uniform`, values that grow with the problem use the same instructions for any size (`Growth`).
    Raises `InputError` for a `while`, and, if the code must be `exact`, for loops whose trip count may exceed
    32 bits.
    """
    return _Lowering(program if simple else simplify(program), exact, uniform).code()


def _nothing() -> None:
    pass


class _Lowering:
    """State during lowering: registers of variables, contents of parameter registers."""

    def __init__(self, program: Program, exact: bool, uniform: bool):
        self.program, self.exact, self.uniform = program, exact, uniform
        self.to = Emitter()
        self.places: dict[str, int] = {}
        self.select = Selector(self.to, self.places)
        uses = Uses(program.body)
        self.needed = uses.needed()
        self.growths = uses.growths() if uniform else {}
        self.wanted = Wanted(unbounded(program))
        self.held = Held()
        #: Registers of constants assigned once at the start of the program, by value and growth.
        self.constants: dict[tuple[Expr, Growth], int] = {}
        self.outside = {_target(s) for s in program.body} - self.wanted.mutable
        self.depth = 0
        #: Index of the operation where the latest loop ended, and of the farthest jump target so far.
        self.loop_end = self.landing = -1

    def code(self) -> Code:
        """The whole program, with a final halt."""
        for p in self.program.parameters:
            if p.name in self.needed:
                self.places[p.name] = self.to.register()
                self.to.code.given[self.places[p.name]] = p.name
        self.body(self.program.body)
        self.to.emit("halt")
        return self.to.code

    def body(self, body: tuple[Statement, ...]) -> None:
        """Statements in order."""
        i = 0
        while i < len(body):
            waits = i
            while waits < len(body) and _is_wait(body[waits]):
                waits += 1
            after = body[waits] if waits < len(body) else None
            # An assignment may change what the waits' predicates depend on, and it is not urgent.
            late = after is None or isinstance(after, Assign)
            finish = _nothing if late or after is None else self.prepare(after)
            for issue in [self.prepare(wait) for wait in body[i:waits]]:
                issue()
            if late and after is not None:
                finish = self.prepare(after)
            finish()
            i = waits + 1

    def prepare(self, s: Statement) -> Finish:
        """Emits the code that can precede a statement's waits; the returned function emits the rest."""
        match s:
            case Assign(target, value):
                if target in self.needed:
                    self.assign(target, value)
                return _nothing
            case Instruction():
                return self.instruction(s)
            case For():
                return _nothing if self.idle(s) else self.loop(s)
            case If():
                return _nothing if self.idle(s) else self.branch(s)
            case While():
                raise InputError(f"{self.program.name}: the machine has no loops that depend on data (while)")

    def idle(self, s: Statement) -> bool:
        """Whether a statement does nothing that an instruction depends on."""
        nested = statements((s,))
        return not any(isinstance(x, Instruction) or _target(x) in self.needed for x in nested)

    def assign(self, target: str, value: Expr) -> None:
        """Assigns a scalar in its own register."""
        register = self.places[target] if target in self.places else self.to.register()
        growth = self.growths.get(target, Growth.NONE)
        self.value(guarded(value), growth, register)
        if target in self.outside:
            self.constants.setdefault((value, growth), register)
        self.places[target] = register
        self.held.forget({target})

    def value(self, expr: Expr, growth: Growth, target: int | None = None) -> int:
        """The register that holds a value; `target`, if given."""
        with self.select.growing(growth if self.uniform else Growth.NONE):
            return self.select.value(expr, target)

    def write_parameters(self, s: Statement) -> None:
        """Writes the parameter registers for which all of a statement wants the same value."""
        for name, expr in self.wanted.of(s).items():
            if expr is None or self.held.holds(name, expr):
                continue
            check(self.program.name, name, expr)
            self.held.values[name] = expr
            number = isa.PARAMETERS[name].index
            growth = growth_of(name) if self.uniform and expr != UNSTATED else Growth.NONE
            if isinstance(expr, Const) and fits(expr.value, PARAMI_BITS) and growth is Growth.NONE:
                self.to.emit("parami", immediate=expr.value, number=number)
            else:
                register = self.constants.get((expr, growth))
                register = self.value(guarded(expr), growth) if register is None else register
                self.to.emit("param", sources=(register,), number=number)

    def instruction(self, s: Instruction) -> Finish:
        """Emits operands; the returned function issues the instruction."""
        predicate: Predicate | None = None
        if s.when is not None:
            low, high = bounds(s.when)
            if high == 0:
                return _nothing
            with self.select.growing(growth_of_condition(s) if self.uniform else Growth.NONE):
                predicate = None if low else self.select.truth(guarded(s.when))
        if s.name in ("wait", "signal"):
            channel = dict(s.operands).get("channel", Const(0))
            number = channel.value if isinstance(channel, Const) else None
            return lambda: self._issue(s.name, s.label, (), number, predicate)
        if is_engine(s):
            self.write_parameters(s)
        found: dict[tuple[Expr, Growth], int] = {}
        wanted = [(expr, growth_of(name)) for name, expr in operands(s).items()]
        for key in wanted:
            if key not in found:
                expr, growth = key
                found[key] = self.value(guarded(expr, s.when), growth)
        registers = tuple(found[key] for key in wanted)
        name = s.name if is_engine(s) else GENERIC
        return lambda: self._issue(name, s.label, registers, None, predicate)

    def _issue(
        self,
        name: str,
        label: str,
        registers: tuple[int, ...],
        number: int | None,
        predicate: Predicate | None,
    ) -> None:
        self.to.emit(name, None, registers, None, predicate, number=number).label = label

    def loop(self, s: For) -> Finish:
        """Emits trip count and first value of the variable; the returned function emits the loop."""
        count = trip_count(s)
        self.write_parameters(s)
        used = self.counts(s)
        variable = step = ZERO
        if used:
            variable = self.select.value(guarded(s.start), self.to.register())
            if not isinstance(s.step, Const):
                step = self.select.value(guarded(s.step))
        trips = self.to.constant(count) if count is not None else self.trips(s)

        def finish() -> None:
            if used:
                self.places[s.variable] = variable
            head = self.to.emit("loop", None, (trips,))
            head.certain = (count or 0) > 0
            self.depth += 1
            self.to.code.depth = max(self.to.code.depth, self.depth)
            self.repeat(s, head.certain, variable, step)
            self.depth -= 1
            head.link = self.loop_end = self.to.here - 1

        return finish

    def repeat(self, s: For, certain: bool, variable: int, step: int) -> None:
        """The loop's body, the step of its variable, and the instructions required at a loop's end."""
        start = self.to.here
        wants = self.wanted.of(s)
        before = dict(self.held.values)
        self.held.forget(self.wanted.changes(s))
        self.held.values |= {name: None for name, expr in wants.items() if expr is None}
        with self.to.weighted(expected_trips(s)):
            self.body(s.body)
            if self.counts(s):
                if isinstance(s.step, Const):
                    self.select.value(apply(Op.ADD, Var(s.variable), s.step), variable)
                else:
                    self.to.emit("add", variable, (variable, step))
            if self.to.here in (start, self.loop_end + 1, self.landing):
                self.to.emit("nop")
        self.held.forget({s.variable})
        if not certain:
            self.held.merge(before)

    def counts(self, s: For) -> bool:
        """Whether the body of this loop needs its variable; another loop may have one of the same name."""
        return s.variable in self.needed and any(
            s.variable in names(e)
            for x in statements(s.body)
            if not isinstance(x, Assign) or x.target in self.needed
            for e in (evaluated(x) if isinstance(x, Instruction) else scalar_expressions(x))
        )

    def trips(self, s: For) -> int:
        """The trip count of a loop whose bounds are not constants."""
        low, high = bounds(s.step)
        if self.exact and low <= 0 <= high:
            raise InputError(f"{self.program.name}: the step of a loop must be known to be not 0: {s.step}")
        length = apply(Op.SUB, s.stop, s.start) if s.start != Const(0) else s.stop
        if self.exact and may_wrap(length):
            raise InputError(f"{self.program.name}: a loop must have bounds within 31 bits: {s.stop}")
        if s.step != Const(1):
            rounded = apply(Op.SUB, apply(Op.ADD, length, s.step), 1 if low > 0 else -1)
            length = apply(Op.DIV, rounded, s.step)
        return self.select.value(guarded(length))

    def branch(self, s: If) -> Finish:
        """Emits the condition; the returned function emits the branch with its jumps."""
        self.write_parameters(s)
        register, sense = self.select.truth(guarded(s.condition))
        chance = likelihood(s.condition)

        def finish() -> None:
            wants = self.wanted.of(s)
            jump = self.to.emit("jump", predicate=(register, not sense))
            before = dict(self.held.values)
            with self.to.weighted(chance):
                self.body(s.body)
                over = self.to.emit("jump") if s.orelse else None
            jump.link = self.landing = self.to.here
            after, self.held.values = self.held.values, before
            if over is not None:
                with self.to.weighted(1 - chance):
                    self.body(s.orelse)
                over.link = self.landing = self.to.here
            self.held.merge(after)
            self.held.values |= {name: None for name, expr in wants.items() if expr is None}

        return finish


def _target(s: Statement) -> str | None:
    return s.target if isinstance(s, Assign) else None


def _is_wait(s: Statement) -> bool:
    return isinstance(s, Instruction) and s.name == "wait"
