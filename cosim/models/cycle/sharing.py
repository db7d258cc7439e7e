"""Which channels and engines warps share, and which belong to one warp alone.

If only one warp waits on a channel, the order of events does not matter: tokens accumulate until that warp
takes one. If also only one warp signals to it, even the cycles of later tokens are known ahead. Waits and
signals on such channels issue ahead of time, as scalar instructions do. All warps share the issue bus.
"""

from __future__ import annotations

import operator
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cosim.models.cycle.program import ENGINE, SIGNAL, WAIT, Decoded
from hw.semantics import MASK


class Channel:
    """Tokens of a channel, and the warps held on it.

    `tokens` holds the cycles in which tokens fired that have not been taken. On an `alone` channel only one
    warp waits; it takes tokens ahead of time, in the cycles listed in `ahead`. On a `private` channel also
    only one warp signals; its tokens may lie in the future.
    """

    __slots__ = ("ahead", "alone", "depth", "private", "tokens", "waiting")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.alone = self.private = False
        self.tokens: deque[int] = deque()
        self.ahead: deque[int] = deque()
        self.waiting: list[Any] = []

    def full(self, cycle: int) -> bool:
        """Whether, as far as is known, there is no room for a token that fires in `cycle`."""
        ahead, count = self.ahead, len(self.tokens)
        if count + len(ahead) < self.depth:
            return False
        while ahead and ahead[0] <= cycle:
            ahead.popleft()
        return count + len(ahead) >= self.depth


class Pending(NamedTuple):
    """A signal that has issued and not fired; it fires in `cycle` or later.

    It also waits for the completion of operation `late` (-1: none) of `engine`, which may still change.
    """

    cycle: int
    channel: Channel
    pc: int
    engine: Any
    late: int


class Operation(NamedTuple):
    """An engine operation: engine, mnemonic, a function to fetch operands, and the operands' limits."""

    engine: Any
    name: str
    fetch: Callable[[Sequence[int]], tuple[int, ...]]
    limits: tuple[int, ...]

    def operands(self, fetched: Sequence[int]) -> list[int] | None:
        """The fetched operands as unsigned numbers; None if one is wider than its field."""
        values = [value & MASK for value in fetched]
        return values if all(map(operator.le, values, self.limits)) else None


def bind(
    programs: Mapping[int, list[Decoded]], channels: list[Channel], engines: Mapping[str, Any]
) -> dict[int, list[Decoded]]:
    """Replace numbers of channels and names of engines by objects, in `extra`; mark unshared channels."""

    def users(kind: int) -> Counter[Any]:
        counts: Counter[Any] = Counter()
        for code in programs.values():
            counts.update({word[3] for word in code if word[0] == kind})
        return counts

    signals = users(SIGNAL)
    for number, count in users(WAIT).items():
        channels[number].alone = count == 1
        channels[number].private = count == 1 and signals[number] == 1

    def bound(word: Decoded) -> Decoded:
        kind, guard, sense, a, b, _, turns, extra = word
        if kind in (WAIT, SIGNAL):
            return (kind, guard, sense, a, b, 0, turns, channels[a])
        if kind == ENGINE:
            engine, name, registers, limits = extra
            operation = Operation(engines[engine], name, operator.itemgetter(*registers), limits)
            return (kind, guard, sense, a, b, 0, turns, operation)
        return word

    return {warp: [bound(word) for word in code] for warp, code in programs.items()}
