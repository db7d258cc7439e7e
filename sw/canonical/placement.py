"""Options for keeping values in registers, and the program that a choice of options produces.

A kept value is assigned to a scalar in the body of a loop (or of the program), and the scalar replaces the
expression everywhere inside. An induction variable is assigned before its loops and updated at their ends.
Everything else is computed where it is used, from the parts that are kept.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sw.canonical.induction import SELF, Induction, induction
from sw.codegen.operands import IN_MEMORY, modified, operands, parameters
from sw.codegen.select import exponent
from sw.codegen.virtual import fits
from sw.ir.expression import Apply, Const, Expr, Op, Var, names, substitute
from sw.ir.intrinsics import INTRINSICS
from sw.ir.parse import RESERVED
from sw.ir.program import (
    Assign,
    For,
    If,
    Instruction,
    Interval,
    Program,
    Region,
    Statement,
    While,
)
from sw.ir.ranges import FULL, Bounds, bounds, may_trap
from sw.ir.scope import loop_depth
from sw.ir.types import LOW, Kind, Type
from sw.ir.walk import bodies, instructions, used_names


@dataclass(frozen=True)
class Compute:
    """Compute the value at every use."""


@dataclass(frozen=True)
class Keep:
    """Keep the value in a scalar assigned at loop depth `depth`."""

    depth: int


@dataclass(frozen=True)
class Carry:
    """Keep the value in an induction variable of the loops deeper than `depth`."""

    depth: int


Option = Compute | Keep | Carry
Choice = Mapping[Expr, Option]
#: The options of every expression met while building.
Asked = dict[Expr, tuple[Option, ...]]
COMPUTE = Compute()


@dataclass(eq=False)
class Body:
    """The body of the program, a loop or a branch, and the statements to insert.

    `around` is the statement it belongs to and `index` that statement's position in `parent`. The flag in
    `ends` and `values` marks addresses and distances in memory. They share no scalars with other values,
    because their constants need different instructions.
    """

    parent: Body | None
    index: int
    around: Statement | None
    depth: int
    before: dict[int, list[Statement]] = field(default_factory=dict)
    ends: list[tuple[str, Expr, bool]] = field(default_factory=list)
    values: dict[tuple[Expr, int, bool], Var] = field(default_factory=dict)
    #: Per statement, the variables it changes.
    changes: list[frozenset[str]] = field(default_factory=list)
    children: dict[tuple[int, int], Body] = field(default_factory=dict)
    #: Per statement, the first of the waits directly before it, or itself.
    first: list[int] = field(default_factory=list)

    def clear(self) -> None:
        """Removes the insertions."""
        self.before.clear()
        self.ends.clear()
        self.values.clear()


@dataclass(frozen=True)
class Spot:
    """A position in the program: before a statement of a body."""

    body: Body
    index: int


@dataclass(frozen=True)
class Use:
    """A use of an expression: position, name hint, and whether it is an address or distance in memory."""

    spot: Spot
    hint: str
    in_memory: bool = False


class Placement:
    """A program prepared for choices: every evaluated expression may be kept in a scalar or not.

    With `uniform`, every distance added to an address may be kept too. New scalars avoid names in `taken`.
    """

    def __init__(
        self,
        program: Program,
        *,
        carry: bool = True,
        keep: bool = True,
        uniform: bool = False,
        taken: Collection[str] = (),
    ):
        self.program, self.uniform, self.elsewhere = program, uniform, frozenset(taken)
        self.carry, self.keep = carry, keep
        self.bodies: list[Body] = []
        self.root = self._body(Body(None, 0, None, 0), program.body)
        self.taken = used_names(program) | {i.name for i in instructions(program)} | set(RESERVED)
        self.options = functools.cache(self._options)
        self.nest = functools.cache(self._nest)
        self.induction = functools.cache(self._induction)

    def _body(self, made: Body, body: tuple[Statement, ...]) -> Body:
        self.bodies.append(made)
        for i, s in enumerate(body):
            made.changes.append(modified(s))
            waits = i and isinstance(before := body[i - 1], Instruction) and before.name == "wait"
            made.first.append(made.first[i - 1] if waits else i)
            deeper = made.depth + isinstance(s, For | While)
            for which, nested in enumerate(bodies(s)):
                made.children[i, which] = self._body(Body(made, i, s, deeper), nested)
        return made

    def _options(self, expr: Expr, spot: Spot) -> tuple[Option, ...]:
        """The options of an expression at a position; the first is best if registers are unlimited."""
        if isinstance(expr, Var) or may_trap(expr) or (isinstance(expr, Apply) and expr.op is Op.NOT):
            return (COMPUTE,)
        found: list[Option] = []
        if self.carry and loop_depth(expr) is not None:
            nest = [b for b in self.nest(expr, spot.body) if self.induction(expr, b, spot.body)]
            found += [Carry(b.depth - 1) for b in reversed(nest)]
        if self.keep:
            depths = sorted({s.body.depth for s in self.homes(expr, spot)})
            found += [Keep(depth) for depth in (depths[:1] if isinstance(expr, Const) else depths)]
        return (*found, COMPUTE)

    def homes(self, expr: Expr, spot: Spot) -> list[Spot]:
        """Positions where the expression may be assigned, from the innermost outwards.

        An assignment moves out of a branch only together with a loop around the branch.
        """
        used = names(expr)
        found = [spot]
        body, index = spot.body, spot.index
        while body.parent is not None:
            if isinstance(body.around, For | While) and not used.isdisjoint(body.parent.changes[body.index]):
                break
            loop = isinstance(body.around, For | While)
            body, index = body.parent, body.index
            if loop:
                found.append(Spot(body, index))
        return found

    def _nest(self, expr: Expr, innermost: Body) -> list[Body]:
        """Bodies of loops that may carry an expression, from the deepest that it depends on outwards."""
        used = names(expr)
        body: Body | None = innermost
        while body is not None and not (isinstance(body.around, For) and body.around.variable in used):
            if isinstance(body.around, While):
                return []
            body = body.parent
        found: list[Body] = []
        while body is not None and isinstance(body.around, For):
            found.append(body)
            body = body.parent
        variables = {b.around.variable for b in found if isinstance(b.around, For)}
        allowed = used & variables
        for i, b in enumerate(found):
            assert b.parent is not None
            if (b.parent.changes[b.index] & used) - allowed:
                return found[:i]
        return found

    def _induction(self, expr: Expr, outermost: Body, innermost: Body) -> Induction | None:
        """The induction variable of an expression in the loops from `outermost` to `innermost`, or None."""
        nest = self.nest(expr, innermost)
        loops = [b.around for b in nest[: nest.index(outermost) + 1][::-1]]
        return induction(expr, [x for x in loops if isinstance(x, For)])

    def build(self, choice: Choice) -> tuple[Program, Asked]:
        """Builds the program for a choice, and returns the options of all expressions met.

        Expressions that `choice` does not name use their first option.
        """
        return _Builder(self, choice).program()


class _Builder:
    """Builds the program of one choice."""

    def __init__(self, placement: Placement, choice: Choice):
        self.placement, self.choice = placement, choice
        self.asked: Asked = {}
        self.used = placement.taken | placement.elsewhere
        for body in placement.bodies:
            body.clear()

    def program(self) -> tuple[Program, Asked]:
        """Returns the program and the options of its expressions."""
        body = self.body(self.placement.root, self.placement.program.body)
        return dataclasses.replace(self.placement.program, body=body), self.asked

    def name(self, hint: str) -> str:
        """Returns an unused name."""
        name, number = hint, 0
        while name in self.used:
            number += 1
            name = f"{hint}{number}"
        self.used.add(name)
        return name

    def body(self, body: Body, old: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """The statements of a body with its insertions."""
        made = [self.statement(s, Spot(body, i)) for i, s in enumerate(old)]
        end = Spot(body, len(old))
        ends = [Assign(n, self.resolve(e, Use(end, "step", m), top=True)) for n, e, m in body.ends]
        found: list[Statement] = []
        for i, s in enumerate(made):
            found += [*body.before.get(i, []), s]
        return (*found, *body.before.get(len(old), []), *ends)

    def statement(self, s: Statement, spot: Spot) -> Statement:
        """A statement with its expressions resolved."""

        def resolve(expr: Expr, hint: str) -> Expr:
            return self.resolve(expr, Use(spot, hint))

        def inside(which: int, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
            return self.body(spot.body.children[spot.index, which], body)

        match s:
            case Instruction():
                return self.instruction(s, spot)
            case Assign(target, value):
                return Assign(target, self.resolve(value, Use(spot, target), top=True), s.where)
            case For(variable, start, stop, step, body):
                start, step = resolve(start, variable), resolve(step, "step")
                return For(variable, start, resolve(stop, "stop"), step, inside(0, body), s.where)
            case If(condition, body, orelse):
                return If(resolve(condition, "condition"), inside(0, body), inside(1, orelse), s.where)
            case While(condition, body):
                return While(condition, inside(0, body), s.where)

    def instruction(self, s: Instruction, spot: Spot) -> Instruction:
        """An instruction with its evaluated expressions resolved; descriptive regions stay as they are."""
        registers, values = operands(s), parameters(s)
        apart = IN_MEMORY if self.placement.uniform else frozenset()
        found: list[tuple[str, Expr | Region]] = []
        for name, value in s.operands:
            if isinstance(value, Region):
                value = self.region(value, spot, name)
            elif name in registers or name in values:
                value = self.resolve(value, Use(spot, name, name in apart), register=name in registers)
            found.append((name, value))
        reads, writes = s.reads, s.writes
        if s.name not in INTRINSICS:
            reads, writes = (
                tuple(self.region(a, spot, "at") if isinstance(a, Region) else a for a in accesses)
                for accesses in (reads, writes)
            )
        when = None if s.when is None else self.resolve(s.when, Use(spot, "when"))
        return Instruction(s.label, s.name, reads, writes, s.warp, when, tuple(found), s.where)

    def region(self, region: Region, spot: Spot, hint: str) -> Region:
        """A region with its interval bounds resolved."""
        start, stop = Use(spot, hint), Use(spot, f"{hint}_end")
        box = tuple(Interval(self.resolve(i.start, start), self.resolve(i.stop, stop)) for i in region.box)
        return Region(region.buffer, box, region.where)

    def resolve(self, expr: Expr, use: Use, *, register: bool = False, top: bool = False) -> Expr:
        """Rewrites an expression in terms of kept values. With `register`, a constant needs a register here.

        `top` marks the whole value of an assignment, which needs no further scalar.
        """
        if isinstance(expr, Const) and register and expr.value and expr.kind is Kind.INT:
            option = self.option(expr, use.spot)
            constant = dataclasses.replace(use, hint=f"constant_{abs(expr.value)}")
            return self.keep(expr, constant, option.depth) if isinstance(option, Keep) else expr
        if not isinstance(expr, Apply):
            return expr
        match COMPUTE if top else self.option(expr, use.spot):
            case Keep(depth):
                return self.keep(expr, use, depth)
            case Carry(depth):
                return self.carry(expr, use, depth)
        return self.computed(expr, use)

    def option(self, expr: Expr, spot: Spot) -> Option:
        """The chosen option of an expression, if it is possible here."""
        if not names(expr) <= self.placement.taken:
            # The update of a scalar that this choice introduces.
            return COMPUTE
        options = self.placement.options(expr, spot)
        if len(options) > 1:
            self.asked.setdefault(expr, options)
        chosen = self.choice.get(expr, options[0])
        return chosen if chosen in options else options[-1]

    def computed(self, expr: Expr, use: Use) -> Expr:
        """The operator on resolved arguments."""
        if not isinstance(expr, Apply):
            return expr
        right = expr.args[-1]
        if expr.op in (Op.ADD, Op.SUB) and isinstance(right, Const):
            # A constant and its negative share a register.
            opposite = Op.SUB if expr.op is Op.ADD else Op.ADD
            if LOW < right.value < 0 and in_register(expr, 1, in_memory=use.in_memory):
                expr = Apply(opposite, (expr.args[0], Const(-right.value)))
        args = []
        for i, argument in enumerate(expr.args):
            register = isinstance(argument, Const) and in_register(expr, i, in_memory=use.in_memory)
            args.append(self.resolve(argument, use, register=register))
        return Apply(expr.op, tuple(args))

    def keep(self, expr: Expr, use: Use, depth: int) -> Expr:
        """The scalar that keeps the expression, assigned at loop depth `depth`."""
        home = next(s for s in self.placement.homes(expr, use.spot) if s.body.depth == depth)
        version = sum(not names(expr).isdisjoint(c) for c in home.body.changes[: home.index])
        known = home.body.values.get((expr, version, use.in_memory))
        if known is not None:
            return known
        value = self.computed(expr, dataclasses.replace(use, spot=home))
        # The bounds that `retype` will derive from the parts it is computed from.
        variable = self.variable(expr, use, bounds(value))
        home.body.values[expr, version, use.in_memory] = variable
        self.add(home, Assign(variable.name, value))
        return variable

    def carry(self, expr: Expr, use: Use, depth: int) -> Expr:
        """The induction variable of the loops deeper than `depth`."""
        nest = self.placement.nest(expr, use.spot.body)
        outermost = next(b for b in nest if b.depth == depth + 1)
        # Successive loops may use the same variable; each nest has a value of its own.
        key = (expr, -id(nest[0]), use.in_memory)
        known = outermost.values.get(key)
        if known is not None:
            return known
        how = self.placement.induction(expr, outermost, use.spot.body)
        assert how is not None
        assert outermost.parent is not None
        variable = self.variable(expr, use, FULL)
        outermost.values[key] = variable
        before = Spot(outermost.parent, outermost.index)
        self.add(
            before, Assign(variable.name, self.resolve(how.start, dataclasses.replace(use, spot=before)))
        )
        loops = nest[: nest.index(outermost) + 1][::-1]
        for body, update in zip(loops, how.updates, strict=True):
            if update is not None:
                body.ends.append((variable.name, substitute(update, {SELF: variable}), use.in_memory))
        return variable

    def variable(self, expr: Expr, use: Use, within: Bounds) -> Var:
        """A new scalar for an expression, bounded by `within` if an integer."""
        low, high = within if expr.kind is Kind.INT else (0, 1)
        return Var(self.name(use.hint), Type(expr.kind, low, high + 1, loop_depth(expr)))

    def add(self, spot: Spot, statement: Statement) -> None:
        """Inserts a statement before another one and before the waits directly before that."""
        first = spot.body.first
        index = first[spot.index] if spot.index < len(first) else spot.index
        spot.body.before.setdefault(index, []).append(statement)


def in_register(expr: Apply, index: int, *, in_memory: bool = False) -> bool:
    """Whether the constant operand at `index` must be loaded into a register.

    With `in_memory`, every added number must be: it is a distance added to an address.
    """
    constant = expr.args[index]
    assert isinstance(constant, Const)
    value = constant.value
    if value == 0 or constant.kind is Kind.BOOL:
        return False
    match expr.op:
        case Op.ADD:
            return in_memory or not (fits(value) or fits(-value))
        case Op.SUB:
            return in_memory or index == 0 or not (fits(value) or fits(-value))
        case Op.MUL:
            near = (value, value - 1, value + 1, -value)
            return not fits(value) and all(exponent(n) is None for n in near)
        case Op.DIV | Op.MOD:
            if index == 0:
                return True
            return exponent(value) is None and not fits(value)
        case Op.SHL | Op.SHR:
            return index == 0
        case Op.SELECT:
            return index > 0
    return not fits(value)
