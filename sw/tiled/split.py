"""A warp's share of a tile program: its instructions, with the loops and branches around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from sw.ir.program import Assign, For, If, Instruction, Program, Statement, While, statements


def warps(program: Program) -> list[int]:
    """The numbers of the warps that a program names, in order."""
    found = {s.warp for s in statements(program.body) if isinstance(s, Instruction) and s.warp is not None}
    return sorted(found)


def share(program: Program, warp: int) -> Program:
    """The program of one warp: what runs on it, and all scalars."""
    body = replaced(program.body, lambda s: (s,) if s.warp == warp else ())
    return dataclasses.replace(program, name=f"{program.name}_{warp}", body=body)


def without_syncs(program: Program) -> Program:
    """The program without `wait` and `signal`."""
    body = replaced(program.body, lambda s: () if s.name in ("wait", "signal") else (s,))
    return dataclasses.replace(program, body=body)


def replaced(
    body: tuple[Statement, ...], change: Callable[[Instruction], Iterable[Statement]]
) -> tuple[Statement, ...]:
    """A body with every instruction replaced by statements; loops and branches that become empty go."""
    made: list[Statement] = []
    for s in body:
        match s:
            case Instruction():
                made += change(s)
            case If():
                then, other = replaced(s.body, change), replaced(s.orelse, change)
                if then or other:
                    made.append(dataclasses.replace(s, body=then, orelse=other))
            case For() | While():
                inner = replaced(s.body, change)
                if inner:
                    made.append(dataclasses.replace(s, body=inner))
            case Assign():
                made.append(s)
    return tuple(made)
