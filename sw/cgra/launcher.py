"""The common part of all CGRA launches: scalar arguments, and reuse of the current configuration."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from sw.ir.expression import Const, Expr
from sw.ir.intrinsics import KEEP

#: Operands and parameters of a launch that carry its scalars, in order.
SCALARS = ("live0", "live1", *(f"cgra_{i}" for i in range(12)))
#: Alignment of configurations in the scratchpad, in bytes.
UNIT = 16

Address = TypeVar("Address")


@dataclass(kw_only=True)
class HeldConfiguration:
    """The configuration in the CGRA before the next statement; None if unknown."""

    current: Hashable | None = None

    def keeps(self, configuration: Hashable) -> bool:
        """Whether a launch can keep the current configuration; it is current from now on."""
        kept = self.current == configuration
        self.current = configuration
        return kept

    def forget(self) -> None:
        """Forgets the configuration; used at the start and end of a loop that loads several."""
        self.current = None


def launch_operands(
    address: Address, iterations: Expr | int, scalars: Iterable[Expr | int], keep: bool
) -> dict[str, Address | Expr | int]:
    """The operands of a launch; one without iterations only loads its configuration, without scalars."""
    given = () if iterations in (0, Const(0)) else scalars
    first: dict[str, Address | Expr | int] = {
        "bitstream": KEEP if keep else address,
        "iterations": iterations,
    }
    return first | {"live0": 0, "live1": 0} | dict(zip(SCALARS, given, strict=False))
