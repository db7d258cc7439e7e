"""Closed forms over the loops around an operation: number of earlier executions, addresses, tile sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sw.ir.expression import Const, Expr, Op, Var, apply, fold
from sw.ir.types import Kind, Type

#: Name of the loop over inner tiles.
INNER = "inner"
#: Number of buffers per operand (double buffering), also in the accumulator unless a partition fills it.
HALVES = 2


@dataclass(frozen=True)
class Loop:
    """One level of a loop nest: its name and trip count."""

    name: str
    count: int


Loops = Sequence[Loop]


def index(loops: Loops, name: str) -> Var | None:
    """The variable of the named loop, or None if there is no such loop."""
    for depth, loop in enumerate(loops):
        if loop.name == name:
            return Var(name, Type(Kind.INT, 0, loop.count, depth))
    return None


def linear(loops: Loops, steps: Mapping[str, int], start: int = 0) -> Expr:
    """A start plus a constant for every step of each loop."""
    result: Expr = Const(start)
    for loop in loops:
        variable, step = index(loops, loop.name), steps.get(loop.name, 0)
        if variable is not None and step:
            result = result + variable * step
    return result


def count(loops: Loops) -> Expr:
    """The number of iterations of the nest before the current one."""
    steps, step = {}, 1
    for loop in reversed(loops):
        steps[loop.name] = step
        step *= loop.count
    return linear(loops, steps)


def size(loops: Loops, name: str, total: int, tile: int) -> Expr:
    """Size of the current tile of an axis that the named loop cuts: a whole tile, or the rest."""
    variable = index(loops, name)
    if variable is None or total % tile == 0:
        return Const(min(tile, total))
    return smaller(total - variable * tile, tile)


def part(loops: Loops, name: str, whole: Expr, tile: int) -> Expr:
    """Size of the current part of a tile that the named loop cuts into parts; 0 if nothing is left."""
    variable = index(loops, name)
    if variable is None:
        return whole
    if isinstance(whole, Const) and whole.value % tile == 0:
        return Const(tile)
    return larger(smaller(whole - variable * tile, tile), 0)


def present(loops: Loops, name: str, whole: Expr, tile: int) -> Expr | None:
    """Whether a tile has the current part; None if every tile has every part."""
    variable = index(loops, name)
    if variable is None or isinstance(whole, Const):
        return None
    return apply(Op.LT, variable * tile, whole)


def smaller(left: Expr, right: Expr | int) -> Expr:
    """The smaller of two."""
    return fold(Op.MIN, left, right)


def larger(left: Expr, right: Expr | int) -> Expr:
    """The larger of two."""
    return fold(Op.MAX, left, right)


def both(left: Expr | None, right: Expr | None) -> Expr | None:
    """Both conditions; None stands for true."""
    if left is None or right is None:
        return left if right is None else right
    return apply(Op.AND, left, right)
