"""Random executable tile programs, for tests of everything that processes them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hw.semantics import wrap
from sw.ir.errors import IRError
from sw.ir.expression import Apply, Const, Expr, Op, Var, apply
from sw.ir.program import (
    ANY,
    Access,
    Assign,
    Buffer,
    For,
    If,
    Instruction,
    Interval,
    Parameter,
    Program,
    Region,
    Statement,
    While,
)
from sw.ir.ranges import bounds
from sw.ir.scope import loop_type, retype
from sw.ir.types import BOOL, HIGH, INT, LOW, Kind, Type
from tests.sw.ir.interpret import Execution, run, seeded_choice


@dataclass(frozen=True)
class Knobs:
    """What a random program is made of: sizes, and probabilities from 0 to 1."""

    #: About how many instructions the text has.
    instructions: int = 12
    #: How deep loops nest.
    depth: int = 3
    buffers: int = 3
    dimensions: int = 3
    #: How likely a statement is a loop, a branch, a scalar's assignment.
    loops: float = 0.25
    branches: float = 0.15
    scalars: float = 0.12
    #: How likely an instruction has `when=`, an access is ANY, a bound is not known exactly.
    predicates: float = 0.15
    unknown: float = 0.05
    inexact: float = 0.3
    #: How likely a loop is a `while`, a bound of a loop depends on parameters or outer loops.
    whiles: float = 0.05
    parametric: float = 0.3
    #: How likely an offset rotates, an access is empty, an instruction repeats an earlier one.
    rotating: float = 0.15
    empty: float = 0.04
    repeated: float = 0.08


#: Every bound is a known number, and control runs straight through.
STRAIGHT = Knobs(depth=0, loops=0, branches=0, scalars=0, predicates=0, unknown=0, inexact=0, rotating=0)
#: Nests of loops with known bounds and affine or rotating offsets; no branch, predicate or unknown address.
NESTS = Knobs(branches=0, scalars=0, predicates=0, unknown=0, inexact=0, whiles=0, parametric=0, loops=0.4)


def random_program(rng: random.Random, knobs: Knobs | None = None, **changes: float) -> Program:
    """A random program; `changes` replace single knobs, as in `random_program(rng, unknown=0.5)`."""
    return _Maker(rng, replace(knobs or Knobs(), **changes)).program()  # type: ignore[arg-type]


def sample_run(
    rng: random.Random, program: Program, tries: int = 8, steps: int = 5000
) -> tuple[dict[str, int], Execution] | None:
    """Parameters for which the program runs, and the run; None where none of some tries do.

    Unknown addresses are chosen at random as well.
    """
    for _ in range(tries):
        values = {p.name: _value(rng, p.type) for p in program.parameters}
        choice = seeded_choice(rng.getrandbits(32))
        try:
            return values, run(program, values, seed=rng.getrandbits(32), choice=choice, steps=steps)
        except IRError:
            continue
    return None


def sample_parameters(rng: random.Random, program: Program, tries: int = 8) -> dict[str, int] | None:
    """Parameters for which the program runs, or None where none of some tries do."""
    found = sample_run(rng, program, tries)
    return None if found is None else found[0]


def _value(rng: random.Random, type_: Type) -> int:
    if type_.kind is Kind.BOOL:
        return rng.randrange(2)
    if type_.low == LOW or type_.high == HIGH:
        return rng.choice((0, 1, 2, 3, rng.randrange(-4, 40)))
    return rng.randrange(type_.low, type_.high)


def random_expr(rng: random.Random, variables: list[Var], depth: int = 3, kind: Kind = Kind.INT) -> Expr:
    """A random expression over these variables with every operator, nested so deep."""
    named = [v for v in variables if v.kind is kind]
    if depth <= 0 or rng.random() < 0.15:
        if named and rng.random() < 0.7:
            return rng.choice(named)
        return Const(rng.randrange(2), Kind.BOOL) if kind is Kind.BOOL else Const(_number(rng))
    op = rng.choice([op for op in Op if op is Op.SELECT or (op.result is kind)])
    kinds = list(op.arguments)
    free = kind if op is Op.SELECT else rng.choice((Kind.INT, Kind.INT, Kind.BOOL))
    args = tuple(random_expr(rng, variables, depth - 1 - rng.randrange(2), k or free) for k in kinds)
    return Apply(op, args)


def _number(rng: random.Random) -> int:
    pick = rng.random()
    if pick < 0.7:
        return rng.randrange(-9, 70)
    return rng.choice((LOW, HIGH - 1, wrap(rng.getrandbits(32)), 31, 32, 33, -32, 1 << 16))


def _length(rng: random.Random, size: int) -> int:
    """The length of an interval: often a divisor of the size, or all of it."""
    pick = rng.random()
    if pick < 0.15:
        return size
    if pick < 0.55:
        return rng.choice([n for n in range(1, size + 1) if size % n == 0])
    return rng.randint(1, size)


@dataclass
class _Maker:
    """What has been made so far."""

    rng: random.Random
    knobs: Knobs
    parameters: list[Parameter] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    loops: list[Var] = field(default_factory=list)
    #: Scalars that surely have a value here; those of `mutable` change.
    scalars: list[Var] = field(default_factory=list)
    mutable: list[str] = field(default_factory=list)
    made: list[Instruction] = field(default_factory=list)
    names: int = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def program(self) -> Program:
        rng = self.rng
        for _ in range(rng.randint(1, max(1, self.knobs.buffers))):
            self.buffer()
        body: list[Statement] = []
        while len(self.made) < self.knobs.instructions:
            body += self.statements(0)
        return retype(Program("sample", tuple(self.parameters), tuple(self.buffers), tuple(body)))

    def buffer(self) -> None:
        rng = self.rng
        dimensions = rng.choice([d for d in (1, 1, 1, 2, 2, 3) if d <= self.knobs.dimensions])
        limit = (0, 40, 9, 5)[dimensions]
        shape = tuple(rng.randint(2, limit) for _ in range(dimensions))
        name = self.fresh("b")
        element = rng.choice(("int8", "int8", "int8", "int32"))
        space = rng.choice((None, None, "memory", "A", "scratch"))
        self.buffers.append(Buffer(name, tuple(Const(n) for n in shape), element, space))
        self.sizes[name] = shape

    # Parameters

    def parameter(self, low: int, high: int) -> Var:
        """A parameter with values from `low` up to, not including, `high`; at times of unknown range."""
        rng = self.rng
        known = [Var(p.name, p.type) for p in self.parameters if p.type.kind is Kind.INT]
        fit = [v for v in known if v.type.low >= low and v.type.high <= high]
        if fit and self.chance(0.6):
            return rng.choice(fit)
        free = [v for v in known if v.type.low == LOW]
        if self.chance(0.15):
            return rng.choice(free) if free and self.chance(0.7) else self.declare(INT)
        return self.declare(Type(Kind.INT, low, max(low + 1, high)))

    def declare(self, type_: Type) -> Var:
        name = self.fresh("p" if type_.kind is Kind.BOOL else "x")
        self.parameters.append(Parameter(name, type_))
        return Var(name, type_)

    def truth(self) -> Var:
        known = [Var(p.name, p.type) for p in self.parameters if p.type.kind is Kind.BOOL]
        return self.rng.choice(known) if known and self.chance(0.6) else self.declare(BOOL)

    def condition(self) -> Expr:
        """What a branch or predicate depends on."""
        rng = self.rng
        pick = rng.random()
        if pick < 0.15:
            word = rng.choice((Op.AND, Op.OR))
            return Apply(word, (self.condition(), self.condition()))
        if pick < 0.22:
            return Apply(Op.NOT, (self.condition(),))
        if pick < 0.5 or not (self.loops or self.parameters):
            return self.truth()
        variables = [*self.loops, *self.loops, *self.scalars]
        variables = [v for v in variables if v.kind is Kind.INT] or [self.parameter(0, 8)]
        left: Expr = rng.choice(variables)
        if self.chance(0.3):
            return apply(
                rng.choice((Op.EQ, Op.NE)), apply(Op.MOD, left, rng.randint(2, 3)), rng.randint(0, 1)
            )
        right: Expr = self.parameter(0, 6) if self.chance(0.25) else Const(rng.randint(0, 4))
        return Apply(rng.choice((Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE)), (left, right))

    # Statements

    def statements(self, depth: int) -> list[Statement]:
        """One statement, with what has to stand before it."""
        k = self.knobs
        shares = (k.loops, k.branches, k.scalars)
        pick = self.rng.choices(range(4), (*shares, max(0.1, 1 - sum(shares))))[0]
        if pick == 0 and len(self.loops) < k.depth and depth < k.depth + 2:
            return self.loop(depth)
        if pick == 1 and depth < k.depth + 2:
            condition = self.condition()
            then = self.block(depth + 1)
            other = self.block(depth + 1) if self.chance(0.5) else ()
            return [If(condition, then, other)]
        return [self.scalar() if pick == 2 else self.instruction()]

    def block(self, depth: int) -> tuple[Statement, ...]:
        """A body; scalars that it brings in are not known after it."""
        known = list(self.scalars), list(self.mutable)
        body = [s for _ in range(self.rng.choice((1, 1, 2, 2, 3))) for s in self.statements(depth)]
        self.scalars, self.mutable = known
        return tuple(body)

    def loop(self, depth: int) -> list[Statement]:
        if self.chance(self.knobs.whiles):
            return self.while_(depth)
        name = self.fresh("i")
        start, stop, step = self.loop_bounds()
        variable = Var(name, loop_type(start, stop, step, len(self.loops)))
        self.loops.append(variable)
        body = self.block(depth + 1)
        self.loops.pop()
        return [For(name, start, stop, step, body)]

    def loop_bounds(self) -> tuple[Expr, Expr, Expr]:
        rng = self.rng
        step = rng.choice((1, 1, 1, 1, 2, 3, -1, -2))
        if self.chance(self.knobs.parametric):
            if self.loops and self.chance(0.5):
                outer = rng.choice(self.loops)
                start, stop = (Const(0), outer) if self.chance(0.5) else (outer, Const(rng.randint(1, 5)))
                return start, stop, Const(abs(step))
            low = self.parameter(0, 3) if self.chance(0.3) else Const(0)
            return low, self.parameter(rng.randint(0, 2), 6), Const(abs(step))
        low_, count = rng.choice((0, 0, 0, 1, 2)), rng.randint(1, 4)
        if step < 0:
            return Const(low_ - step * (count - 1)), Const(low_ - 1), Const(step)
        return Const(low_), Const(low_ + step * count - rng.randrange(step)), Const(step)

    def while_(self, depth: int) -> list[Statement]:
        name = self.fresh("w")
        count = Var(name, INT)
        self.scalars.append(count)
        body = self.block(depth + 1)
        body = (*body, Assign(name, apply(Op.ADD, count, 1)))
        limit: Expr = self.parameter(0, 4) if self.chance(0.5) else Const(self.rng.randint(0, 4))
        return [Assign(name, Const(0)), While(Apply(Op.LT, (count, limit)), body)]

    def scalar(self) -> Assign:
        """A scalar of its own, or another value for one that changes."""
        variables = [*self.loops, *(v for v in self.scalars if v.kind is Kind.INT)]
        if not variables or self.chance(0.3):
            variables.append(self.parameter(0, 6))
        value: Expr = self.rng.choice(variables)
        value = apply(self.rng.choice((Op.ADD, Op.SUB, Op.MUL, Op.MAX)), value, self.rng.randint(0, 5))
        if self.chance(0.3):
            value = Apply(Op.SELECT, (self.condition(), value, Const(self.rng.randint(0, 4))))
        if self.mutable and self.chance(0.5):
            return Assign(self.rng.choice(self.mutable), value)
        name = self.fresh("s")
        low, high = bounds(value)
        if self.chance(0.4):
            self.mutable.append(name)
            low, high = LOW, HIGH - 1
        self.scalars.append(Var(name, Type(Kind.INT, low, high + 1)))
        return Assign(name, value)

    def instruction(self) -> Instruction:
        rng, label = self.rng, f"I{len(self.made)}"
        if self.made and self.chance(self.knobs.repeated):
            earlier = rng.choice(self.made)
            known = {v.name for v in (*self.loops, *self.scalars)} | {p.name for p in self.parameters}
            if all(v.name in known for e in _expressions(earlier) for v in e.variables()):
                self.made.append(replace(earlier, label=label))
                return self.made[-1]
        when = self.condition() if self.chance(self.knobs.predicates) else None
        name = rng.choice(("f", "g", "h"))
        reads: list[Access] = []
        writes: list[Access] = []
        operands: list[tuple[str, Expr | Region]] = []
        if self.chance(0.15):
            name, operands = "load", [("memory", self.region()), ("target", self.region())]
        else:
            reads = [self.access() for _ in range(rng.choice((0, 1, 1, 1, 2)))]
            writes = [self.access() for _ in range(rng.choice((0, 1, 1, 1, 2)) if reads else 1)]
            if self.chance(0.1):
                operands = [("k", rng.choice(self.loops) if self.loops else Const(rng.randint(0, 3)))]
        made = Instruction(label, name, tuple(reads), tuple(writes), None, when, tuple(operands))
        self.made.append(made)
        return made

    # Regions

    def access(self) -> Access:
        return ANY if self.chance(self.knobs.unknown) else self.region()

    def region(self) -> Region:
        name, shape = self.rng.choice(list(self.sizes.items()))
        return Region(name, tuple(self.interval(size) for size in shape))

    def interval(self, size: int) -> Interval:
        rng = self.rng
        if self.chance(self.knobs.empty):
            start = rng.randint(0, size)
            return Interval(Const(start), Const(rng.randint(0, start)))
        length = _length(rng, size)
        inexact = self.chance(self.knobs.inexact)
        start_ = self.offset(size, length, inexact)
        if isinstance(start_, Const):
            stop: Expr = Const(start_.value + length)
            if inexact and self.chance(0.5):
                stop = self.parameter(start_.value, size + 1)
            return Interval(start_, stop)
        stop = apply(Op.ADD, start_, length)
        if inexact and self.chance(0.2):
            stop = Apply(Op.MIN, (stop, Const(size)))
        return Interval(start_, stop)

    def offset(self, size: int, length: int, inexact: bool) -> Expr:
        """Where an interval of this length starts in this size."""
        rng, room = self.rng, size - length
        found: Expr = Const(rng.randint(0, room))
        if self.loops and room and self.chance(0.85):
            variable = rng.choice(self.loops[-2:])
            if self.chance(self.knobs.rotating) and size >= 2 * length:
                turns = rng.randint(2, size // length)
                found = apply(Op.MUL, apply(Op.MOD, variable, turns), length)
            else:
                strides = [1, length, length, length + 1, 2 * length, max(1, length - 1), -1]
                turns = max(1, variable.type.high - 1 - variable.type.low)
                fit = [s for s in strides if abs(s) * turns <= room]
                stride = rng.choice(fit if fit and self.chance(0.8) else strides)
                found = variable if stride == 1 else apply(Op.MUL, variable, stride)
                if len(self.loops) > 1 and self.chance(0.4):
                    other = rng.choice(self.loops)
                    found = Apply(Op.ADD, (apply(Op.MUL, other, rng.randint(1, size)), found))
                low, high = bounds(found)
                if low >= 0 and high < room and self.chance(0.5):
                    found = apply(Op.ADD, found, rng.randint(0, room - high))
                elif low < 0 and self.chance(0.8):
                    found = apply(Op.ADD, found, -low)
        if inexact:
            found = self.blurred(found, room)
        low, high = bounds(found)
        if low < 0 or high > room:
            # Most often inside of the buffer for sure; what is left is found out by running.
            if not inexact and self.chance(0.85):
                return Const(rng.randint(0, room))
            if low >= 0 and self.chance(0.4):
                found = apply(Op.MIN, found, room)
            elif low >= 0 and self.chance(0.5):
                found = apply(Op.MOD, found, room + 1)
            elif self.chance(0.9):
                found = apply(Op.MIN, apply(Op.MAX, found, 0), room)
        return found

    def blurred(self, found: Expr, room: int) -> Expr:
        """An offset with something in it that is not known, or not affine."""
        rng, pick = self.rng, self.rng.random()
        scalars = [v for v in self.scalars if v.kind is Kind.INT]
        if scalars and pick < 0.35:
            other: Expr = rng.choice(scalars)
            return other if self.chance(0.6) else Apply(Op.ADD, (found, other))
        if pick < 0.7 or not self.loops:
            x = self.parameter(0, room + 1)
            return x if self.chance(0.6) else Apply(Op.ADD, (found, x))
        if pick < 0.8:
            return apply(rng.choice((Op.DIV, Op.SHR)), found, rng.randint(1, 2))
        if pick < 0.9:
            return apply(Op.BIT_XOR, found, rng.randint(1, 3))
        return Apply(Op.SELECT, (self.condition(), found, Const(rng.randint(0, room))))


def _expressions(i: Instruction) -> list[Expr]:
    regions = [r for r in (*i.reads, *i.writes, *(o for _, o in i.operands)) if isinstance(r, Region)]
    found = [e for r in regions for interval in r.box for e in (interval.start, interval.stop)]
    found += [o for _, o in i.operands if isinstance(o, Expr)]
    return found + ([] if i.when is None else [i.when])
