"""The bytes that CGRA launches declare to access; only these order the launch with other warps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw.config import MachineConfig
from sw.ir.expression import evaluate
from sw.ir.intrinsics import effects
from sw.ir.program import Access, Instruction, Region
from sw.tile_programs.places import Place

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Stated:
    """Bytes by space (`acc`, `scratch`, `out`) that a launch may read and write; None means all."""

    reads: Mapping[str, Mask] | None
    writes: Mapping[str, Mask] | None


class Launches:
    """The declared accesses of a bound program's launches."""

    def __init__(self, places: Mapping[str, Place], config: MachineConfig):
        self.places = places
        d = config.derived
        self.sizes = {"acc": config.acc_bytes, "scratch": d.scratch.columns, "out": d.out.columns}

    def stated(self, s: Instruction, values: Mapping[str, int]) -> Stated | None:
        """What an execution declares, for these values of the variables; None if it is not a launch."""
        if s.name != "cgra":
            return None
        reads, writes = effects(s)
        return Stated(self._masks(reads, values), self._masks(writes, values))

    def _masks(self, accesses: Sequence[Access], values: Mapping[str, int]) -> Mapping[str, Mask] | None:
        made = {space: np.zeros(size, np.bool_) for space, size in self.sizes.items()}
        for access in accesses:
            if not isinstance(access, Region):
                return None
            place = self.places.get(access.buffer)
            if place is not None and place.space in made:
                box = [(evaluate(i.start, values), evaluate(i.stop, values)) for i in access.box]
                made[place.space][place.bytes_of(box)] = True
        return made
