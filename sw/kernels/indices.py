"""Addressing of an elementwise loop: index variables that walk a tile, arrays, and the scalars they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hw.fabric.layout import ARRAYS
from sw.ir.expression import Expr, Op, fold
from sw.ir.vector import Array
from sw.kernels.access import TileAccess
from sw.kernels.kernel import Stream

#: An operand's number, or `result`, `rows`, `columns`.
Key = int | str


@dataclass(frozen=True)
class Unrolling:
    """The elements computed by an iteration: `mask` holds the bits of the element number that vary within it.

    They are first + o for every number o made of these bits. The loop walks through a block of elements by
    the other bits: with 12 (binary 1100), its iterations compute 0, 4, 8, 12, then 1, 5, 9, 13 and so on up
    to 15. With 3, the four elements are neighbours. The copies of the loop body compute them in `order`,
    which starts with 0, or else in ascending order. With several `lanes`, that many neighbours are computed
    at once.
    """

    mask: int = 0
    order: tuple[int, ...] = ()
    lanes: int = 1

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The elements of an iteration, relative to its first."""
        return self.order or tuple(o for o in range(self.mask + 1) if o & self.mask == o)

    @cached_property
    def pieces(self) -> tuple[int, ...]:
        """The first element of each group that is computed at once."""
        return tuple(o for o in self.offsets if o % self.lanes == 0)

    @property
    def copies(self) -> int:
        """Number of copies of the loop body in an iteration."""
        return 1 << self.mask.bit_count()

    @property
    def block(self) -> int:
        """Number of elements after which the walk repeats."""
        return 1 << self.mask.bit_length()

    @property
    def walks(self) -> bool:
        """Whether the elements of an iteration are not neighbours."""
        return self.block > self.copies

    @property
    def always(self) -> int:
        """The difference between a walk's variable and the element: the variable has the mask's bits set."""
        return self.mask if self.walks else 0

    @property
    def sequence(self) -> tuple[int, ...]:
        """The elements of a block in the order in which iterations compute them."""
        firsts = [o for o in range(self.block) if o & self.mask == 0]
        return tuple(first + offset for first in firsts for offset in self.offsets)


def record_operands(operands: Sequence[TileAccess], follows: str) -> list[int]:
    """Numbers of the operands in the row records, or column records, in record order."""
    return [k for k, access in enumerate(operands) if access.record and access.follows == follows]


