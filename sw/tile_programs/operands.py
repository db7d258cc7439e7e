"""Operations of the machine whose operands are regions: their registers and parameters as expressions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hw import isa
from hw.config import MachineConfig
from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr, Op, apply, evaluate, fold
from sw.ir.grid import GRID
from sw.ir.intrinsics import effects
from sw.ir.program import Instruction, Region
from sw.tile_programs.facts import Box, Facts, Values, all_of, any_of, negated, where_filled
from sw.tile_programs.places import Place
from sw.tile_programs.uses import operation

Operands = dict[str, Expr]

#: The space in which each operand's region must lie, by operation.
_SPACES = {
    "load_a": {"memory": "memory", "target": "A"},
    "load_a_t": {"memory": "memory", "target": "A"},
    "load_b": {"memory": "memory", "target": "B"},
    "load_b_t": {"memory": "memory", "target": "B"},
    "load_c": {"memory": "memory", "target": "scratch"},
    "gemm": {"a": "A", "b": "B", "c": "acc"},
    "gemm_acc": {"a": "A", "b": "B", "c": "acc"},
    "store": {"source": "acc", "memory": "memory"},
    "store_scratch": {"source": "scratch", "memory": "memory"},
    "store_out": {"source": "out", "memory": "memory"},
}
#: The spaces in which a launch of the grid reads and writes.
_GRID_READS, _GRID_WRITES = ("acc", "scratch", "out", GRID), ("out", GRID)
#: The `bitstream` of a launch counts so many bytes of the scratchpad.
_BITSTREAM_UNIT = 16


@dataclasses.dataclass(frozen=True)
class Binder:
    """What binding one instruction needs to know."""

    config: MachineConfig
    facts: Facts
    places: Mapping[str, Place]
    spaces: dict[str, str]

    def bind(self, s: Instruction) -> Instruction | None:
        """The instruction with values for registers and parameters; None where it never does anything.

        What it states already stays. Raises `IRError` where one operation cannot do it.
        """
        name = operation(s, self.spaces)
        if name in isa.NEEDS_GRID and self.config.cgra is None:
            raise IRError(s.where, f"{name}, which needs a CGRA grid", "an operation that the machine has")
        given = {n: o for n, o in s.operands if isinstance(o, Region)}
        if name not in isa.INSTRUCTIONS:
            raise IRError(s.where, f"{name} without regions", "an operation of the machine, such as load_a")
        if name == "cgra":
            return self.launch(s)
        if not given:
            return s
        if name not in _SPACES:
            raise IRError(
                s.where, f"a region as operand of {name}", "values, and regions in read= and write="
            )
        boxes = self.boxes(s, name, given)
        if name.startswith("gemm"):
            made, filled = self.gemm(s, boxes, acc=name == "gemm_acc")
        elif name.startswith("load"):
            made, filled = self.load(s, name, boxes)
        else:
            made, filled = self.store(s, boxes)
        if any(self.facts.empty(s, box) for box in filled):
            return None
        reads, writes = effects(dataclasses.replace(s, name=name))
        made |= {n: o for n, o in s.operands if isinstance(o, Expr)}
        return dataclasses.replace(
            s,
            name=name,
            reads=reads,
            writes=writes,
            when=where_filled(s, filled),
            operands=self.ordered(name, made),
        )

    def launch(self, s: Instruction) -> Instruction:
        """A launch of the grid; its configuration may be a region of the scratchpad."""
        for accesses, spaces, what in ((s.reads, _GRID_READS, "read"), (s.writes, _GRID_WRITES, "write")):
            for access in accesses:
                if isinstance(access, Region) and self.spaces[access.buffer] not in spaces:
                    found = f"{what}= of {access.buffer} in space {self.spaces[access.buffer]} of {s.label}"
                    raise IRError(access.where or s.where, found, f"one in {', '.join(spaces)}")
        given = dict(s.operands)
        region = given.get("bitstream")
        if not isinstance(region, Region):
            return s
        if self.spaces[region.buffer] != "scratch":
            found = f"{region.buffer} in space {self.spaces[region.buffer]} as bitstream of {s.label}"
            raise IRError(region.where or s.where, found, "one in scratch")
        box = self.facts.box(s, region, self.places[region.buffer])
        start = box.first()
        self.facts.require(
            s,
            region,
            _divides(_BITSTREAM_UNIT, start),
            lambda values: f"a configuration at byte {evaluate(start, values)} of the scratchpad",
            f"one at a multiple of {_BITSTREAM_UNIT}",
        )
        address = self.facts.settled(s, start // _BITSTREAM_UNIT)
        operands = tuple((n, address if n == "bitstream" else o) for n, o in s.operands)
        return dataclasses.replace(s, reads=(*s.reads, region), operands=operands)

    @staticmethod
    def ordered(name: str, made: Operands) -> tuple[tuple[str, Expr], ...]:
        """Operands in the order of the machine's fields; parameters that are 0 anyway left out."""
        spec = isa.INSTRUCTIONS[name]
        order = [*(o.name for o in spec.operands), *spec.parameters]
        return tuple((n, made[n]) for n in order if n in made)

    def boxes(self, s: Instruction, name: str, given: Mapping[str, Region]) -> dict[str, Box]:
        """The regions of all operands that have one, each in the space that the operation needs."""
        wanted = _SPACES[name]
        if missing := [n for n in wanted if n not in given]:
            raise IRError(
                s.where, f"no region as {missing[0]} of {s.label}", "regions for all operands, or for none"
            )
        made: dict[str, Box] = {}
        for operand, space in wanted.items():
            region = given[operand]
            if self.spaces[region.buffer] != space:
                where = region.where or s.where
                there = self.spaces[region.buffer]
                raise IRError(
                    where, f"{region.buffer} in space {there} as {operand} of {name}", f"one in {space}"
                )
            made[operand] = box = self.facts.box(s, region, self.places[region.buffer])
            self.facts.require(
                s,
                region,
                any_of(negated(box.filled), all_of(*(apply(Op.EQ, e, 1) for e in box.size[:-2]))),
                lambda values, box=box: _shown(box, values),  # type: ignore[misc]
                "one row or one matrix: an operation moves rows that lie evenly",
            )
        return made

    def equal(self, s: Instruction, what: str, first: Box, second: Box, sizes: tuple[Expr, Expr]) -> None:
        """Require that two sizes are equal."""
        left, right = sizes
        self.facts.require(
            s,
            second.region,
            apply(Op.EQ, left, right),
            lambda values: (
                f"{evaluate(left, values)} {what} of {first.text} and "
                f"{evaluate(right, values)} of {second.text}"
            ),
            "as many of both",
        )

    def blocks(self, s: Instruction, box: Box, dimension: int) -> Expr:
        """The first column or word of a region whose lanes are counted along a dimension."""
        lanes, start = box.place.lanes, box.start[dimension]
        self.facts.require(
            s,
            box.region,
            any_of(_divides(lanes, start), negated(box.filled)),
            lambda values: (
                f"the region {box.text}, which starts at {evaluate(start, values)} across the lanes,"
            ),
            f"a start that is a multiple of {lanes}, the lanes of space {box.place.space}",
        )
        return box.first({dimension: self.facts.settled(s, start // lanes)})

    # Operations

    def load(self, s: Instruction, name: str, boxes: Mapping[str, Box]) -> tuple[Operands, tuple[Box, ...]]:
        """A load of rows of memory, which may be padded where `load_fill` says with what."""
        memory, target = boxes["memory"], boxes["target"]
        size = memory.place.element_bytes
        if size != target.place.element_bytes:
            raise IRError(
                target.region.where or s.where,
                f"elements of {target.place.buffer.element} for {memory.place.buffer.element}",
                "elements of one size",
            )
        # The dimension of the target along which rows of memory are counted, and that inside of a row.
        across, along = (-1, -2) if name in ("load_a_t", "load_b") else (-2, -1)
        made: Operands = {
            "memory": memory.first(),
            "outer": memory.size[-2],
            "inner": memory.size[-1] * size,
            "load_stride": Const(memory.strides[-2]),
        }
        given = {n for n, _ in s.operands}
        for parameter, what, own, other, unit in (
            ("load_pad_outer", "rows", -2, across, 1),
            ("load_pad_inner", "elements in a row", -1, along, size),
        ):
            if parameter in given:
                continue
            there, wanted = memory.counted(own), target.counted(other)
            if "load_fill" in given:
                self.enough(s, what, memory, target, (there, wanted))
                more = fold(Op.SUB, target.size[other], memory.size[own])
                made[parameter] = self.facts.settled(s, more) * unit
            else:
                self.equal(s, what, memory, target, (there, wanted))
        if name == "load_c":
            made["target"] = target.first()
            made["load_pitch"] = Const(target.strides[-2])
        else:
            lanes = -2 if target.place.space == "A" else -1
            made["target"] = self.blocks(s, target, lanes)
            made["load_pitch"] = Const(target.strides[lanes])
        return made, (target,)

    def enough(self, s: Instruction, what: str, memory: Box, target: Box, sizes: tuple[Expr, Expr]) -> None:
        """Require that the target has at least the size of the memory, so that the rest can be filled."""
        there, wanted = sizes
        self.facts.require(
            s,
            target.region,
            any_of(all_of(apply(Op.GE, wanted, there), memory.filled), negated(target.filled)),
            lambda values: (
                f"{evaluate(there, values)} {what} of {memory.text} for "
                f"{evaluate(wanted, values)} of {target.text}"
            ),
            "at least one, and no more than the target has",
        )

    def gemm(
        self, s: Instruction, boxes: Mapping[str, Box], *, acc: bool
    ) -> tuple[Operands, tuple[Box, ...]]:
        """A product of regions of A and B into one of the accumulator."""
        a, b, c = boxes["a"], boxes["b"], boxes["c"]
        some = all_of(c.filled, a.filled, b.filled)
        for what, first, second, sizes in (
            ("rows", a, c, (a.size[-2], c.size[-2])),
            ("columns", b, c, (b.size[-1], c.size[-1])),
            ("steps of depth", a, b, (a.size[-1], b.size[-2])),
        ):
            if not self.facts.holds(s, apply(Op.EQ, *sizes)):
                left, right = (fold(Op.SELECT, some, size, 0) for size in sizes)
                self.equal(s, what, first, second, (left, right))
        if not acc:
            self.facts.require(
                s,
                c.region,
                any_of(some, negated(c.filled)),
                lambda values: f"a product of nothing for {c.text}",
                "regions of A and B that are not empty",
            )
        signed = (a.place.buffer.element == "int8") | (b.place.buffer.element == "int8") << 1
        made: Operands = {
            "a": self.blocks(s, a, -2),
            "b": self.blocks(s, b, -1),
            "c": self.blocks(s, c, -1),
            "k": a.size[-1],
            "gemm_m": c.size[-2],
            "gemm_n": c.size[-1],
            "gemm_a_pitch": Const(a.strides[-2]),
            "gemm_b_pitch": Const(b.strides[-1]),
            "gemm_c_pitch": Const(c.strides[-2]),
            "gemm_signed": Const(int(signed)),
        }
        return made, (a, b, c) if acc else (c,)

    def store(self, s: Instruction, boxes: Mapping[str, Box]) -> tuple[Operands, tuple[Box, ...]]:
        """A store of rows of the accumulator or scratchpad."""
        source, memory = boxes["source"], boxes["memory"]
        size = source.place.element_bytes
        if size != memory.place.element_bytes:
            raise IRError(
                memory.region.where or s.where,
                f"elements of {memory.place.buffer.element} for {source.place.buffer.element}",
                "elements of one size",
            )
        for what, dimension in (("rows", -2), ("elements in a row", -1)):
            self.equal(s, what, source, memory, (source.counted(dimension), memory.counted(dimension)))
        if source.place.space == "acc":
            first = self.blocks(s, source, -1)
        else:
            aligned(s, self.facts, source, self.config.store_bytes)
            first = source.first()
        made: Operands = {
            "memory": memory.first(),
            "source": first,
            "rows": source.size[-2],
            "bytes": source.size[-1] * size,
            "store_stride": Const(memory.strides[-2]),
            "store_pitch": Const(source.strides[-2]),
        }
        return made, (source,)


def aligned(s: Instruction, facts: Facts, box: Box, width: int) -> None:
    """Raise `IRError` unless a region of the scratchpad starts at a word of the port that stores it."""
    first = box.start[-1] * box.strides[-1]
    facts.require(
        s,
        box.region,
        any_of(_divides(width, first), negated(box.filled)),
        lambda values: f"the region {box.text}, which starts at byte {evaluate(first, values)} of a row,",
        f"a start at a multiple of {width} bytes, the width of port store",
    )


def _divides(unit: int, expr: Expr) -> Expr:
    """Whether an expression is a multiple of a number."""
    return fold(Op.EQ, expr % unit, 0)


def _shown(box: Box, values: Values) -> str:
    sizes = (str(evaluate(box.counted(d), values)) for d in range(len(box.size)))
    return f"the region {box.text}, {' x '.join(sizes)},"
