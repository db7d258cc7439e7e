"""Launches of the grid as statements, and the part of the scratchpad that an operator has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hw.errors import InputError
from sw.cgra.launcher import UNIT, HeldConfiguration, launch_operands
from sw.compile.writer import CONFIGURATION, Walk, Writer, given, interval
from sw.graph.network import whole
from sw.ir.expression import Expr
from sw.ir.program import Access, Instruction, Region, Statement
from sw.ir.roles import WarpRole
from sw.kernels.configuration import Configured
from sw.layout import round_up


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
class Grid(HeldConfiguration):
    """Launches of configurations that lie in the scratchpad."""

    writer: Writer
    #: Names of the tensors that hold configurations, by their words.
    stored: Mapping[tuple[int, ...], str]
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
        return [] if self.current == configured.words else [self.launch(configured, 0, {}, (), ())]

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
        words, keep = configured.words, self.keeps(configured.words)
        values = (scalars[name] for name in configured.kernel.scalars)
        held = Region(CONFIGURATION, (interval(0, 1),))
        brought = (held,) if keep else (self.writer.scratch(self.places[words], 4 * len(words)),)
        return Instruction(
            self.writer.label("X"),
            "cgra",
            (*reads, *brought),
            (*writes, *(() if keep else (held,))),
            WarpRole.CGRA,
            when,
            given(launch_operands(self.places[words] // UNIT, iterations, values, keep)),
        )
