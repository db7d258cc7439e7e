"""Where values may be kept, and the program that keeps a given choice of them.

A value that is kept is assigned to a scalar in the body of a loop (or of the program) and stands for its
expression everywhere inside; an induction variable is assigned before its loops and updated at the ends of
their steps. What is not kept is computed where it is used, from the parts that are kept.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from sw.canonical.immediates import in_register
from sw.canonical.induction import SELF, Induction, induction
from sw.codegen.operands import IN_MEMORY, modified, operands, parameters
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
from sw.ir.ranges import bounds, may_trap
from sw.ir.scope import loop_depth
from sw.ir.types import BOOL, INT, LOW, Kind, Type
from sw.ir.walk import instructions, used_names


@dataclass(frozen=True)
class Compute:
    """Compute the value at every use."""


@dataclass(frozen=True)
class Keep:
    """Keep the value in a scalar that is assigned inside so many loops."""

    depth: int


@dataclass(frozen=True)
class Carry:
    """Keep the value in a scalar that the loops inside of so many loops move on."""

    depth: int


Option = Compute | Keep | Carry
Choice = Mapping[Expr, Option]
#: The options of every expression that is asked for.
Asked = dict[Expr, tuple[Option, ...]]
COMPUTE = Compute()


@dataclass(eq=False)
class Body:
    """Statements of the program, a loop or a branch, with what is to be added to them.

    `around` is the statement that they belong to and `index` its place in `parent`. With `ends` and `values`
    goes whether they are places or distances in memory, which share nothing with others: their constants
    take other instructions.
    """

    parent: Body | None
    index: int
    around: Statement | None
    depth: int
    before: dict[int, list[Statement]] = field(default_factory=dict)
    ends: list[tuple[str, Expr, bool]] = field(default_factory=list)
    values: dict[tuple[Expr, int, bool], Var] = field(default_factory=dict)
    #: By statement: what it changes.
    changes: list[frozenset[str]] = field(default_factory=list)
    children: dict[tuple[int, int], Body] = field(default_factory=dict)
    #: By statement: the first of the waits right before it, or itself.
    first: list[int] = field(default_factory=list)

    def clear(self) -> None:
        """Forget what was added."""
        self.before.clear()
        self.ends.clear()
        self.values.clear()


@dataclass(frozen=True, eq=False)
class Spot:
    """A place in the program: before a statement of a body."""

    body: Body
    index: int


class Placement:
    """A program prepared for choices: every expression of it that is evaluated may be kept or not.

    With `uniform` so is every distance that is added to an address.
    """

    def __init__(self, program: Program, *, carry: bool = True, keep: bool = True, uniform: bool = False):
        self.program, self.uniform = program, uniform
        self.carry, self.keep = carry, keep
        self.bodies: list[Body] = []
        self.root = self._body(program.body, None, 0, None, 0)
        self._options: dict[tuple[Expr, int, int], tuple[Option, ...]] = {}
        self._inductions: dict[tuple[Expr, int], Induction | None] = {}
        self._nests: dict[tuple[Expr, int], list[Body]] = {}
        self.taken = used_names(program) | {i.name for i in instructions(program)} | set(RESERVED)

    def _body(
        self,
        body: tuple[Statement, ...],
        parent: Body | None,
        index: int,
        around: Statement | None,
        depth: int,
    ) -> Body:
        made = Body(parent, index, around, depth)
        self.bodies.append(made)
        for i, s in enumerate(body):
            made.changes.append(modified(s))
            waits = i and isinstance(before := body[i - 1], Instruction) and before.name == "wait"
            made.first.append(made.first[i - 1] if waits else i)
            inner = (
                [s.body, s.orelse] if isinstance(s, If) else [s.body] if isinstance(s, For | While) else []
            )
            for which, nested in enumerate(inner):
                deeper = depth + isinstance(s, For | While)
                made.children[i, which] = self._body(nested, made, i, s, deeper)
        return made

    # Options

    def options(self, expr: Expr, spot: Spot) -> tuple[Option, ...]:
        """How an expression may be had at a place; the first is best where registers do not count."""
        key = expr, id(spot.body), spot.index
        found = self._options.get(key)
        if found is None:
            found = self._options[key] = tuple(self._find(expr, spot))
        return found

    def _find(self, expr: Expr, spot: Spot) -> list[Option]:
        if isinstance(expr, Var) or may_trap(expr) or (isinstance(expr, Apply) and expr.op is Op.NOT):
            return [COMPUTE]
        found: list[Option] = []
        if self.carry and not isinstance(expr, Const):
            found += [Carry(depth) for depth in self._carries(expr, spot)]
        if self.keep:
            depths = sorted({s.body.depth for s in self._homes(expr, spot)})
            if isinstance(expr, Const):
                depths = depths[:1]
            found += [Keep(depth) for depth in depths]
        return [*found, COMPUTE]

    def _homes(self, expr: Expr, spot: Spot) -> list[Spot]:
        """Places where the expression may be assigned, from the innermost outwards.

        A branch is left only together with a loop around it.
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

    def _carries(self, expr: Expr, spot: Spot) -> list[int]:
        """Depths from which the expression may be carried, outermost first."""
        if loop_depth(expr) is None:
            return []
        found = [b.parent.depth for b in self.nest(expr, spot) if b.parent and self.induction(expr, spot, b)]
        return found[::-1]

    def nest(self, expr: Expr, spot: Spot) -> list[Body]:
        """Bodies of the loops that may carry an expression, from the deepest that it depends on outwards."""
        key = expr, id(spot.body)
        found = self._nests.get(key)
        if found is None:
            found = self._nests[key] = self._nest(expr, spot.body)
        return found

    def _nest(self, expr: Expr, innermost: Body) -> list[Body]:
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

    def induction(self, expr: Expr, spot: Spot, outermost: Body) -> Induction | None:
        """How the expression is carried by the loops from this one inwards."""
        key = expr, id(outermost)
        if key not in self._inductions:
            nest = self.nest(expr, spot)
            loops = [b.around for b in nest[: nest.index(outermost) + 1][::-1]]
            self._inductions[key] = induction(expr, [x for x in loops if isinstance(x, For)])
        return self._inductions[key]

    # The program for a choice

    def build(self, choice: Choice) -> tuple[Program, Asked]:
        """The program that keeps what is chosen, and what is to be known of the expressions asked for.

        What `choice` does not name is had by its first option.
        """
        return _Builder(self, choice).program()


