"""Random expressions, accesses and tiles, and the expected result of an elementwise launch."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hw.fabric import Unit
from sw.dfg.operations import OPERATIONS
from sw.graph.expression import Apply, Argument, Expression, Lookup, Number, evaluate
from sw.ir.expression import evaluate as number_of
from sw.kernels.access import TileAccess
from sw.kernels.choose import MASKS
from sw.kernels.elementwise import ElementwiseKernel, make
from sw.kernels.indices import Key

#: Bytes of the spaces; operands in the output buffer lie in its first half, the result in the second.
SIZES = {"acc": 1 << 12, "scratch": 1 << 13, "out": 1 << 13}
#: What every fabric with an ALU and a multiplier computes.
_COMPUTED = [n for n, o in OPERATIONS.items() if o.meaning is not None and o.unit is not Unit.QUANTISER]
_NUMBERS = (0, 1, -1, 2, 5, 31, 33, 63, 64, 127, -128, 255, 1 << 20, (1 << 31) - 1, -(1 << 31))
_ENTRIES = 256


def number(rng: random.Random) -> Number:
    """A number, often a special one."""
    return Number(rng.choice(_NUMBERS) if rng.random() < 0.6 else rng.randrange(-(1 << 31), 1 << 31))


def expression(rng: random.Random, operands: int, size: int) -> Expression:
    """An expression of about `size` operations; parts may be used several times."""
    parts: list[Expression] = [Argument(k) for k in range(operands)]
    table = tuple(rng.randrange(-(1 << 31), 1 << 31) for _ in range(_ENTRIES))

    def part() -> Expression:
        return number(rng) if rng.random() < 0.25 else rng.choice(parts[-operands - 3 :])

    for _ in range(size):
        if rng.random() < 0.1:
            parts.append(Lookup(table, Apply("and", (part(), Number(_ENTRIES - 1)))))
            continue
        name = rng.choice(_COMPUTED)
        parts.append(Apply(name, tuple(part() for _ in range(OPERATIONS[name].operands))))
    return parts[-1]


def accesses(rng: random.Random, count: int) -> list[TileAccess]:
    """Operands of all kinds."""
    found = []
    for _ in range(count):
        follows = rng.choice(("full", "full", "column", "row", "scalar"))
        space = rng.choice(("acc", "scratch", "out"))
        record = follows in ("row", "column") and rng.random() < 0.5
        if record:
            space, element = "scratch", "int32"
        else:
            element = rng.choice(("int32", "int8", "uint8")) if space != "acc" else "int32"
        gaps = [follows == "full" and rng.random() < 0.25 for _ in range(2)]
        found.append(TileAccess(space, element, follows, *gaps, record))
    return found


@dataclass
class Tile:
    """A launch: the kernel, its scalars by name, the spaces before, and the bytes of the output behind it."""

    made: ElementwiseKernel
    scalars: dict[str, int]
    iterations: int
    spaces: dict[str, np.ndarray]
    expected: np.ndarray


class _Drawing:
    """A tile of `rows` x `width` elements for a kernel."""

    def __init__(self, rng: random.Random, made: ElementwiseKernel, given: list[TileAccess]):
        self.rng, self.given = rng, given
        #: What lanes work on begins at a multiple of their number.
        self.unit = made.unrolling.lanes
        data = np.random.default_rng(rng.randrange(1 << 32))
        self.spaces = {name: data.integers(0, 256, size, np.uint8) for name, size in SIZES.items()}
        self.segment = made.block * rng.randint(1, 2)
        self.segments = rng.randint(1, max(1, 32 // self.segment))
        self.rows, self.width = rng.randint(1, 3), self.segment * self.segments
        self.bases: dict[Key, int] = {}
        self.row_gaps: dict[Key, int] = {}
        self.segment_gaps: dict[Key, int] = {}

    def indices(self, key: Key, access: TileAccess) -> np.ndarray:
        """The elements of an access, rows x width, from its base on."""
        row, column = np.mgrid[0 : self.rows, 0 : self.width]
        if access.follows != "full":
            return {"row": row, "column": column, "scalar": 0 * row}[access.follows]
        if access.turned:
            self.row_gaps[key] = 1 - self.width * access.step
            return column * access.step + row
        found = (row * self.width + column) // access.repeat
        # What is read may overlap; a result must not.
        least = 0 if key == "result" else -3
        if access.row_gap:
            self.row_gaps[key] = self.unit * self.rng.randint(0, 9)
            found = found + row * self.row_gaps[key]
        if access.segment_gap:
            gap = self.rng.randint(max(least, -self.segment), 9)
            self.segment_gaps[key] = gap if self.unit == 1 else self.unit * max(0, gap)
            found = found + (row * self.segments + column // self.segment) * self.segment_gaps[key]
        return found

    def elements(self, key: Key, access: TileAccess, low: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The elements of a space, and the indices of an operand there."""
        held = self.spaces[access.space].view(access.element)
        high = len(held) // 2 if access.space == "out" and low == 0 else len(held)
        found = self.indices(key, access)
        base = self.rng.randint(low * len(held) // 2, high - 1 - int(found.max()))
        self.bases[key] = base - base % self.unit
        return held, found + self.bases[key]

    def record(self, made: ElementwiseKernel, follows: str) -> dict[int, np.ndarray]:
        """Records of rows or columns somewhere, and what they hold, by operand."""
        wanted = [k for k, a in enumerate(self.given) if a.record and a.follows == follows]
        if not wanted:
            return {}
        count = self.width
        if follows == "row":
            count = self.rows * (self.segments if made.indices.of_rows == "segment" else 1)
        low = -(1 << 31)
        arrays = {
            k: np.array([self.rng.randrange(low, -low) for _ in range(count)], np.int32) for k in wanted
        }
        words = made.records(follows, arrays)
        held = self.spaces["scratch"].view(np.int32)
        # Those of rows lie in the first half, those of columns in the second.
        half = len(held) // 2
        base = self.rng.randint(0, half - len(words)) + (half if follows == "column" else 0)
        base -= base % self.unit
        self.bases[f"{follows}s"] = base
        held[base : base + len(words)] = words
        return arrays


def tile(
    rng: random.Random,
    value: Expression | None = None,
    given: list[TileAccess] | None = None,
    lanes: int = 1,
    quantiser: bool = False,
    masks: Sequence[int] = MASKS,
) -> Tile:
    """A launch of a random kernel, or of a given one, on a random tile."""
    given = accesses(rng, rng.randint(1, 3)) if given is None else given
    value = expression(rng, len(given), rng.randint(1, 8)) if value is None else value
    gaps = [rng.random() < 0.2 for _ in range(2)]
    result = TileAccess("out", rng.choice(("int8", "uint8", "int32")), "full", *gaps)
    mask = rng.choice(masks) if lanes == 1 else rng.choice((1, 2, 4)) * lanes - 1
    made = make(value, given, result, mask=mask, lanes=lanes, quantiser=quantiser)
    drawing = _Drawing(rng, made, given)
    # Records are written over what lies there, so they come first.
    records = [drawing.record(made, follows) for follows in ("row", "column")]
    shape = drawing.rows, drawing.width
    operands: list[np.ndarray] = []
    for k, access in enumerate(given):
        if access.record and access.follows == "row":
            # A segment, or a row, has one element.
            operands.append(np.repeat(records[0][k], math.prod(shape) // len(records[0][k])).reshape(shape))
        elif access.record:
            operands.append(np.broadcast_to(records[1][k], shape))
        else:
            held, where = drawing.elements(k, access)
            operands.append(held[where])
    held, where = drawing.elements("result", result, 1)
    expected = drawing.spaces["out"].copy()
    values = np.broadcast_to(evaluate(value, operands), shape)
    expected.view(result.element)[where] = values.astype(held.dtype)
    scalars = made.scalars(
        drawing.bases,
        drawing.width,
        segment=drawing.segment,
        row_gaps=drawing.row_gaps,
        segment_gaps=drawing.segment_gaps,
    )
    known = {name: number_of(x, {}) for name, x in scalars.items()}
    iterations = number_of(made.iterations(drawing.rows, drawing.width), {})
    return Tile(made, known, iterations, drawing.spaces, expected)
