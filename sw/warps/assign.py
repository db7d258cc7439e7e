"""Checks that a sequential program can become warps, and assigns a warp to each instruction."""

from __future__ import annotations

import dataclasses

from sw.dependence import ENTRY, analyse
from sw.ir.errors import IRError
from sw.ir.intrinsics import INTRINSICS, effects
from sw.ir.program import Instruction, Program, Region, Statement, While, print_access
from sw.ir.roles import WarpRole
from sw.ir.walk import instructions, rewrite, statements

#: The warp of an intrinsic's engine, by prefix of the intrinsic's name; the first match counts.
_ENGINES = {
    "load_a": WarpRole.LOAD_A,
    "load_b": WarpRole.LOAD_B,
    "gemm": WarpRole.GEMM,
    "store": WarpRole.STORE,
    "load_c": WarpRole.LOAD_SCRATCH,
    "cgra": WarpRole.CGRA,
}
#: The engine of a plain `load`, by the space it fills.
_TARGETS = {"A": "load_a", "B": "load_b", "scratch": "load_c"}


def refuse(program: Program) -> None:
    """Raises `IRError` for a `while`, whose end other warps cannot know, and for existing synchronisation."""
    for s in statements(program.body):
        if isinstance(s, While):
            raise IRError(s.where, f"while {s.condition}", "a for loop: warps know how often they loop")
        if isinstance(s, Instruction) and s.name in ("wait", "signal"):
            found = f"{s.name} in a sequential program"
            raise IRError(s.where, found, "no waits and signals: they follow from the dependences")


def assign_warps(program: Program) -> Program:
    """Gives every instruction a warp; instructions that have one keep it.

    An intrinsic of the machine goes to the warp of its engine: load A 0, load B 1, gemm 2, store 3, load C 4,
    cgra 5. Generic instructions of one name share a warp: the lowest unused number, in order of appearance.
    Raises `IRError` as `refuse` does.
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

    def with_warp(s: Statement) -> Statement:
        """An instruction with its warp."""
        if isinstance(s, Instruction) and s.label in chosen:
            return dataclasses.replace(s, warp=chosen[s.label])
        return s

    return dataclasses.replace(program, body=rewrite(program.body, with_warp))


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


def unfed(program: Program) -> IRError | None:
    """The error for the first read that no instruction ever feeds; None if there is none.

    An instruction feeds a read if it has written any part of its region before. A buffer in memory has
    contents from the start, and so has one without a stated space that no instruction writes.
    """
    found = instructions(program)
    written = {a.buffer if isinstance(a, Region) else None for s in found for a in effects(s)[1]}
    must_be_fed = {
        b.name
        for b in program.buffers
        if b.space != "memory" and (b.space is not None or written & {b.name, None})
    }
    sources: dict[tuple[str, int], set[str]] = {}
    for seen in analyse(program, details=True).edges:
        sources.setdefault((seen.use, seen.read), set()).add(seen.source)
    for s in found:
        for n, access in enumerate(effects(s)[0]):
            if (
                isinstance(access, Region)
                and access.buffer in must_be_fed
                and sources.get((s.label, n)) == {ENTRY}
            ):
                text = f"{s.label}, which reads {print_access(access)} that no instruction writes before it"
                return IRError(s.where, text, "a producer that feeds it, or a buffer in memory")
    return None
