"""Pairs of equal expressions from TVM's tests of its simplifier, as expressions of ours.

Each variable is read as `int[-256, 256]`, further bounded by the case's assumptions about single variables.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sw.ir.expression import Apply, Const, Expr, Op, Var, evaluate
from sw.ir.types import Kind, Type

FILE = Path(__file__).parents[1] / "data" / "simplify" / "tvm_rewrite.json"
LOW, HIGH = -256, 256
_OPS = {op.text: op for op in Op if op is not Op.SELECT} | {"select": Op.SELECT}
_FLIP = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "=="}


@dataclass(frozen=True)
class Case:
    """Two expressions that are equal wherever the assumptions hold."""

    name: str
    before: Expr
    after: Expr
    assume: tuple[Expr, ...]
    text: str


def load() -> tuple[list[Case], list[str]]:
    """The cases, and the names of those that need an operator that we do not have (truncating division)."""
    cases, others = [], []
    for raw in json.loads(FILE.read_text())["cases"]:
        text = json.dumps([raw["before"], raw["after"], raw["assume"]])
        if "truncdiv" in text or "truncmod" in text:
            others.append(raw["id"])
            continue
        ranges = {name: [LOW, HIGH] for name in raw["vars"]}
        for condition in raw["assume"]:
            _bound(condition, ranges)
        types = {name: Type(Kind.INT, *limits) for name, limits in ranges.items()}
        before, after = (_expr(raw[key], types) for key in ("before", "after"))
        assume = tuple(_expr(a, types) for a in raw["assume"])
        cases.append(Case(raw["id"], before, after, assume, f"{raw['before_text']} -> {raw['after_text']}"))
    return cases, others


def holds(case: Case, values: dict[str, int]) -> bool:
    """Whether the assumptions of a case hold for these values."""
    return all(evaluate(a, values) for a in case.assume)


def _bound(condition: Any, ranges: dict[str, list[int]]) -> None:
    """Narrow the range of the variable that a condition compares with a constant."""
    op, a, b = condition if len(condition) == 3 else (None, None, None)
    if isinstance(a, int) and isinstance(b, str) and op in _FLIP:
        op, a, b = _FLIP[op], b, a
    if isinstance(a, list) and a[0] == "*" and isinstance(a[2], int) and a[2] > 0 and b == 0:
        a = a[1]
    if not isinstance(a, str) or not isinstance(b, int) or op not in _FLIP:
        return
    limits = ranges[a]
    if op in (">", ">=", "=="):
        limits[0] = max(limits[0], b + (op == ">"))
    if op in ("<", "<=", "=="):
        limits[1] = min(limits[1], b + (op != "<"))


def _expr(raw: Any, types: dict[str, Type]) -> Expr:
    if isinstance(raw, bool):
        return Const(int(raw), Kind.BOOL)
    if isinstance(raw, int):
        return Const(raw)
    if isinstance(raw, dict):
        return Const(raw["c"])
    if isinstance(raw, str):
        return Var(raw, types[raw])
    name, *arguments = raw
    args = tuple(_expr(a, types) for a in arguments)
    return Apply(_OPS[name], args)
