"""What launches of the grid state that they access, by bytes: warps are ordered by nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw.config import MachineConfig
from sw.ir.program import Program
from sw.ir.trace import Boxes, Rows, trace
from sw.ir.walk import instructions
from sw.tile_programs.places import Place

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Stated:
    """Bytes by space (`acc`, `scratch`, `out`) that a launch may read and write; None: all."""

    reads: Mapping[str, Mask] | None
    writes: Mapping[str, Mask] | None


class Launches:
    """All launches of a bound program, by label and number of the execution."""

    def __init__(self, program: Program, places: Mapping[str, Place], config: MachineConfig):
        self.places = places
        d = config.derived
        self.sizes = {"acc": config.acc_bytes, "scratch": d.scratch.columns, "out": d.out.columns}
        labels = {s.label for s in instructions(program) if s.name == "cgra"}
        found = trace(program).rows if labels else ()
        self.rows = {r.instruction.label: r for r in found if r.instruction.label in labels}

    def stated(self, label: str, number: int) -> Stated | None:
        """What an execution states; None for what is no launch."""
        rows = self.rows.get(label)
        if rows is None:
            return None
        return Stated(self._masks(rows, rows.reads, number), self._masks(rows, rows.writes, number))

    def _masks(self, rows: Rows, accesses: Sequence[Boxes | None], number: int) -> Mapping[str, Mask] | None:
        made = {space: np.zeros(size, np.bool_) for space, size in self.sizes.items()}
        for boxes in accesses:
            if boxes is None:
                return None
            place = self.places.get(boxes.buffer)
            if place is not None and place.space in made:
                _fill(made[place.space], place, boxes.start[:, number], boxes.stop[:, number])
        return made


def _fill(mask: Mask, place: Place, start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]) -> None:
    """Mark the bytes of a box."""
    at = np.full((), place.base)
    for first, end, stride in zip(start[:-1], stop[:-1], place.strides[:-1], strict=True):
        at = at[..., None] + np.arange(first, end) * stride
    last = np.arange(start[-1], stop[-1])
    # In the accumulator the last dimension counts words of so many elements, all others too.
    at = at[..., None] + last // place.lanes * place.strides[-1]
    size = place.element_bytes
    if place.space == "acc":
        at = (at * place.lanes + last % place.lanes) * size
    mask[at[..., None] + np.arange(size)] = True
