"""Registers and parameters, as expressions, of operations whose operands are regions.

They are derived from what all executions have in common; values that differ are expressions, and canonical
form turns them into cheap code later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hw import isa
from sw.ir.expression import Const, Expr, Op, fold
from sw.ir.intrinsics import effects
from sw.ir.program import Instruction
from sw.tile_programs.checks import BITSTREAM_UNIT, PADS, loaded_sizes
from sw.tile_programs.regions import Box, where_filled

Boxes = Mapping[str, Box]
Operands = dict[str, Expr]


def bound_operation(s: Instruction, name: str, boxes: Boxes) -> Instruction | None:
    """The operation `name` with values for registers and parameters; None if it never does anything.

    Stated operands are kept.
    """
    if not boxes:
        return s
    if name == "cgra":
        return _launch(s, boxes["bitstream"])
    filled = {"gemm": ("c",), "gemm_acc": ("a", "b", "c")}.get(name, ("target", "source"))
    decisive = tuple(box for operand, box in boxes.items() if operand in filled)
    if not all(any(box.largest) for box in decisive):
        return None
    made = {operand: box.first() for operand, box in boxes.items()}
    if name.startswith("gemm"):
        made |= _gemm(boxes)
    elif name.startswith("load"):
        made |= _load(s, name, boxes["memory"], boxes["target"])
    else:
        made |= _store(boxes["source"], boxes["memory"])
    made |= {n: o for n, o in s.operands if isinstance(o, Expr)}
    reads, writes = effects(dataclasses.replace(s, name=name))
    spec = isa.INSTRUCTIONS[name]
    order = [*(o.name for o in spec.operands), *spec.parameters]
    operands = tuple((n, made[n]) for n in order if n in made)
    when = where_filled(s, decisive)
    return dataclasses.replace(s, name=name, reads=reads, writes=writes, when=when, operands=operands)


def _launch(s: Instruction, box: Box) -> Instruction:
    """A launch of the CGRA whose configuration is a region of the scratchpad."""
    address = box.first() // BITSTREAM_UNIT
    operands = tuple((n, address if n == "bitstream" else o) for n, o in s.operands)
    return dataclasses.replace(s, reads=(*s.reads, box.region), operands=operands)


def _load(s: Instruction, name: str, memory: Box, target: Box) -> Operands:
    """Rows of memory, padded with `load_fill` if that is given."""
    size = memory.place.element_bytes
    made: Operands = {
        "outer": memory.size[-2],
        "inner": memory.size[-1] * size,
        "load_stride": Const(memory.strides[-2]),
        "load_pitch": Const(target.strides[target.place.across or -2]),
    }
    if "load_fill" in dict(s.operands):
        for what, _, own, _, other in loaded_sizes(name):
            beyond = fold(Op.SUB, target.size[other], memory.size[own])
            made[PADS[what]] = beyond * (size if own == -1 else 1)
    return made


def _gemm(boxes: Boxes) -> Operands:
    """A product of regions of A and B into one of the accumulator."""
    a, b, c = boxes["a"], boxes["b"], boxes["c"]
    signed = (a.place.buffer.element == "int8") | (b.place.buffer.element == "int8") << 1
    return {
        "k": a.size[-1],
        "gemm_m": c.size[-2],
        "gemm_n": c.size[-1],
        "gemm_a_pitch": Const(a.strides[-2]),
        "gemm_b_pitch": Const(b.strides[-1]),
        "gemm_c_pitch": Const(c.strides[-2]),
        "gemm_signed": Const(int(signed)),
    }


def _store(source: Box, memory: Box) -> Operands:
    """Rows of the accumulator, scratchpad or output buffer."""
    return {
        "rows": source.size[-2],
        "bytes": source.size[-1] * source.place.element_bytes,
        "store_stride": Const(memory.strides[-2]),
        "store_pitch": Const(source.strides[-2]),
    }
