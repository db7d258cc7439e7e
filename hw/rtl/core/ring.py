"""Per-warp state in a ring of registers that presents one warp per cycle."""

from __future__ import annotations

import itertools
from typing import Any

from amaranth.hdl import Module, Shape, ShapeCastable, Signal


class Ring:
    """One value per warp in a ring of shift registers, so that no multiplexer selects among warps.

    In every cycle one warp has its turn: its value is `now`, and the value assigned to `then` is its `now`
    `period` cycles later. By default `then` is `now`.
    """

    def __init__(
        self,
        m: Module,
        shape: Shape | ShapeCastable[Any] | int,
        period: int,
        name: str,
        inits: list[Any] | None = None,
    ):
        begins: list[dict[str, Any]] = [
            {} if inits is None else {"init": init} for init in inits or [0] * period
        ]
        # The warp that has its turn first is at the end.
        self._places = [Signal(shape, name=f"{name}{i}", **begin) for i, begin in enumerate(reversed(begins))]
        self.then = Signal(shape, name=f"{name}_then")
        m.d.comb += self.then.eq(self.now)
        m.d.sync += [after.eq(before) for before, after in itertools.pairwise([self.then, *self._places])]

    @property
    def now(self) -> Any:
        """The value of the warp that has its turn."""
        return self._places[-1]

    def ahead(self, cycles: int) -> Any:
        """The value of the warp whose turn comes in `cycles` cycles; `cycles` must be less than `period`."""
        return self._places[-1 - cycles]
