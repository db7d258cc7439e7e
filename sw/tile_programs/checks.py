"""Checks the requirements of operations on their regions, in every execution, before a program is compiled.

Once its parameters are known, all values of a program are. So the program is run from start to end, which
also shows which instructions execute, how often, and what all their executions have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw import isa
from hw.config import MachineConfig
from sw.ir.errors import IRError
from sw.ir.grid import GRID
from sw.ir.program import Instruction, Program, Region
from sw.ir.walk import Instance, executions
from sw.tile_programs.places import Place
from sw.tile_programs.regions import Piece, Seen, SeenRegion
from sw.tile_programs.uses import LOADS, STORES, is_generic, operation

#: Required space of each operand's region, by operation.
_SPACES = {
    "load_a_t": {"memory": "memory", "target": "A"},
    "load_b": {"memory": "memory", "target": "B"},
    "gemm": {"a": "A", "b": "B", "c": "acc"},
    "gemm_acc": {"a": "A", "b": "B", "c": "acc"},
    **{name: {"memory": "memory", "target": space} for space, name in LOADS.items()},
    **{name: {"source": space, "memory": "memory"} for space, name in STORES.items()},
}
#: Pairs of operands and dimensions whose sizes must be equal.
Pairs = Sequence[tuple[str, str, int, str, int]]
_PRODUCT: Pairs = (
    ("rows", "a", -2, "c", -2),
    ("columns", "b", -1, "c", -1),
    ("steps of depth", "a", -1, "b", -2),
)
_STORE: Pairs = (("rows", "source", -2, "memory", -2), ("elements in a row", "source", -1, "memory", -1))
_LOAD: Pairs = (("rows", "memory", -2, "target", -2), ("elements in a row", "memory", -1, "target", -1))
_EXCHANGE: Pairs = (("rows", "memory", -2, "target", -1), ("elements in a row", "memory", -1, "target", -2))
#: For a load, the parameters that say by how much the target exceeds the loaded region.
PADS = {"rows": "load_pad_outer", "elements in a row": "load_pad_inner"}
#: Spaces in which a CGRA launch may read and write.
_GRID_READS, _GRID_WRITES = ("acc", "scratch", "out", GRID), ("out", GRID)
#: Unit of a launch's `bitstream` operand, in bytes of the scratchpad.
BITSTREAM_UNIT = 16
#: Most executions of a generic instruction that its log can hold.
LOGGED = 1 << 20


def follow(
    program: Program, config: MachineConfig, places: Mapping[str, Place], spaces: dict[str, str]
) -> dict[str, Seen]:
    """Runs the program; returns, by label, what all executions of each instruction have in common.

    Raises `IRError` for regions that one operation cannot move, and for run-time failures.
    """
    seen: dict[str, Seen] = {}
    values: dict[str, int] = {}
    for s, iteration in executions(program.body, values, lambda i: i.name not in ("wait", "signal")):
        if s.label not in seen:
            regions = _regions_of(s, config, places, spaces)
            seen[s.label] = Seen({name: SeenRegion(region) for name, region in regions.items()})
        own = seen[s.label]
        pieces = {
            name: Piece.of(found.region, places[found.region.buffer], values, s.where)
            for name, found in own.regions.items()
        }
        own.add(iteration, pieces)
        if is_generic(s) and own.count > LOGGED:
            raise IRError(s.where, f"more than {LOGGED:,} executions of {s.label}", "fewer")
        if pieces:
            _Execution(s, operation(s, spaces), iteration, pieces, config.store_bytes).check()
    return seen


def loaded_sizes(name: str) -> Pairs:
    """The sizes of memory and target that a load equates; some loads exchange rows and columns."""
    return _EXCHANGE if name in ("load_a_t", "load_b") else _LOAD


def _regions_of(
    s: Instruction, config: MachineConfig, places: Mapping[str, Place], spaces: dict[str, str]
) -> dict[str, Region]:
    """The regions of an instruction that are bound; raises `IRError` if no operation takes them."""
    if is_generic(s):
        found = {kind: _generic(s, kind, spaces) for kind in ("read", "write")}
        return {f"{kind}{n}": region for kind, own in found.items() for n, region in enumerate(own)}
    name = operation(s, spaces)
    if needed := config.lacks(name):
        raise IRError(s.where, f"{name}, which needs {needed}", "an operation that the machine has")
    if name not in isa.INSTRUCTIONS:
        raise IRError(s.where, f"{name} without regions", "an operation of the machine, such as load_a")
    given = {n: o for n, o in s.operands if isinstance(o, Region)}
    if name == "cgra":
        _check_launch(s, spaces)
        wanted = {"bitstream": "scratch"} if "bitstream" in given else {}
    else:
        wanted = _SPACES.get(name, {}) if given else {}
        if given and not wanted:
            raise IRError(
                s.where, f"a region as operand of {name}", "values, and regions in read= and write="
            )
        if missing := [n for n in wanted if n not in given]:
            raise IRError(
                s.where, f"no region as {missing[0]} of {s.label}", "regions for all operands, or for none"
            )
    for operand, space in wanted.items():
        region = given[operand]
        there = spaces[region.buffer]
        if there != space:
            what = f"{operand} of {s.label if name == 'cgra' else name}"
            raise IRError(
                region.where or s.where, f"{region.buffer} in space {there} as {what}", f"one in {space}"
            )
    if not name.startswith("gemm") and len(wanted) == 2:
        _check_elements(s, [given[operand] for operand in wanted], places)
    return {operand: given[operand] for operand in wanted}


def _generic(s: Instruction, kind: str, spaces: Mapping[str, str]) -> list[Region]:
    """The regions that a generic instruction reads or writes (`kind`), which must be in the scratchpad."""
    made = []
    for access in s.reads if kind == "read" else s.writes:
        if not isinstance(access, Region):
            raise IRError(s.where, f"{kind}=ANY of {s.label}", "a region, to run the program")
        if spaces[access.buffer] != "scratch":
            raise IRError(
                access.where or s.where,
                f"{access.buffer} in space {spaces[access.buffer]} as {kind}= of the generic {s.name}",
                "a buffer in the scratchpad, or of no stated space",
            )
        made.append(access)
    return made


def _check_launch(s: Instruction, spaces: Mapping[str, str]) -> None:
    """Checks that a launch reads and writes only in allowed spaces."""
    for accesses, allowed, what in ((s.reads, _GRID_READS, "read"), (s.writes, _GRID_WRITES, "write")):
        for access in accesses:
            if isinstance(access, Region) and spaces[access.buffer] not in allowed:
                found = f"{what}= of {access.buffer} in space {spaces[access.buffer]} of {s.label}"
                raise IRError(access.where or s.where, found, f"one in {', '.join(allowed)}")


def _check_elements(s: Instruction, regions: Sequence[Region], places: Mapping[str, Place]) -> None:
    """Checks that a load or store keeps the element size."""
    source, target = (places[region.buffer].buffer for region in regions)
    if source.element_bytes != target.element_bytes:
        found = f"elements of {target.element} for {source.element}"
        raise IRError(regions[1].where or s.where, found, "elements of one size")


@dataclass(frozen=True)
class _Execution:
    """An execution of an instruction, with its regions by operand; `width` is that of port store."""

    s: Instruction
    name: str
    iteration: tuple[int, ...]
    pieces: Mapping[str, Piece]
    width: int

    def wrong(self, piece: Piece, found: str, expected: str) -> IRError:
        """The error of one of the regions, with location and iteration."""
        at = Instance(self.s.label, self.iteration)
        return IRError(piece.region.where or self.s.where, f"{found} in {at}", expected)

    def check(self) -> None:
        """Raises `IRError` for anything that the operation cannot do."""
        for piece in self.pieces.values():
            if piece.filled:
                self.check_region(piece)
        if self.name.startswith("gemm"):
            self.check_gemm()
        elif self.name.startswith("load"):
            self.check_load()
        elif self.name.startswith("store"):
            self.check_sizes(_STORE)
        for operand, piece in self.pieces.items():
            if piece.filled:
                self.check_start(operand, piece)

    def check_region(self, piece: Piece) -> None:
        """Checks that a region is inside its buffer, and that operations move matrices."""
        if not piece.inside:
            whole = ", ".join(f"0:{size}" for size in piece.place.shape)
            raise self.wrong(piece, f"the region {piece}", f"one inside of {piece.region.buffer}[{whole}]")
        if self.name in _SPACES and any(size != 1 for size in piece.size[:-2]):
            found = f"the region {piece.text}, {' x '.join(map(str, piece.size))},"
            raise self.wrong(piece, found, "one row or one matrix: an operation moves evenly spaced rows")

    def check_start(self, operand: str, piece: Piece) -> None:
        """Checks that a region starts at the first lane, and a stored one at a word of the port."""
        along, lanes = piece.place.across, piece.place.lanes
        if along and piece.start[along] % lanes:
            raise self.wrong(
                piece,
                f"the region {piece.text}, which starts at {piece.start[along]} across the lanes,",
                f"a start that is a multiple of {lanes}, the lanes of space {piece.place.space}",
            )
        at = piece.start[-1] * piece.place.strides[-1]
        if not along and operand.startswith(("source", "read")) and at % self.width:
            raise self.wrong(
                piece,
                f"the region {piece.text}, which starts at byte {at} of a row,",
                f"a start at a multiple of {self.width} bytes, the width of port store",
            )
        if operand == "bitstream" and piece.first % BITSTREAM_UNIT:
            raise self.wrong(
                piece,
                f"a configuration at byte {piece.first} of the scratchpad",
                f"one at a multiple of {BITSTREAM_UNIT}",
            )

    def check_sizes(self, pairs: Pairs) -> None:
        """Checks the pairs of sizes that must be equal."""
        for what, first, dimension, second, other in pairs:
            a, b = self.pieces[first], self.pieces[second]
            if a.counted(dimension) != b.counted(other):
                found = f"{a.counted(dimension)} {what} of {a.text} and {b.counted(other)} of {b.text}"
                raise self.wrong(b, found, "as many of both")

    def check_gemm(self) -> None:
        """Checks that all sizes match; a product that adds nothing may be empty."""
        c = self.pieces["c"]
        if all(piece.filled for piece in self.pieces.values()):
            self.check_sizes(_PRODUCT)
        elif c.filled and self.name == "gemm":
            found = f"a product of nothing for {c.text}"
            raise self.wrong(c, found, "regions of A and B that are not empty")

    def check_load(self) -> None:
        """Checks that the target is as large as the memory region, or larger if a fill value is given."""
        given = {name for name, _ in self.s.operands}
        pairs = [pair for pair in loaded_sizes(self.name) if PADS[pair[0]] not in given]
        if "load_fill" not in given:
            self.check_sizes(pairs)
            return
        memory, target = self.pieces["memory"], self.pieces["target"]
        for what, _, dimension, _, other in pairs:
            there, wanted = memory.counted(dimension), target.counted(other)
            if target.filled and not (memory.filled and wanted >= there):
                found = f"{there} {what} of {memory.text} for {wanted} of {target.text}"
                raise self.wrong(target, found, "at least one, and no more than the target has")
