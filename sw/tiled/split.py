"""A warp's share of a tile program: its instructions, with the loops and branches around them."""

from __future__ import annotations

import dataclasses

from sw.ir.program import Assign, For, If, Instruction, Program, Statement, While, statements


def warps(program: Program) -> list[int]:
    """The numbers of the warps that a program names, in order."""
    found = {s.warp for s in statements(program.body) if isinstance(s, Instruction) and s.warp is not None}
    return sorted(found)


def share(program: Program, warp: int) -> Program:
    """The program of one warp: what runs on it, and all scalars."""
    return dataclasses.replace(program, name=f"{program.name}_{warp}", body=tuple(_body(program.body, warp)))


def _body(body: tuple[Statement, ...], warp: int) -> list[Statement]:
    made: list[Statement] = []
    for s in body:
        match s:
            case Instruction() if s.warp == warp:
                made.append(s)
            case Assign():
                made.append(s)
            case If():
                then, other = _body(s.body, warp), _body(s.orelse, warp)
                if then or other:
                    made.append(dataclasses.replace(s, body=tuple(then), orelse=tuple(other)))
            case For() | While():
                inner = _body(s.body, warp)
                if inner:
                    made.append(dataclasses.replace(s, body=tuple(inner)))
            case _:
                pass
    return made
