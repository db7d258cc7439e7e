"""Operators on whole rows: what they share, and how their rows are cut into tiles.

A tile takes several launches in sequence. A launch processes all rows in one loop. It leaves its result for
each row in the row's record in the output buffer, for the launches after it.
"""

from __future__ import annotations

import bisect
import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw.errors import InputError, UnwritableError
from sw.cgra.launcher import UNIT
from sw.compile.forms import HALVES, size
from sw.compile.launches import LaunchWriter
from sw.compile.writer import LONGEST, AddressMap, ChipSpace, Writer
from sw.graph.network import Operator, Tensor, View, whole
from sw.graph.requantise import LIMITS
from sw.ir.expression import Expr
from sw.ir.program import Statement
from sw.kernels.configuration import Configured
from sw.kernels.passes import GROUP, RECORD, Pass, Span, Value
from sw.kernels.quickest import quickest
from sw.layout import round_up
from sw.operators.copies import Copies, rows_contiguous
from sw.operators.registry import LoweringContext, legalise, lower
from sw.operators.tiles import DOWN, batch_steps, merged_axes, nest, nested, place, turn

Array = npt.NDArray[np.generic]
#: Elements per iteration of a loop with lanes.
BLOCKS = (GROUP, 2 * GROUP, 4 * GROUP)
#: Elements that a reference computation processes at a time.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class ByteOperator(Operator):
    """An operator on one operand `x` with elements of type `element` and contiguous rows."""

    x: View
    element: str

    @property
    def inputs(self) -> tuple[View, ...]:
        """The operand."""
        return (self.x,)

    @property
    def fill(self) -> int:
        """Padding value of rows."""
        return LIMITS[self.element][0]


@legalise.register
def _(operator: ByteOperator, copies: Copies) -> None:
    x = operator.x if rows_contiguous(operator.x) else copies.copy(operator, operator.x, "operand")
    copies.append(dataclasses.replace(operator, x=x), rows_contiguous(operator.output))


