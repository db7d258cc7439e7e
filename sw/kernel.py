"""A compiled product: programs, memory, and the way from NumPy arrays there and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from sw.convolution import Convolution
from sw.ir.program import Program
from sw.layout import Placement
from sw.problem import Product
from sw.tiling.blocking import Blocking, Extent

#: The port through which each tensor moves.
PORT_OF = {"a": "load_a", "b": "load_b", "c": "store"}


@dataclass(frozen=True)
class Kernel:
    """One product or convolution for one machine: instruction words per warp, and where A, B and C lie.

    `source` is the sequential tile program that the warps' programs were made from.
    """

    name: str
    problem: Product | Convolution
    config: MachineConfig
    programs: dict[int, list[int]]
    places: dict[str, Placement]
    extent: Extent
    blocking: Blocking
    source: Program

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the product."""
        return self.problem.macs

    @property
    def instructions(self) -> dict[int, int]:
        """Static instructions per warp."""
        return {warp: len(words) for warp, words in self.programs.items()}

    @property
    def windows(self) -> tuple[tuple[int, int, bool, bool], ...]:
        """First byte, last byte, read permission, write permission: one window per tensor."""
        return tuple((p.address, p.address + p.size - 1, not p.write, p.write) for p in self.places.values())

    def memory(self, a: np.ndarray, b: np.ndarray) -> tuple[tuple[int, np.ndarray], ...]:
        """Address and bytes of the operands; raises `InputError` for arrays of another shape or type."""
        self.problem.check(a, b)
        return tuple(
            (self.places[t].address, self.places[t].image(x.reshape(self.places[t].shape)))
            for t, x in (("a", a), ("b", b))
        )

    @property
    def output(self) -> tuple[int, int]:
        """Address and bytes of the result in memory."""
        return self.places["c"].address, self.places["c"].size

    def extract(self, data: np.ndarray) -> np.ndarray:
        """The result, int32, out of the bytes of `output`."""
        found = self.places["c"].extract(data).astype(np.int32, copy=False)
        return found.reshape(self.problem.shape_c)

    def bytes_moved(self) -> dict[str, int]:
        """Bytes that must pass each port at least once: of images the pixels that any output uses."""
        moved = {PORT_OF[t]: p.rows * p.row_bytes for t, p in self.places.items()}
        if isinstance(self.problem, Convolution):
            c = self.problem
            moved[PORT_OF["b"]] = c.images * c.channels * c.rows.used * c.cols.used
        return moved

    def bounds(self, bandwidth: Mapping[str, int] | None = None) -> dict[str, int]:
        """Least cycles by what limits them: the array (`gemm`) and every port at its bytes per cycle."""
        rate = {port: (bandwidth or {}).get(port, self.config.port_bytes(port)) for port in PORT_OF.values()}
        ports = {port: -(-count // rate[port]) for port, count in self.bytes_moved().items()}
        return {"gemm": -(-self.macs // self.config.macs_per_cycle)} | ports

    def bound_cycles(self, bandwidth: Mapping[str, int] | None = None) -> int:
        """No machine of this array and these ports can be quicker."""
        return max(self.bounds(bandwidth).values())
