"""Launches of the grid as statements, and the part of the scratchpad that an operator has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hw.errors import InputError
from sw.compile.writer import CONFIGURATION, Walk, Writer, given, interval
from sw.graph.network import whole
from sw.ir.expression import Expr, const
from sw.ir.intrinsics import KEEP
from sw.ir.program import Access, Instruction, Region, Statement
from sw.ir.roles import WarpRole
from sw.kernels.configuration import Configured
from sw.layout import round_up

#: Operands and parameters of a launch that are its scalars, in order.
SCALARS = ("live0", "live1", *(f"cgra_{i}" for i in range(12)))
#: Configurations start at multiples of this (docs/cgra.md, "The `cgra` operation").
UNIT = 16


@dataclass
class Area:
    """Bytes of a memory of the chip that an operator shares out."""

    what: str
    base: int
    size: int
    alignment: int
    used: int = 0

    def take(self, size: int) -> int:
        """The first byte of so many; raises `InputError` where there are no more."""
        start = round_up(self.base + self.used, self.alignment)
        if start + size > self.base + self.size:
            raise InputError(
                f"{self.what} must hold {start + size - self.base} bytes for this operator, not {self.size}"
            )
        self.used = start + size - self.base
        return start


@dataclass
class Grid:
    """Launches of configurations that lie in the scratchpad."""

    writer: Writer
    #: Names of the tensors that hold configurations, by their words.
    stored: Mapping[tuple[int, ...], str]
    #: What the grid holds where the next statement stands, if that is known.
    current: tuple[int, ...] | None = None
    places: dict[tuple[int, ...], int] = field(default_factory=dict)

    def load(self, configured: Configured, area: Area) -> list[Statement]:
        """Bring a configuration into the scratchpad."""
        return self.load_to(configured, area.take(round_up(4 * len(configured.words), UNIT)))

    def load_to(self, configured: Configured, place: int) -> list[Statement]:
        """Bring a configuration to a byte of the scratchpad, a multiple of `UNIT`."""
        words = tuple(configured.words)
        home = self.writer.home(self.stored[words])
        self.places[words] = place
        view = whole(home.tensor)
        return [self.writer.load_c(view, Walk((), {}), 1, home.row, home.row, place, home.size)]

    def bring(self, configured: Configured) -> list[Statement]:
        """A launch of no iteration that only brings a configuration, if it is not there."""
        words = tuple(configured.words)
        if self.current == words:
            return []
        self.current = words
        return [self._launch(configured, const(0), {}, (), (), None, keep=False)]

    def launch(
        self,
        configured: Configured,
        iterations: Expr | int,
        scalars: Mapping[str, Expr | int],
        reads: Sequence[Access],
        writes: Sequence[Access],
        when: Expr | None = None,
    ) -> Instruction:
        """A launch; the configuration is kept where it is there."""
        words = tuple(configured.words)
        keep = self.current == words
        self.current = words
        count = const(iterations) if isinstance(iterations, int) else iterations
        return self._launch(configured, count, scalars, reads, writes, when, keep)

    def forget(self) -> None:
        """What the grid holds is not known: at the start of a loop that brings several."""
        self.current = None

    def _launch(
        self,
        configured: Configured,
        iterations: Expr,
        scalars: Mapping[str, Expr | int],
        reads: Sequence[Access],
        writes: Sequence[Access],
        when: Expr | None,
        keep: bool,
    ) -> Instruction:
        words = tuple(configured.words)
        place, size = self.places[words], 4 * len(words)
        operands: dict[str, Expr | int] = {
            "bitstream": KEEP if keep else place // UNIT,
            "iterations": iterations,
            "live0": 0,
            "live1": 0,
        }
        if iterations != const(0):
            operands |= {r: scalars[n] for r, n in zip(SCALARS, configured.kernel.scalars, strict=False)}
        held = Region(CONFIGURATION, (interval(0, 1),))
        brought = (held,) if keep else (self.writer.scratch(place, size),)
        return Instruction(
            self.writer.label("X"),
            "cgra",
            (*reads, *brought),
            (*writes, *(() if keep else (held,))),
            WarpRole.CGRA,
            when,
            given(operands),
        )
