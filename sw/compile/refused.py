"""Operators that do not fit on the machine."""

from __future__ import annotations

from collections.abc import Sequence

from hw.errors import InputError
from sw.graph.network import Operator


class OperatorsError(InputError):
    """Operators that the machine cannot execute, each with its reason; the message is the first one's."""

    def __init__(self, refused: Sequence[tuple[Operator, str]]):
        self.refused = tuple(refused)
        more = len(self.refused) - 1
        others = f"; {more} more operators are refused" if more > 1 else "; 1 more operator is refused" * more
        super().__init__(f"{self.refused[0][1]}{others}")
