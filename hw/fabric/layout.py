"""The configuration layout of a processing element: the sources of its muxes and the fields of its entries.

RTL, bitstream, decoder and mapper read these tables. They are specified in docs/cgra.md, "Sources of the
muxes" and "Configuration of a PE".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hw.fabric.fabric import Fabric, PEKind
from hw.fabric.operations import OPERATION_BITS, Unit

#: Fields of the data operands, in order, and of the predicate.
OPERAND_FIELDS = ("a", "b", "c", "p")
#: Maximum number of arrays of a configuration.
ARRAYS = 16
#: Maximum number of patches of a configuration.
PATCHES = 64
#: Maximum number of first iterations in which an operand is `init`.
FIRST = 7


@dataclass(frozen=True)
class Field:
    """Bits [low + width - 1 : low] of an entry."""

    name: str
    low: int
    width: int


@dataclass(frozen=True)
class Layout:
    """The fields of a PE's entries, and the sources of its muxes.

    `sources` maps the fields `a`, `b`, `c`, `p`, `result`, `write` and `out0`, `out1`, ... to the names of
    their sources, in order. `words` is the number of words of one entry, including `const` and `init`.
    """

    fields: tuple[Field, ...]
    sources: dict[str, tuple[str, ...]]

    @property
    def bits(self) -> int:
        """Width of all fields together."""
        return sum(field.width for field in self.fields)

    @property
    def field_words(self) -> int:
        """Number of words that hold the fields."""
        return -(-self.bits // 32)

    @property
    def words(self) -> int:
        """Number of words in one entry: the fields, `const`, `init`."""
        return self.field_words + 2


def layout(fabric: Fabric, pe: int) -> Layout:
    """The layout of a PE's entries."""
    ins, outs = len(fabric.incoming[pe]), len(fabric.outgoing[pe])
    return _layout(fabric.kinds[pe], ins, outs, fabric.stages, fabric.pipelined)


def made(latency: int) -> str:
    """The mux source that carries the value of an operation of this latency."""
    return "y" if latency == 1 else f"y{latency}"


@lru_cache
def _layout(kind: PEKind, ins: int, outs: int, stages: int, pipelined: bool) -> Layout:
    links = tuple(f"in{i}" for i in range(ins))
    register = ("register",) if kind.registers else ()
    values = tuple(made(latency << pipelined) for latency in (1, 2))
    operand = ("zero", "const", "result", *register, *links)
    sources = {
        "a": operand,
        "b": operand,
        "c": operand,
        "p": ("always", *(("result", *register, *links) if kind.predicated else ())),
        "result": ("keep", *values),
    }
    if kind.registers:
        sources["write"] = ("none", *values, *links)
    for i in range(outs):
        sources[f"out{i}"] = ("keep", *values, "result", *register, *links)
    widths = {"op": OPERATION_BITS}
    widths |= {name: _bits(len(sources[name])) for name in OPERAND_FIELDS}
    widths |= {"negate": 1, "initial": 4, "first": 3, "stage": _bits(stages)}
    if Unit.MEMORY in kind.units:
        widths["array"] = _bits(ARRAYS)
    widths["result"] = _bits(len(sources["result"]))
    if kind.registers:
        widths |= {"write": _bits(len(sources["write"]))}
        widths |= {"write_at": _bits(kind.registers), "read_at": _bits(kind.registers)}
    widths |= {f"out{i}": _bits(len(sources[f"out{i}"])) for i in range(outs)}
    fields, low = [], 0
    for name, width in widths.items():
        if width:
            fields.append(Field(name, low, width))
            low += width
    return Layout(tuple(fields), sources)


def _bits(count: int) -> int:
    """Number of bits that hold the numbers below `count`."""
    return (count - 1).bit_length()
