"""CGRA loops that evaluate an expression for every element of a tile (docs/operators.md).

An iteration computes `per_iteration` elements, which need not be neighbours: bytes stored in one step are
best placed in different words (`Unrolling`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hw.fabric.bitstream import SCALARS
from sw.graph.expression import Argument, Expression, walk
from sw.ir.expression import Expr, Op, const, fold
from sw.kernels.access import TileAccess
from sw.kernels.body import LoopText, bytes_as_unsigned, numbers, with_quantiser, with_sums
from sw.kernels.configuration import over
from sw.kernels.indices import Indices, Key, Unrolling, record_operands
from sw.kernels.kernel import GridKernel


@dataclass(frozen=True)
class ElementwiseKernel:
    """An elementwise loop, with what its launches need.

    The number of columns must be a multiple of `block`. For tiles without gaps and without operands that
    follow rows or columns, only the number of elements must be. With gaps between segments, segment sizes
    must be multiples too, and a row consists of whole segments. `numbers` are the values of scalars that
    belong to the operator: kernels that differ only in them have equal `kernel`s and share one configuration.
    """

    kernel: GridKernel
    operands: tuple[TileAccess, ...]
    indices: Indices
    numbers: Mapping[str, int]

    @property
    def result(self) -> TileAccess:
        """The access of the result."""
        return self.indices.result

    @property
    def unrolling(self) -> Unrolling:
        """The elements of an iteration."""
        return self.indices.unrolling

    @property
    def per_iteration(self) -> int:
        """Elements that an iteration computes."""
        return self.unrolling.copies

    @property
    def block(self) -> int:
        """The number that the elements in a row (or a tile, or a segment) must be a multiple of."""
        return self.unrolling.block

    def iterations(self, rows: Expr | int, width: Expr | int) -> Expr:
        """Iterations of a launch."""
        return fold(Op.DIV, fold(Op.MUL, rows, width), self.per_iteration)

    def scalars(
        self,
        bases: Mapping[Key, Expr | int],
        width: Expr | int | None = None,
        *,
        segment: Expr | int | None = None,
        row_gaps: Mapping[Key, Expr | int] | None = None,
        segment_gaps: Mapping[Key, Expr | int] | None = None,
    ) -> dict[str, Expr]:
        """The scalars of a launch by name, in the kernel's order.

        `bases` are the indices of the first elements, by operand number or `"result"`; `"rows"` and
        `"columns"` are the first words of the records. `width` and `segment` are in elements; gaps are the
        numbers of elements skipped, by operand number or `"result"`.
        """
        given = self.indices.scalars(bases, width, segment, row_gaps or {}, segment_gaps or {})
        given |= {name: const(value) for name, value in self.numbers.items()}
        return {name: given[name] for name in self.kernel.scalars}

    def records(self, follows: str, arrays: Mapping[int, npt.ArrayLike]) -> npt.NDArray[np.int32]:
        """The words of all records of operands that follow rows, or columns; `arrays` has their elements.

        Operands have one element per row or column; the number of columns is a multiple of the block. The
        record of row r begins at word r times the number of such operands. The records of the block that
        starts at column r begin at the same word; in them, the words of all lanes of an operand are adjacent.
        """
        wanted = record_operands(self.operands, follows)
        words = np.stack([np.asarray(arrays[k], np.int32).reshape(-1) for k in wanted], axis=-1)
        if follows == "row":
            return words.reshape(-1)
        order, lanes = list(self.unrolling.sequence), self.unrolling.lanes
        words = words.reshape(-1, self.block, len(wanted))[:, order]
        # For elements computed at once, the words of each operand are adjacent.
        return words.reshape(-1, lanes, len(wanted)).swapaxes(1, 2).reshape(-1)


def make(
    value: Expression,
    operands: Sequence[TileAccess],
    result: TileAccess,
    *,
    mask: int = 0,
    lanes: int = 1,
    quantiser: bool = False,
    sums: bool = False,
    order: tuple[int, ...] = (),
    name: str = "elementwise",
) -> ElementwiseKernel:
    """The loop that sets the result to `value` of the operands.

    An iteration computes the elements of `mask` in this order (`Unrolling`). With several `lanes`, that many
    neighbours are computed at once: `mask` must contain all lower bits, and bases, gaps and segments must be
    multiples of the lanes. `quantiser` says whether PEs have that unit, `sums` whether it also adds.
    `sw.kernels.choose` finds the best mask for a machine. Raises `InputError` if there are more arrays or
    scalars than a launch can have.
    """
    value = with_quantiser(value) if quantiser else value
    value = with_sums(value) if sums else value
    value, unsigned = bytes_as_unsigned(value, [a.element == "int8" for a in operands])
    read = tuple(replace(a, element="uint8") if k in unsigned else a for k, a in enumerate(operands))
    used = frozenset(e.index for e in walk(value) if isinstance(e, Argument))
    indices = Indices(read, result, Unrolling(mask, order, lanes), used)
    wanted = numbers(value)
    room = max(0, SCALARS - len(indices.names))
    while True:
        given = {number: f"number_{i}" for i, number in enumerate(wanted[:room])}
        kernel = _kernel(name, value, indices, given)
        excess, uses = over(kernel)
        if not given or excess <= 0:
            break
        room = len(given)
        while room and excess > 0:
            room -= 1
            excess -= uses[f"number_{room}"]
    return ElementwiseKernel(
        kernel, tuple(operands), indices, {scalar: number for number, scalar in given.items()}
    )


def _kernel(name: str, value: Expression, indices: Indices, given: Mapping[int, str]) -> GridKernel:
    """The kernel's text, with the given numbers as scalars."""
    body = LoopText(given, wide=indices.unrolling.lanes > 1)
    for piece in range(len(indices.unrolling.pieces)):
        found = body.value(value, [indices.load(k, piece) for k in range(len(indices.operands))])
        body.lines.append(indices.store(piece, found))
    streams = indices.streams
    scalars = (*indices.names, *given.values())
    head = [f"LANES = {indices.unrolling.lanes}"] * (indices.unrolling.lanes > 1)
    head += [f"{table} = {words!r}" for words, table in body.tables.items()]
    parameters = ", ".join(["n", *(s.name for s in streams), *scalars])
    lines = [*head, f"def {name}({parameters}):"]
    lines += [f"    {line}" for line in indices.start]
    lines += ["    for i in range(n):", *(f"        {line}" for line in (*indices.step, *body.lines))]
    return GridKernel(name, "\n".join(lines) + "\n", streams, scalars, indices.unrolling.copies)
