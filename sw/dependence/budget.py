"""How much walks may take, all of one program together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class WalkBudget:
    """Comparisons that walks may take: each at least so many, and a share of what all have left."""

    least: int = 100
    left: int = 32_000
    share: int = 16

    def next(self) -> int:
        """What the next walk may take."""
        return max(self.least, self.left // self.share)

    def spent(self, count: int) -> None:
        """A walk has taken so many."""
        self.left += self.least - count
