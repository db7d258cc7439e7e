"""How each buffer is used: by which ports, and element by element or in rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hw import isa
from hw.config import PORTS
from sw.ir.errors import IRError
from sw.ir.intrinsics import INTRINSICS
from sw.ir.program import Instruction, Program, Region
from sw.ir.walk import instructions

#: The variant of `load` and `store`, by the space of the on-chip side; the order of elements is kept.
LOADS = {"A": "load_a", "B": "load_b_t", "scratch": "load_c"}
STORES = {"acc": "store", "scratch": "store_scratch", "out": "store_out"}


@dataclass(frozen=True)
class Uses:
    """How buffers are used.

    `regions` are those named by an operand, a CGRA launch or a generic instruction. `ports` are the memory
    ports by buffer. `lanes_first` are targets of loads whose bytes go to successive lanes. `spaced` are those
    that only generic instructions use; each of their elements takes a word of the port.
    """

    regions: frozenset[str]
    ports: dict[str, frozenset[str]]
    lanes_first: frozenset[str]
    spaced: frozenset[str]


def operation(s: Instruction, spaces: dict[str, str]) -> str:
    """The machine operation of an instruction; that of `load` and `store` depends on their spaces."""
    given = dict(s.operands)
    for name, key, variants in (("load", "target", LOADS), ("store", "source", STORES)):
        region = given.get(key)
        if s.name == name and isinstance(region, Region):
            space = spaces[region.buffer]
            if space not in variants:
                where = region.where or s.where
                raise IRError(
                    where,
                    f"{region.buffer} in space {space} as {key} of {name}",
                    f"one in {', '.join(variants)}",
                )
            return variants[space]
    return s.name


def is_generic(s: Instruction) -> bool:
    """Whether an instruction is not one of the machine's."""
    return s.name not in INTRINSICS


def uses_of(program: Program, spaces: dict[str, str]) -> Uses:
    """Finds how a program uses its buffers. Raises `IRError` for spaces that a load or store cannot have."""
    regions: set[str] = set()
    ports: defaultdict[str, set[str]] = defaultdict(set)
    lanes_first: set[str] = set()
    by_machine: set[str] = set()
    by_others: set[str] = set()
    for s in instructions(program):
        named = {o.buffer for _, o in s.operands if isinstance(o, Region)}
        stated = {a.buffer for a in (*s.reads, *s.writes) if isinstance(a, Region)}
        if is_generic(s):
            by_others |= stated
            continue
        by_machine |= named | stated
        regions |= named | stated if s.name == "cgra" else named
        name = operation(s, spaces)
        spec = isa.INSTRUCTIONS.get(name)
        if spec is not None and spec.engine in PORTS:
            for buffer in named | stated:
                if spaces[buffer] == "memory":
                    ports[buffer].add(spec.engine)
        if name in ("load_a_t", "load_b_t"):
            lanes_first |= {buffer for buffer in named if spaces[buffer] != "memory"}
    return Uses(
        frozenset(regions | by_others),
        {name: frozenset(found) for name, found in ports.items()},
        frozenset(lanes_first),
        frozenset(by_others - by_machine),
    )
