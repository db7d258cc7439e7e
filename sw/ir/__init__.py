"""Tile programs: the text form used by every compiler step from tiling to warps (docs/ir.md).

`parse_program` and `parse_expr` read it and `str` writes it; text and data round-trip exactly.
`load_program` reads and checks a file, `sw.ir.builder` builds programs in Python, `sw.ir.mlir` exports them.
"""

from sw.ir.check import check, problems
from sw.ir.errors import IRError
from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.load import load_program
from sw.ir.parse import parse_expr, parse_program
from sw.ir.program import (
    ANY,
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
    print_program,
)
from sw.ir.types import BOOL, INT, Kind, Type

__all__ = [
    "ANY",
    "BOOL",
    "INT",
    "Apply",
    "Assign",
    "Buffer",
    "Const",
    "Expr",
    "For",
    "IRError",
    "If",
    "Instruction",
    "Interval",
    "Kind",
    "Op",
    "Parameter",
    "Program",
    "Region",
    "Statement",
    "Type",
    "Var",
    "While",
    "check",
    "load_program",
    "parse_expr",
    "parse_program",
    "print_program",
    "problems",
]
