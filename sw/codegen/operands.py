"""The parts of a program that a warp evaluates: operands, parameters, predicates; regions only describe."""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from hw import isa
from sw.ir.expression import Const, Expr, names
from sw.ir.intrinsics import INTRINSICS
from sw.ir.program import Assign, For, Instruction, Program, Region, Statement
from sw.ir.walk import Body, assigned, bodies, scalar_expressions, statements

#: Initial value of a parameter register, which holds if nothing is stated.
UNSTATED = Const(0)
#: Operands and parameters that are addresses or distances in memory.
IN_MEMORY = frozenset(("memory", "load_stride", "store_stride", "conv_line"))


class Growth(enum.Enum):
    """How a value relates to the size of the problem."""

    NONE = "none"
    #: A repetition count: only waits and signals depend on it.
    COUNT = "count"
    #: Addresses and distances in memory.
    MEMORY = "memory"


def is_engine(instruction: Instruction) -> bool:
    """Whether it is an operation of one of the machine's engines."""
    spec = isa.INSTRUCTIONS.get(instruction.name)
    return spec is not None and spec.engine is not None


def parameters(instruction: Instruction) -> dict[str, Expr]:
    """The parameter registers that an engine operation reads, with the values it needs."""
    if not is_engine(instruction):
        return {}
    given = {name: value for name, value in instruction.operands if isinstance(value, Expr)}
    return {name: given.get(name, UNSTATED) for name in isa.INSTRUCTIONS[instruction.name].parameters}


def operands(instruction: Instruction) -> dict[str, Expr]:
    """Expressions that must be in registers when an instruction issues.

    For the machine's own instructions, regions only describe. For others, they are all that is known of
    addresses, and both ends of every interval count.
    """
    intrinsic = INTRINSICS.get(instruction.name)
    if instruction.name in ("wait", "signal"):
        return {}
    spec = isa.INSTRUCTIONS.get(instruction.name) if intrinsic else None
    skip = spec.parameters if spec else ()
    found: dict[str, Expr] = {}
    given = instruction.operands
    if spec and spec.engine:
        # In the machine's field order, whatever the order in the text.
        order = _order(instruction.name)
        given = tuple(sorted(given, key=lambda item: order.get(item[0], len(order))))
    for name, value in given:
        if isinstance(value, Region):
            found |= _ends(name, value)
        elif name not in skip:
            found[name] = value
    if intrinsic is None:
        for kind, accesses in (("read", instruction.reads), ("write", instruction.writes)):
            for i, access in enumerate(accesses):
                if isinstance(access, Region):
                    found |= _ends(f"{kind}{i}", access)
    return found


@functools.cache
def _order(name: str) -> dict[str, int]:
    """The order of an instruction's operands."""
    return {o.name: i for i, o in enumerate(isa.INSTRUCTIONS[name].operands)}


def _ends(name: str, region: Region) -> dict[str, Expr]:
    return {
        f"{name}.{i}.{end}": value
        for i, interval in enumerate(region.box)
        for end, value in (("start", interval.start), ("stop", interval.stop))
        if not isinstance(value, Const)
    }


def evaluated(instruction: Instruction) -> Iterator[Expr]:
    """All expressions that a warp computes for an instruction."""
    yield from operands(instruction).values()
    yield from parameters(instruction).values()
    if instruction.when is not None:
        yield instruction.when


def modified(
    statement: Statement, nested: Callable[[Statement], frozenset[str]] | None = None
) -> frozenset[str]:
    """Scalars and loop variables that a statement changes; `nested` gives those of nested ones, if known."""
    own: frozenset[str] = frozenset()
    if isinstance(statement, Assign):
        own = frozenset((statement.target,))
    elif isinstance(statement, For):
        own = frozenset((statement.variable,))
    return own.union(*(map(nested or modified, itertools.chain(*bodies(statement)))))


def unbounded(program: Program) -> set[str]:
    """Scalars assigned by several statements, and those that depend on them: their types give no bounds."""
    found = {name for name, times in assigned(program.body).items() if times > 1}
    changed = bool(found)
    while changed:
        changed = False
        for s in statements(program.body):
            fresh = isinstance(s, Assign) and s.target not in found
            if isinstance(s, Assign) and fresh and not found.isdisjoint(names(s.value)):
                found.add(s.target)
                changed = True
    return found


class Uses:
    """What the values of a program's names are used for."""

    def __init__(self, body: Body):
        #: Names by the growth of the operands they are used for; loop bounds and conditions are under None.
        self._roots: dict[Growth | None, set[str]] = {growth: set() for growth in (None, *Growth)}
        self._sources: dict[str, set[str]] = {}
        self._assigned: set[str] = set()
        for s in statements(body):
            self._collect(s)

    def needed(self) -> set[str]:
        """Names whose values reach an instruction, a loop's bounds or a branch."""
        return behind(set().union(*self._roots.values()), self._sources)

    def growths(self) -> dict[str, Growth]:
        """Scalars that are computed only from values of one growth, not counting those without growth."""
        found: dict[str, Growth] = {}
        for growth in (Growth.COUNT, Growth.MEMORY):
            others = set().union(*(roots for key, roots in self._roots.items() if key is not growth))
            found |= dict.fromkeys(self._assigned - behind(others, self._sources), growth)
        return found

    def _collect(self, s: Statement) -> None:
        """The uses of a statement itself."""
        if isinstance(s, Instruction):
            for name, expr in (operands(s) | parameters(s)).items():
                self._roots[growth_of(name)].update(names(expr))
            if s.when is not None:
                self._roots[growth_of_condition(s)].update(names(s.when))
        elif isinstance(s, Assign):
            self._assigned.add(s.target)
            self._sources.setdefault(s.target, set()).update(names(s.value))
        else:
            self._roots[None].update(*(names(e) for e in scalar_expressions(s)))


def growth_of(operand: str) -> Growth:
    """How an operand or parameter grows."""
    return Growth.MEMORY if operand in IN_MEMORY else Growth.NONE


def growth_of_condition(instruction: Instruction) -> Growth:
    """The growth of what an instruction's predicate depends on."""
    return Growth.COUNT if instruction.name in ("wait", "signal") else Growth.NONE


def behind(roots: Iterable[str], sources: Mapping[str, Iterable[str]]) -> set[str]:
    """The names, and the names that their values come from."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(sources.get(name, ()))
    return found
