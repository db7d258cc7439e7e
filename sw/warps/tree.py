"""The schedule tree of a sequential program: loops, branches and intrinsics, with producers and consumers.

The first stage of the conversion (docs/warps.md). Intrinsics without a warp get one here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from sw.dependence import ENTRY, analyse
from sw.ir.errors import IRError
from sw.ir.intrinsics import INTRINSICS
from sw.ir.program import For, If, Instruction, Program, Region, Statement, While
from sw.ir.roles import WarpRole
from sw.ir.walk import statements

#: The warp of an intrinsic's engine, by the beginning of the intrinsic's name; the first that fits counts.
_ENGINES = {
    "load_a": WarpRole.LOAD_A,
    "load_b": WarpRole.LOAD_B,
    "gemm": WarpRole.GEMM,
    "store": WarpRole.STORE,
    "load_c": WarpRole.LOAD_SCRATCH,
    "cgra": WarpRole.CGRA,
}
#: The engine of a plain `load`, by the space that it fills.
_TARGETS = {"A": "load_a", "B": "load_b", "scratch": "load_c"}


@dataclass(frozen=True)
class Node:
    """A loop, a branch's side or an intrinsic, with what is inside of it, in order."""

    statement: For | If | Instruction
    children: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Tree:
    """The schedule tree; `pairs` are labels (producer, consumer), in the order of the text.

    An intrinsic can be both. A pair says that some instance of the one can read what one of the other wrote.
    """

    program: Program
    roots: tuple[Node, ...]
    pairs: tuple[tuple[str, str], ...]


def schedule_tree(program: Program) -> Tree:
    """The tree of a program; raises `IRError` for what no sequential program of warps has (`refuse`)."""
    refuse(program)
    found = analyse(program)
    pairs = [(source, use) for use, sources in found.use_def.items() for source in sources if source != ENTRY]
    order = {label: n for n, label in enumerate(found.use_def)}
    pairs.sort(key=lambda pair: (order[pair[0]], order[pair[1]]))
    return Tree(program, _nodes(program.body), tuple(pairs))


def _nodes(body: tuple[Statement, ...]) -> tuple[Node, ...]:
    made: list[Node] = []
    for s in body:
        match s:
            case Instruction():
                made.append(Node(s))
            case For():
                made.append(Node(s, _nodes(s.body)))
            case If():
                made.append(Node(s, _nodes(s.body) + _nodes(s.orelse)))
            case _:
                pass
    return tuple(made)


def refuse(program: Program) -> None:
    """Raise `IRError` for a `while`, whose end no other warp knows, and for what synchronises already."""
    for s in statements(program.body):
        if isinstance(s, While):
            raise IRError(s.where, f"while {s.condition}", "a for loop: warps know how often they loop")
        if isinstance(s, Instruction) and s.name in ("wait", "signal"):
            found = f"{s.name} in a sequential program"
            raise IRError(s.where, found, "no waits and signals: they follow from the dependences")


def assign_warps(program: Program) -> Program:
    """The program with a warp for every instruction; those that have one keep it.

    An intrinsic of the machine goes to the warp of its engine: load A 0, load B 1, gemm 2, store 3, load C 4,
    cgra 5. Generic ones of one name share a warp, the lowest number that is not in use, in order of
    appearance. Raises `IRError` as `refuse` does.
    """
    refuse(program)
    found = [s for s in statements(program.body) if isinstance(s, Instruction)]
    used = {s.warp for s in found if s.warp is not None}
    chosen: dict[str, int] = {}
    for s in found:
        if s.warp is None and (engine := _engine(program, s)) is not None:
            used.add(engine)
            chosen[s.label] = engine
    generic: dict[str, int] = {}
    for s in found:
        if s.warp is None and s.label not in chosen:
            if s.name not in generic:
                generic[s.name] = next(n for n in range(len(used) + 1) if n not in used)
                used.add(generic[s.name])
            chosen[s.label] = generic[s.name]
    return dataclasses.replace(program, body=_with_warps(program.body, chosen))


def _engine(program: Program, s: Instruction) -> int | None:
    """The warp of the engine of an intrinsic, None for a generic instruction."""
    name = s.name
    if name not in INTRINSICS:
        return None
    if name == "load":
        target = dict(s.operands).get("target")
        space = program.buffer(target.buffer).space if isinstance(target, Region) else None
        name = _TARGETS.get(space or "", "load_c")
    return next(warp for prefix, warp in _ENGINES.items() if name.startswith(prefix))


def _with_warps(body: tuple[Statement, ...], chosen: dict[str, int]) -> tuple[Statement, ...]:
    made: list[Statement] = []
    for s in body:
        match s:
            case Instruction() if s.label in chosen:
                made.append(dataclasses.replace(s, warp=chosen[s.label]))
            case For():
                made.append(dataclasses.replace(s, body=_with_warps(s.body, chosen)))
            case If():
                sides = _with_warps(s.body, chosen), _with_warps(s.orelse, chosen)
                made.append(dataclasses.replace(s, body=sides[0], orelse=sides[1]))
            case _:
                made.append(s)
    return tuple(made)