@dataclass(frozen=True)
class Indices:
    """The addressing code of an elementwise loop; `used` are the operands in its expression.

    Streams are `x<operand>_<number>` and `y_<number>`. If there are too few arrays, a stream serves several
    copies, at larger indices.
    """

    operands: tuple[TileAccess, ...]
    result: TileAccess
    unrolling: Unrolling
    used: frozenset[int]

    @cached_property
    def accesses(self) -> dict[Key, TileAccess]:
        """The operands used, and the result."""
        found: dict[Key, TileAccess] = {k: self.operands[k] for k in sorted(self.used)}
        return found | {"result": self.result}

    def _record(self, follows: str) -> list[int]:
        return record_operands(self.operands, follows)

    @cached_property
    def own(self) -> int:
        """Number of arrays of an operand whose address differs from piece to piece."""
        many = sum(a.follows in ("full", "column") for a in self.accesses.values())
        count = len(self.unrolling.pieces)
        while count > 1 and many * count + len(self.accesses) - many > ARRAYS:
            count //= 2
        return count

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """All arrays."""
        found: list[Stream] = []
        for key, access in self.accesses.items():
            found += [
                Stream(
                    self._stream(key, i), access.space, access.element, self._offset(key, i) * access.bytes
                )
                for i in range(self._arrays(key))
            ]
        return tuple(found)

    def _arrays(self, key: Key) -> int:
        """Number of arrays of an operand."""
        access = self.accesses[key]
        many = access.follows in ("full", "column")
        return max(1, self.own // access.repeat) if many else 1

    def _stream(self, key: Key, number: int) -> str:
        return f"y_{number}" if key == "result" else f"x{key}_{number}"

    def _offset(self, key: Key, piece: int) -> int:
        """Offset in elements of a piece from an operand's index; the divisor if elements repeat."""
        access = self.accesses[key]
        if access.repeat > 1:
            return piece
        if access.record:
            record = self._record(access.follows)
            each = self.unrolling.lanes if access.follows == "column" else 1
            return each * (piece * len(record) * (access.follows == "column") + record.index(int(key)))
        return self.unrolling.pieces[piece] * access.step if access.follows in ("full", "column") else 0

    def _place(self, key: Key, piece: int) -> tuple[str, str]:
        """The array and index of the first element of a piece."""
        access = self.accesses[key]
        if access.follows in ("row", "scalar"):
            return self._stream(key, 0), self._index(key)
        if access.repeat > 1:
            piece = self.unrolling.pieces[piece] // access.repeat
        further = piece // self._arrays(key) * self._arrays(key)
        more = self._offset(key, further) - self._offset(key, 0)
        return self._stream(key, piece - further), self._index(key) + (f" + {more}" if more else "")

    def load(self, operand: int, piece: int) -> str:
        """The text that loads an operand's element, or those of a piece."""
        if operand not in self.used:
            return ""
        stream, index = self._place(operand, piece)
        several = self.unrolling.lanes > 1 and self.accesses[operand].follows in ("full", "column")
        return f"load_lanes({stream}, {index})" if several else f"{stream}[{index}]"

    def store(self, piece: int, value: str) -> str:
        """The statement that stores a result's element, or those of a piece."""
        stream, index = self._place("result", piece)
        if self.unrolling.lanes > 1:
            return f"store_lanes({stream}, {index}, {value})"
        return f"{stream}[{index}] = {value}"

    def _index(self, key: Key) -> str:
        access = self.accesses[key]
        if access.record:
            return "columns" if access.follows == "column" else "base_rows"
        derived = access.follows == "column" or (access.follows == "full" and self.shared)
        return f"p_{key}" if derived else f"base_{key}"

    def _gaps(self, key: Key) -> list[str]:
        access = self.accesses[key]
        return ["row"] * access.row_gap + ["segment"] * access.segment_gap

    @property
    def shared(self) -> bool:
        """Whether all full operands share one walk."""
        return self.unrolling.walks

    @cached_property
    def of_rows(self) -> str:
        """The unit of row records: a row, or a segment if rows have segments."""
        return "segment" if any(a.segment_gap for a in (*self.operands, self.result)) else "row"

    @cached_property
    def counts(self) -> tuple[str, ...]:
        """The counters: iterations of a row, of a segment."""
        segments = self.of_rows == "segment"
        rows = any(
            a.row_gap or a.follows == "column" or (a.follows == "row" and not (a.record and segments))
            for a in self.accesses.values()
        )
        return ("row",) * rows + ("segment",) * segments

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the address scalars."""
        found = [f"base_{key}" for key, access in self.accesses.items() if not access.record]
        found += [f"base_{follows}s" for follows in ("row", "column") if self._used_record(follows)]
        found += [f"{what}_last" for what in self.counts]
        return (*found, *(f"{gap}_gap_{key}" for key in self.accesses for gap in self._gaps(key)))

    def _used_record(self, follows: str) -> bool:
        return any(a.record and a.follows == follows for a in self.accesses.values())

    @cached_property
    def _plain_columns(self) -> list[Key]:
        return [k for k, a in self.accesses.items() if a.follows == "column" and not a.record]

    @property
    def start(self) -> tuple[str, ...]:
        """Statements before the loop; they mark a row and a segment as finished."""
        mask = self.unrolling.always
        found = [f"{what}_left = 0" for what in self.counts]
        if self.shared:
            found.append(f"at = {mask - 1}")
        if self._plain_columns:
            found.append("column = 0")
        if self._used_record("column"):
            found.append("columns = 0")
        return tuple(found)

    @property
    def step(self) -> tuple[str, ...]:
        """Statements at the start of an iteration."""
        u = self.unrolling
        found: list[str] = []
        if self.shared:
            found.append(f"at = at + 1 | {u.mask}")
        if self._plain_columns:
            further = f"(column + 1 | {u.mask})" if u.walks else f"column + {u.copies}"
            found.append(f"column = {further} if row_left else {u.always}")
        if self._used_record("column"):
            words = u.copies * len(self._record("column"))
            found.append(f"columns = columns + {words} if row_left else base_columns")
        if self._used_record("row"):
            more = len(self._record("row"))
            found.append(f"base_rows = base_rows if {self.of_rows}_left else base_rows + {more}")
        for key in self.accesses:
            found += self._variable(key)
        found += [f"{what}_left = {what}_left - 1 if {what}_left else {what}_last" for what in self.counts]
        return tuple(found)

    def _variable(self, key: Key) -> list[str]:
        """Statements that compute an operand's index in this iteration."""
        access = self.accesses[key]
        if access.record or access.follows == "scalar":
            return []
        if access.follows == "row":
            return [f"base_{key} = base_{key} if row_left else base_{key} + 1"]
        if access.follows == "column":
            return [f"p_{key} = column + base_{key}"]
        base, gaps = f"base_{key}", self._gaps(key)
        usual = f"{base} + {self._advance(access)}" if self._advance(access) else base
        found, more = [], f"{gaps[0]}_gap_{key}" if gaps else ""
        if len(gaps) > 1:
            # A row ends together with a segment.
            found, more = [f"more_{key} = segment_gap_{key} if row_left else row_gap_{key}"], f"more_{key}"
        if gaps:
            # Both sums start at once: the recurrence has two operations, not three.
            found.append(f"{base} = {usual} if {gaps[-1]}_left else {base} + {more}")
        elif not self.shared:
            found.append(f"{base} = {usual}")
        return [*found, f"p_{key} = at + {base}"] if self.shared else found

    def _advance(self, access: TileAccess) -> int:
        """Increment of a base per iteration of neighbours; 0 if one walk moves all operands."""
        return 0 if self.shared else self.unrolling.copies * access.step // access.repeat

    @property
    def bases(self) -> list[Key]:
        """What has its own base: operands by number, then row and column records, then the result."""
        return [*range(len(self.operands)), "rows", "columns", "result"]

    def followed(self, iterations: int, width: int) -> dict[str, tuple[Key, list[Array]]]:
        """By array, the key of its base, and the indices of its elements relative to the base, per iteration.

        Rows have `width` elements, a multiple of the block, and no gaps.
        """
        u = self.unrolling
        firsts = np.array([o for o in range(u.block) if o & u.mask == 0])
        number = np.arange(iterations)
        first = number // len(firsts) * u.block + firsts[number % len(firsts)]
        row, iteration = first // width, number % (width // u.copies)
        found: dict[str, tuple[Key, list[Array]]] = {}
        for key, access in self.accesses.items():
            of_columns, records = access.follows == "column", len(self._record(access.follows))
            moved = {"full": first, "column": first % width, "row": row, "scalar": 0 * row}[access.follows]
            if access.record:
                moved = iteration * u.copies * records if of_columns else row * records
            moved = first % width * access.step + row if access.turned else moved // access.repeat
            many = access.follows in ("full", "column")
            base = (access.follows + "s") if access.record else key
            pieces = range(len(u.pieces) if many else 1)
            # Repeated elements are loaded once.
            for copy in dict.fromkeys(o // access.repeat for o in u.pieces) if access.repeat > 1 else pieces:
                stream = copy % self._arrays(key)
                own = found.setdefault(self._stream(key, stream), (base, []))
                own[1].append(moved + self._offset(key, copy) - self._offset(key, stream))
        return found

    def scalars(
        self,
        bases: Mapping[Key, Expr | int],
        width: Expr | int | None,
        segment: Expr | int | None,
        row_gaps: Mapping[Key, Expr | int],
        segment_gaps: Mapping[Key, Expr | int],
    ) -> dict[str, Expr]:
        """The values of `names`, as described at `ElementwiseKernel.scalars`."""
        sizes = {"row": width, "segment": segment}
        gaps = {"row": row_gaps, "segment": segment_gaps}
        found: dict[str, Expr] = {}
        for key, access in self.accesses.items():
            if access.record:
                continue
            base, own = fold(Op.SUB, bases[key], self._before(key)), self._gaps(key)
            for gap in own:
                found[f"{gap}_gap_{key}"] = fold(Op.ADD, gaps[gap][key], self._advance(access))
                base = fold(Op.SUB, base, gaps[gap][key])
            if len(own) > 1:
                found[f"row_gap_{key}"] = fold(Op.ADD, found[f"row_gap_{key}"], gaps["segment"][key])
            found[f"base_{key}"] = base
        for follows in ("row", "column"):
            if self._used_record(follows):
                before = len(self._record("row")) if follows == "row" else 0
                found[f"base_{follows}s"] = fold(Op.SUB, bases[f"{follows}s"], before)
        for what in self.counts:
            length = sizes[what]
            assert length is not None
            found[f"{what}_last"] = fold(Op.SUB, fold(Op.DIV, length, self.unrolling.copies), 1)
        return found

    def _before(self, key: Key) -> int:
        """The value of an operand's index when its variable starts, minus the base."""
        access = self.accesses[key]
        if access.follows == "full":
            return self.unrolling.always if self.shared else self._advance(access)
        if access.follows == "column":
            return self.unrolling.always
        return int(access.follows == "row")