class _Builder:
    """One choice on its way to a program."""

    def __init__(self, placement: Placement, choice: Choice):
        self.placement, self.choice = placement, choice
        self.asked: Asked = {}
        self.used = set(placement.taken)
        for body in placement.bodies:
            body.clear()

    def program(self) -> tuple[Program, Asked]:
        """The whole."""
        body = self.body(self.placement.root, self.placement.program.body)
        return dataclasses.replace(self.placement.program, body=body), self.asked

    def name(self, hint: str) -> str:
        """A name that is not in use."""
        name, number = hint, 0
        while name in self.used:
            number += 1
            name = f"{hint}{number}"
        self.used.add(name)
        return name

    # Statements

    def body(self, body: Body, old: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """The statements of a body with what is added to them."""
        made = [self.statement(s, Spot(body, i), body) for i, s in enumerate(old)]
        ends: list[Statement] = []
        for name, update, in_memory in body.ends:
            value = self.resolve(update, Spot(body, len(old)), "step", top=True, in_memory=in_memory)
            ends.append(Assign(name, value))
        found: list[Statement] = []
        for i, s in enumerate(made):
            found += body.before.get(i, [])
            found.append(s)
        return tuple(found + body.before.get(len(old), []) + ends)

    def statement(self, s: Statement, spot: Spot, body: Body) -> Statement:
        """A statement with its expressions resolved."""
        match s:
            case Instruction():
                return self.instruction(s, spot)
            case Assign(target, value):
                return Assign(target, self.resolve(value, spot, target, top=True), s.where)
            case For(variable, start, stop, step, inner):
                start, step = self.resolve(start, spot, variable), self.resolve(step, spot, "step")
                stop = self.stop(stop, spot)
                inner = self.body(body.children[spot.index, 0], inner)
                return For(variable, start, stop, step, inner, s.where)
            case If(condition, inner, orelse):
                condition = self.resolve(condition, spot, "condition")
                inner = self.body(body.children[spot.index, 0], inner)
                orelse = self.body(body.children[spot.index, 1], orelse)
                return If(condition, inner, orelse, s.where)
            case While(condition, inner):
                return While(condition, self.body(body.children[spot.index, 0], inner), s.where)

    def stop(self, stop: Expr, spot: Spot) -> Expr:
        """The end of a loop; constants stay, so that the number of its steps stays known."""
        return stop if isinstance(stop, Const) else self.resolve(stop, spot, "stop")

    def instruction(self, s: Instruction, spot: Spot) -> Instruction:
        """An instruction with what it evaluates resolved; regions that only describe stay as they are."""
        registers, values = operands(s), parameters(s)
        apart = IN_MEMORY if self.placement.uniform else frozenset()
        found: list[tuple[str, Expr | Region]] = []
        for name, value in s.operands:
            if isinstance(value, Region):
                found.append((name, self.region(value, spot, name)))
            elif name in registers:
                found.append((name, self.resolve(value, spot, name, register=True, in_memory=name in apart)))
            elif name in values:
                found.append((name, self.resolve(value, spot, name, in_memory=name in apart)))
            else:
                found.append((name, value))
        reads, writes = s.reads, s.writes
        if s.name not in INTRINSICS:
            reads, writes = (
                tuple(self.region(a, spot, "at") if isinstance(a, Region) else a for a in accesses)
                for accesses in (reads, writes)
            )
        when = None if s.when is None else self.resolve(s.when, spot, "when")
        return Instruction(s.label, s.name, reads, writes, s.warp, when, tuple(found), s.where)

    def region(self, region: Region, spot: Spot, hint: str) -> Region:
        """A region with the ends of its intervals resolved."""
        box = tuple(
            Interval(self.resolve(i.start, spot, hint), self.resolve(i.stop, spot, f"{hint}_end"))
            for i in region.box
        )
        return Region(region.buffer, box, region.where)

    # Expressions

    def resolve(
        self,
        expr: Expr,
        spot: Spot,
        hint: str,
        *,
        register: bool = False,
        top: bool = False,
        in_memory: bool = False,
    ) -> Expr:
        """The expression in terms of what is kept. `register` tells that a constant needs a register here.

        `top` stands for the whole value of an assignment, which no other scalar need keep; `in_memory` tells
        of a place or distance in memory.
        """
        if isinstance(expr, Var):
            return expr
        if isinstance(expr, Const):
            return self.constant(expr, spot, in_memory) if register else expr
        assert isinstance(expr, Apply)
        option = COMPUTE if top else self.option(expr, spot)
        match option:
            case Keep(depth):
                return self.keep(expr, spot, depth, hint, in_memory)
            case Carry(depth):
                return self.carry(expr, spot, depth, hint, in_memory)
        return self.computed(expr, spot, hint, in_memory)

    def option(self, expr: Expr, spot: Spot) -> Option:
        """What is chosen for an expression, as far as it is possible here."""
        if not names(expr) <= self.placement.taken:
            # An update, of a scalar that the choice itself introduces.
            return COMPUTE
        options = self.placement.options(expr, spot)
        if len(options) > 1:
            self.asked.setdefault(expr, options)
        chosen = self.choice.get(expr, options[0])
        return chosen if chosen in options else options[-1]

    def computed(self, expr: Apply, spot: Spot, hint: str, in_memory: bool) -> Expr:
        """The operator on resolved arguments."""
        right = expr.args[-1]
        if expr.op in (Op.ADD, Op.SUB) and isinstance(right, Const):
            # A constant and its opposite share a register.
            opposite = Op.SUB if expr.op is Op.ADD else Op.ADD
            if LOW < right.value < 0 and in_register(expr, 1, in_memory=in_memory):
                expr = Apply(opposite, (expr.args[0], Const(-right.value)))
        args = tuple(
            self.resolve(
                a,
                spot,
                hint,
                register=isinstance(a, Const) and in_register(expr, i, in_memory=in_memory),
                in_memory=in_memory,
            )
            for i, a in enumerate(expr.args)
        )
        return expr if args == expr.args else Apply(expr.op, args)

    def constant(self, value: Const, spot: Spot, in_memory: bool) -> Expr:
        """A constant that must be in a register."""
        if value.value == 0 or value.kind is Kind.BOOL:
            return value
        option = self.option(value, spot)
        if not isinstance(option, Keep):
            return value
        return self.keep(value, spot, option.depth, "constant", in_memory)

    def keep(self, expr: Expr, spot: Spot, depth: int, hint: str, in_memory: bool) -> Expr:
        """The scalar that keeps the expression, assigned inside so many loops."""
        home = next(s for s in self.placement._homes(expr, spot) if s.body.depth == depth)
        version = sum(not names(expr).isdisjoint(c) for c in home.body.changes[: home.index])
        known = home.body.values.get((expr, version, in_memory))
        if known is not None:
            return known
        value = expr if isinstance(expr, Const) else self.computed(_apply(expr), home, hint, in_memory)
        # As `retype` will have it: what is known of the parts that it is computed from.
        low, high = bounds(value)
        loop = loop_depth(expr)
        kind = Type(Kind.INT, low, high + 1, loop) if expr.kind is Kind.INT else _kept(BOOL, loop)
        variable = Var(self.name(_hint(expr, hint)), kind)
        home.body.values[expr, version, in_memory] = variable
        self.add(home, Assign(variable.name, value))
        return variable

    def carry(self, expr: Expr, spot: Spot, depth: int, hint: str, in_memory: bool) -> Expr:
        """The scalar that the loops inside of so many loops move on."""
        nest = self.placement.nest(expr, spot)
        outermost = next(b for b in nest if b.parent is not None and b.parent.depth == depth)
        assert outermost.parent is not None
        known = outermost.values.get((expr, -1, in_memory))
        if known is not None:
            return known
        how = self.placement.induction(expr, spot, outermost)
        assert how is not None
        loop = loop_depth(expr)
        kind = _kept(INT if expr.kind is Kind.INT else BOOL, loop)
        variable = Var(self.name(_hint(expr, hint)), kind)
        outermost.values[expr, -1, in_memory] = variable
        before = Spot(outermost.parent, outermost.index)
        start = self.resolve(how.start, before, hint, in_memory=in_memory)
        self.add(before, Assign(variable.name, start))
        loops = nest[: nest.index(outermost) + 1][::-1]
        for body, update in zip(loops, how.updates, strict=True):
            if update is not None:
                body.ends.append((variable.name, substitute(update, {SELF: variable}), in_memory))
        return variable

    def add(self, spot: Spot, statement: Statement) -> None:
        """Put a statement before another, and before the waits that stand right before that."""
        first = spot.body.first
        index = first[spot.index] if spot.index < len(first) else spot.index
        spot.body.before.setdefault(index, []).append(statement)


@functools.cache
def _kept(kind: Type, loop: int | None) -> Type:
    """The type of what is kept of a kind, of no known range."""
    return dataclasses.replace(kind, loop=loop)


def _apply(expr: Expr) -> Apply:
    assert isinstance(expr, Apply)
    return expr


def _hint(expr: Expr, hint: str) -> str:
    return f"constant_{abs(expr.value)}" if isinstance(expr, Const) else hint