@dataclass(frozen=True)
class RowOperator(ByteOperator):
    """An operator on the last axis of `x`; the result has the shape of `x`.

    A subclass defines the result of rows (`on_rows`) and the launches that compute it (`choices`).
    """

    @property
    def columns(self) -> int:
        """Elements per row."""
        return self.x.shape[-1]

    def parameters(self, pitch: int, lanes: int = 1) -> npt.NDArray[np.int32] | None:
        """Words in the scratchpad for rows of `pitch` bytes and a last launch that uses this many lanes."""
        return None

    @abstractmethod
    def on_rows(self, x: Array) -> Array:
        """The results of rows, an array [rows, columns]."""

    @abstractmethod
    def choices(self, tile: RowTile, parameters: Value) -> tuple[tuple[Pass, ...], ...]:
        """The launches of a tile; `parameters` is their byte address in the scratchpad.

        For every launch, the loops that can execute it: first the one without lanes, then those with lanes.
        """

    def passes(self, tile: RowTile, parameters: Value, chosen: Sequence[int] = ()) -> tuple[Pass, ...]:
        """The launches of a tile, by the numbers of their loops; without numbers, no loop uses lanes."""
        choices = self.choices(tile, parameters)
        return tuple(loops[i] for loops, i in zip(choices, chosen or [0] * len(choices), strict=True))

    def reference(self, arrays: Sequence[Array]) -> Array:
        """The results, computed a few rows at a time, so that large tensors need little memory."""
        (x,) = arrays
        rows = x.reshape(-1, self.columns)
        step = max(1, _CHUNK // self.columns)
        found = [self.on_rows(rows[i : i + step]) for i in range(0, len(rows), step)]
        return np.concatenate(found).reshape(x.shape)


@dataclass(frozen=True)
class RowTile:
    """The addresses of a tile of `rows` rows, in bytes of the scratchpad (`x`) and the output buffer.

    `x` is the address of the rows, `records` that of their records, and `out` that of the results; all three
    are multiples of 4. Rows of input are `pitch` bytes apart; so are rows of results, or else they are
    `apart` bytes apart, a multiple of 4. With several `lanes`, rows and results start at multiples of `lanes`
    bytes, and the operator's parameters at multiples of `lanes` words.
    """

    rows: Value
    columns: int
    x: Value
    records: Value
    out: Value
    apart: int = 0
    lanes: int = 1
    tight: bool = False

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next: the columns plus padding, the least with `tight`."""
        return row_pitch(self.columns, 1 if self.tight else self.lanes)

    @property
    def input(self) -> Span:
        """The rows."""
        return Span("scratch", self.x, self.bytes)

    @property
    def state(self) -> Span:
        """The records."""
        return Span("out", self.records, self.rows * RECORD)

    @property
    def results(self) -> Span:
        """The results."""
        return Span("out", self.out, self.rows * (self.apart or self.pitch))

    @property
    def gap(self) -> int:
        """Words between the results of a row and those of the next."""
        return ((self.apart or self.pitch) - self.pitch) // 4

    @property
    def bytes(self) -> Value:
        """Bytes of all rows."""
        return self.rows * self.pitch

    @property
    def blocks(self) -> tuple[int, ...]:
        """Elements per iteration with several lanes, at most four times the number of lanes.

        Rows start at multiples of them.
        """
        if self.lanes == 1 or self.apart % self.lanes:
            return ()
        return tuple(b for b in BLOCKS if b in (n * self.lanes for n in (1, 2, 4)) and self.pitch % b == 0)

    def groups(self, elements: int) -> Value:
        """Iterations over the tile, for this many elements each."""
        return self.rows * (self.pitch // elements)

    def last(self, elements: int) -> int:
        """Iterations per row, minus one."""
        return self.pitch // elements - 1


def row_pitch(columns: int, lanes: int = 1) -> int:
    """Bytes of a row of this many columns, including its padding.

    With several lanes, iterations may take larger `BLOCKS`. Blocks of 16 are worth an eighth more padding,
    blocks of 32 hardly any.
    """
    pitch = round_up(columns, GROUP)
    for block, most in zip(BLOCKS[1:], (8, 32), strict=True):
        wider = round_up(pitch, block)
        if lanes > 1 and block <= 4 * lanes and most * (wider - pitch) <= pitch:
            pitch = wider
    return pitch


class LoweredRows:
    """An operator on rows; raises `InputError` if not even one row fits.

    `views` are input and output, [..., rows, columns]; rows of results are `apart` bytes apart. The
    operator's parameters are loaded once. `places` counts buffers for tiles, and `slots` those for
    configurations; 0 means that all configurations stay in the scratchpad.
    """

    def __init__(self, operator: RowOperator, context: LoweringContext, tight: bool = False) -> None:
        config, self.operator, self.tight = context.config, operator, tight
        self.lanes = config.cgra.lanes if config.cgra is not None else 1
        self.views = merged_axes((operator.x, operator.output), context.homes, fixed=1)
        source, target = self.views
        self.total, self.columns = source.shape[-2:]
        self.pitch = row_pitch(self.columns, 1 if tight else self.lanes)
        width, unit = self.pitch, config.store_bytes
        # The port's word, unless a tile is stored as one row.
        whole_rows = target.strides[-2] == self.columns == width
        self.apart = width if whole_rows else round_up(width, unit)
        tile = RowTile(self.total, self.columns, 0, 0, 0, self.apart, self.lanes, tight)
        found = [quickest(loops, config) for loops in operator.choices(tile, 0)]
        self.chosen, self.configured = tuple(i for i, _ in found), tuple(c for _, c in found)
        parameters = operator.parameters(self.pitch, self.lanes if self.chosen[-1] else 1)
        name = f"{operator.name}, parameters"
        self.blobs: tuple[Tensor, ...] = ()
        if parameters is not None:
            self.blobs = (Tensor(name, parameters.shape, "int32", parameters),)
        cut = self._cut(context)
        self.rows, self.places, self.slots = cut.rows, cut.places, cut.slots
        self.loops = nest(source, 2, ((DOWN, self.total, cut.rows),))

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """The load, the launches and the store of every tile."""
        made: list[Statement] = []
        writer, constants = launcher.writer, 0
        for blob in self.blobs:
            home = writer.home(blob.name)
            constants = scratch.take(home.size)
            view = whole(home.tensor)
            made.append(writer.load_scratch(view, AddressMap((), {}), 1, 0, home.row, constants, home.size))
        which = turn(self.loops, self.places)
        largest = round_up(4 * max(len(c.words) for c in self.configured), UNIT)
        slots = [scratch.take(largest) for _ in range(self.slots)]

        rows = size(self.loops, DOWN, self.total, self.rows)
        tile = RowTile(
            rows,
            self.columns,
            place(scratch, which, self.places, self.rows * self.pitch),
            place(out, which, self.places, self.rows * RECORD),
            place(out, which, self.places, self.rows * self.apart),
            self.apart,
            self.lanes,
            self.tight,
        )
        if self.loops:
            launcher.forget()
        body = [self._load(writer, rows, tile)]
        passes = self.operator.passes(tile, constants, self.chosen)
        body += launches(launcher, passes, self.configured, slots)
        body.append(self._store(writer, rows, tile))
        if self.loops:
            launcher.forget()
        return made + nested(self.loops, body)

    def _walk(self, view: View) -> AddressMap:
        """Start of the current tile in a view."""
        steps = {**batch_steps(view, 2), DOWN: self.rows * view.strides[-2]}
        return AddressMap(self.loops, steps, view.offset)

    def _load(self, writer: Writer, rows: Expr, tile: RowTile) -> Statement:
        """Loads the rows with their padding; in one piece if there is none."""
        source, columns, width = self.views[0], self.columns, self.pitch
        walk, step = self._walk(source), source.strides[-2]
        if width == step == columns and self.rows * columns <= LONGEST:
            region = writer.region(source, walk, rows, step, columns)
            return writer.load_scratch(source, walk, 1, 0, rows * columns, tile.x, width, region=region)
        fill = (width - columns, self.operator.fill)
        return writer.load_scratch(source, walk, rows, step, columns, tile.x, width, None, fill)

    def _store(self, writer: Writer, rows: Expr, tile: RowTile) -> Statement:
        """Stores the results row by row, or in one piece if rows do not start at words of the port."""
        target, unit = self.views[1], writer.config.store_bytes
        walk, step = self._walk(target), target.strides[-2]
        if self.apart % unit:
            region = writer.region(target, walk, rows, step, self.columns)
            return writer.store_out(target, walk, 1, 0, rows * step, tile.out, unit, region=region)
        return writer.store_out(target, walk, rows, step, self.columns, tile.out, self.apart)

    def _cut(self, context: LoweringContext) -> _Cut:
        """The largest tiles, because every tile loads all configurations.

        Best is one tile in the operator's share, since the rest of the scratchpad can be prepared for the
        next operator. Next best is one tile in the whole scratchpad, then two buffers for tiles.
        """
        config, total, width = context.config, self.total, self.pitch
        constants = sum(round_up(4 * blob.elements, 128) for blob in self.blobs)
        sizes = [round_up(4 * len(words), 128) for words in {c.words for c in self.configured}]

        def fits(rows: int, places: int, slots: int, room: int) -> bool:
            stays = constants + (slots * max(sizes) if slots else sum(sizes)) + 256
            results = round_up(rows * self.apart, max(16, config.store_bytes))
            if self.apart % config.store_bytes and results > LONGEST:
                return False
            outside = places * (rows * RECORD + 16 + results) + 256
            return stays + places * (rows * width + 32) <= room and outside <= config.out_bytes

        def most(places: int, slots: int) -> _Cut:
            """The most rows that fit the whole scratchpad."""
            fitting = bisect.bisect_left(
                range(1, total + 1), True, key=lambda n: not fits(n, places, slots, config.scratch_bytes)
            )
            return _Cut(fitting, places, slots)

        places = HALVES if len(self.views[0].shape) > 2 else 1
        for slots, space in ((0, context.room), (0, config.scratch_bytes), (2, config.scratch_bytes)):
            if fits(total, places, slots, space):
                return _Cut(total, places, slots)
        # Reloading configurations for every tile leaves more room, but uses the memory port.
        found = [most(HALVES, 0), most(HALVES, 2), most(1, 1)]
        for best in found if found[0].parts(total) == found[1].parts(total) else found[1:]:
            if best.rows:
                return dataclasses.replace(best, rows=-(-total // best.parts(total)))
        raise InputError(
            f"{self.operator.name}: a row of {self.columns} elements, {constants} bytes of constants, "
            f"{max(sizes)} bytes of a configuration must fit {config.scratch_bytes} bytes of the scratchpad, "
            f"its results {config.out_bytes} of the output buffer"
        )


@lower.register
def lowered_rows(operator: RowOperator, context: LoweringContext) -> LoweredRows:
    """The operator with the padding that suits the lanes; with the least, if a row does not fit otherwise."""
    try:
        return LoweredRows(operator, context)
    except UnwritableError:
        raise
    except InputError:
        return LoweredRows(operator, context, tight=True)


@dataclass(frozen=True)
class _Cut:
    """Rows of a tile, buffers for tiles, and buffers for configurations (0: all stay in the scratchpad)."""

    rows: int
    places: int
    slots: int

    def parts(self, total: int) -> int:
        """Tiles of this many rows; 0 if none fits."""
        return -(-total // self.rows) if self.rows else 0


def launches(
    launcher: LaunchWriter,
    passes: Sequence[Pass],
    configured: Sequence[Configured],
    slots: Sequence[int] = (),
) -> list[Statement]:
    """The launches of a tile, one after the other.

    With `slots`, alternating areas of the scratchpad, each configuration is loaded before its launch.
    """
    made: list[Statement] = []
    regions = {"scratch": launcher.writer.scratch, "out": launcher.writer.out}
    for number, (one, own) in enumerate(zip(passes, configured, strict=True)):
        if slots:
            made += launcher.load_to(own, slots[number % len(slots)])
        reads, writes = (
            [regions[s.space](s.start, s.size) for s in spans] for spans in (one.reads, one.writes)
        )
        made.append(launcher.launch(own, one.iterations, one.scalars, reads, writes))
    return made
